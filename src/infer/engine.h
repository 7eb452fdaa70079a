// Engine: computes many requests together, step by step.
//
// A step is one forward pass over the rows that the scheduler chose (infer/scheduler.h): a token of each
// answer that is being written, and chunks of prompts. Then each row that ends what is known of its request
// draws a token.
//
// One answer: a request's tokens and log-probabilities are the same bits alone, in any company, whatever the
// chunks, with and without a prefix hit, after preemption; the log-probabilities are those of `eval score` and
// of training. There is no other mode.
//
// Memory:  everything is taken at the start: model and cache by the caller, rows to score here. Sequences
//          keep their tokens, and 16 bytes for each page.
// Threads: submit, cancel and stats from any thread; run, or step, on one. Listeners are called there: they
//          must not block, and may not call step.
// Errors:  submit: kInvalidArgument names the field; QueueFull: try again later.
// Cost:    beside the forward pass: for each token drawn one pass over V logits and its draw, on all threads. Where the
//          model has a copy of its head and nobody wants a log-probability, logits of few words (infer/head_pass.h).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "infer/head_pass.h"
#include "infer/queue_limit.h"
#include "infer/scheduler.h"
#include "kernels/gpu/gpu_arena_memory.h"
#include "model/model.h"
#include "parallel/serving_placer.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

struct EngineOptions {
  int64_t sequences = 1;         // most that run at once: 1 .. most rows of the model
  int64_t interleave_rows = 0;   // as SchedulerOptions::interleave_rows
  double tpot_seconds = 0;       // time per output token that 95 % of steps stay under; 0: none
  int64_t waiting_requests = 0;  // most in the queue; 0: no limit
  int64_t waiting_tokens = 0;    // most prompt tokens in the queue; 0: no limit
  double waiting_seconds =
      0;  // most of prompt work before a request (infer/queue_limit.h); 0: no limit
  Communicator* ranks = nullptr;  // that follow (infer/rank_steps.h); null: none
  // Called on the thread of run or step after listeners were: once for all that a step told them.
  std::function<void()> heard = {};
};

struct EngineStats {
  int64_t waiting = 0, waiting_tokens = 0, running = 0;
  int64_t prompt_work = 0;  // tokens (Scheduler::prompt_work)
  double prompt_rate = 0;   // tokens per second; 0: not known yet
  int64_t pages = 0, pages_available = 0, pages_kept = 0;
  // Since the start:
  int64_t requests = 0, finished[4] = {};  // by Finish
  int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;
  int64_t steps = 0, rows = 0, preemptions = 0, evictions = 0;
  double step_seconds = 0;   // in steps, of which
  double model_seconds = 0;  // in the model: layers and logits
  HeadStats head;            // calls for up to kHeadRows rows
  ServingLoad experts;       // of several ranks
};

class Engine {
 public:
  // `tokenizer` may be null: answers have no text. All outlive the engine. `cache` has room for `sequences`
  // segments.
  Engine(Context& ctx, Model& model, Cache& cache, const Tokenizer* tokenizer,
         const EngineOptions& options);
  ~Engine();

  int64_t submit(Request request, Listener listener);
  // The listener hears kCancelled, unless the request has ended; its pages are free before the next step.
  void cancel(int64_t id);
  EngineStats stats() const;

  // Until stop(), then cancels what is left. An Error of a step ends all requests (kError) and is thrown.
  void run();
  void stop();
  // One step; false: there was nothing to do.
  bool step();

  const Arena& arena() const { return arena_; }

 private:
  // A row of the batch whose logits are wanted: for the token that is known to follow it in the prompt, or for
  // one that is drawn.
  struct Row {
    Sequence* sequence;
    int64_t row;       // in the batch
    int64_t position;  // in the sequence
    bool draws;
    std::vector<uint64_t> mask;  // of a row that draws under a filter
  };

  // What its logits came to; of a row that draws also what the token does to the text.
  enum class Token { kGoesOn, kEnds, kImpossible, kNotANumber };
  struct Scored {
    TokenPiece piece;
    Token token = Token::kGoesOn;
    bool stopped = false;  // a stop string is complete
  };

  void check(const Request& request) const;
  void receive();
  void forward(const std::vector<Scheduler::Piece>& plan);
  void timed(const std::function<void()>& model_work);
  bool wait_for_work();
  void tell_placement();
  void want_rows(const Scheduler::Piece& piece, int64_t row_begin);
  static bool wants_logprobs(const Row& row);
  void score_rows(const Tensor& hidden);
  Tensor gather_rows(const Tensor& hidden, std::span<const Row> rows);
  TokenScore score_row(const Row& row, const float* logits, double lse,
                       std::span<const int32_t> among) const;
  static Scored add_token(const Row& row, TokenScore score, bool is_number);
  void conclude(const std::vector<Scheduler::Piece>& plan);
  void take_token(const Row& row, const Scored& scored);
  void finish(int64_t id, Finish reason, const std::string& error = "");
  void finish_all(Finish reason, const std::string& error);
  void count_queue();
  void end_telling();

  Context& ctx_;
  Model& model_;
  Cache& cache_;
  const Tokenizer* const tokenizer_;
  const EngineOptions options_;
  StepLeader leader_;
  std::unique_ptr<gpu::GpuArenaMemory> gpu_memory_;  // null: the model computes on the CPU
  Arena arena_;
  HeadPass head_;
  Scheduler scheduler_;
  Tensor hidden_;  // [kHeadRows, D] rows to score, where the model computes
  Tensor lse_;     // [kHeadRows] f64
  Tensor loss_;    // [kHeadRows] scratch

  // Of the step:
  Step step_;
  std::vector<Row> wanted_;
  std::vector<Scored> scored_;  // of the wanted rows
  double model_seconds_ = 0;
  bool told_ = false;  // a listener was called since options_.heard was

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Sequence>> arrived_;
  std::vector<int64_t> cancelled_;
  int64_t next_id_ = 0;
  bool stopping_ = false;
  EngineStats stats_;
};

}  // namespace moraine
