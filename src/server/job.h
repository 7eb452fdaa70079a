// Job: one request on its way through the engine: submits its choices, gathers what they become,
// writes the answer.
//
//   submitted   the engine has all choices; what they said before is heard now
//   running     tokens arrive; a stream writes them
//   ended       all choices ended, or the client went (all are cancelled), or one failed (so are the
//               others); accounted exactly once, an answer when it is known whether its client took it
//
// Threads: start on any; listeners on the engine's, whose events wait for the io thread, in their order; everything
//          else there. A whole answer is written by the worker.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "server/answer.h"
#include "server/http_exchange.h"
#include "server/metrics.h"
#include "server/worker.h"

namespace moraine {

// What a job works with; all of it outlives the job but the model and the exchange, which it shares.
struct JobParts {
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<HttpExchange> exchange;
  HttpExchange::Post post;  // to the io thread
  HttpExchange::Post
      queue;  // likewise; it is woken after all listeners of a step (Generator::submit)
  Worker* worker = nullptr;
  ServerMetrics* metrics = nullptr;
  std::string endpoint;  // for the metrics
  double begun = 0;      // when the request was whole
};

// What the engine said of a choice.
struct ChoiceEvent {
  size_t choice;
  std::variant<PromptDone, TokenPiece, Ended> what;
  double at;  // when
};

class Job : public std::enable_shared_from_this<Job> {
 public:
  // Errors: those of Generator::submit; then nothing is left in the engine.
  static void start(JobParts parts, AnswerPlan plan);
  Job(JobParts parts, AnswerPlan plan);

 private:
  void submit();
  int64_t others_tokens(const Request& first) const;
  Listener listener_of(size_t choice);
  void tell(ChoiceEvent event);
  void hear();
  void submitted(std::vector<int64_t> ids);
  void refused();
  void happened(AnswerChoice& choice, PromptDone& prompt, double at);
  void happened(AnswerChoice& choice, const TokenPiece& piece, double at);
  void happened(AnswerChoice& choice, const Ended& ended, double at);
  Deltas cut(AnswerChoice& choice, const std::string& text);
  void took(AnswerChoice& choice, const Deltas& deltas);
  void all_ended();
  void write_whole();
  void fail(const RequestError& error);
  void gone(Delivery how);
  void cancel_all();
  void account(Outcome outcome);
  void keep_best();

  const JobParts parts_;
  AnswerPlan plan_;
  std::vector<AnswerChoice> choices_;
  Usage usage_;
  std::vector<int64_t> ids_;  // of the choices in the engine
  bool submitted_ = false, ended_ = false;
  std::vector<ChoiceEvent> heard_;  // of hear

  // What the io thread has not heard of: all of it is handed over together, in its order.
  std::mutex told_mutex_;
  std::vector<ChoiceEvent> told_;
};

// The headers of every answer of a model.
HttpFields model_fields(const ServedModel& model);

}  // namespace moraine
