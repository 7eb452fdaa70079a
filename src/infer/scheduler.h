// Scheduler: which rows of which sequences the next step computes, and who has which pages.
//
//   waiting --admit--> running: prefill in chunks, then one row a step --> finished
//      ^---- preempted: no page was left for an older sequence; computed again later, from what is still cached
//
// A plan has, in this order: one row for each running sequence that decodes; chunks of prompts, oldest first;
// prompts of newly admitted sequences, as long as rows, sequences, pages and the latency target allow. An older
// sequence takes pages from a younger one, never the other way: the oldest always goes on, so all end.
//
// A long step gets through more of a prompt in the same time, but all that decode wait for it: while any does, a step
// has fewer rows of prompts.
//
// With a latency target, chunks and admissions stop where the bound of StepCost for the whole step reaches it.
// If the decoding sequences alone pass it (their contexts grew), prompts still go on by a few rows a step.
//
// No answer depends on any of this, only its time (model/cache.h, kernels/attention.h).
// Threads: one at a time.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "infer/page_pool.h"
#include "infer/prefill_rate.h"
#include "infer/rank_steps.h"
#include "infer/sequence.h"
#include "infer/step_cost.h"
#include "model/cache.h"

namespace moraine {

struct SchedulerOptions {
  int64_t rows = 0;             // most of a step
  int64_t interleave_rows = 0;  // of prompts, most of one in which a sequence decodes; 0: no limit
  int64_t sequences = 1;        // most that run at once
  double tpot_seconds = 0;      // time per output token to stay under; 0: none
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const Cache& cache);

  void add(std::unique_ptr<Sequence> sequence);

  struct Piece {
    Sequence* sequence;
    int64_t rows;
  };
  // Pages for every row are there. Empty: nothing is waiting or running.
  const std::vector<Piece>& plan();
  // That the plan relies on: to be made before its rows are computed, in order.
  const std::vector<PageCopy>& copies() const { return copies_; }
  StepCost::Work work() const { return work_; }  // of the plan

  void advance(const Piece& piece);  // its rows are computed
  // Takes a sequence out, wherever it stands; what it computed can be found by others.
  std::unique_ptr<Sequence> remove(int64_t id);  // null: there is none
  std::vector<int64_t> ids() const;

  void took(double seconds);  // the step of the last plan
  const PagePool& pool() const { return pool_; }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  // Of the prompts that wait; one that waits for a prompt like it has none.
  int64_t waiting_tokens() const;
  // Tokens still to be computed of prompts, waiting or begun, less what the prefix cache had when they came. A
  // prompt that waits for one like it costs nothing.
  int64_t prompt_work() const;
  // Tokens per second at which that goes on: measured, else what StepCost says of a full step; 0: not known yet.
  double prompt_rate() const;
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t preemptions() const { return preemptions_; }

 private:
  using List = std::list<std::unique_ptr<Sequence>>;

  void wait(std::unique_ptr<Sequence> sequence);
  void plan_decoding();
  void plan_prompts();
  void admit();
  bool may_start(const Sequence& sequence) const;
  bool start(Sequence& sequence);
  int64_t rows_left() const;
  int64_t affordable(const Sequence& sequence, int64_t rows) const;
  int64_t make_room(Sequence& sequence, int64_t rows, bool decoding);
  void add_piece(Sequence& sequence, int64_t rows);
  bool planned(const Sequence& sequence) const;
  void preempt(List::iterator victim);
  void let_go(Sequence& sequence);
  int64_t pages_for(int64_t positions) const;

  const SchedulerOptions options_;
  const int64_t page_rows_;
  PagePool pool_;
  StepCost cost_;
  LatencyMargin margin_;
  PrefillRate rate_;
  List waiting_, running_;  // both by arrival
  std::vector<Piece> plan_;
  std::vector<PageCopy> copies_;
  StepCost::Work work_;
  int64_t decoding_ = 0;       // pieces of the plan
  int64_t prompt_rows_ = 0;    // of the plan
  bool prompts_left_ = false;  // behind the plan
  int64_t preemptions_ = 0;
};

}  // namespace moraine
