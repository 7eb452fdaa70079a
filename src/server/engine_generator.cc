// Engine generator: hands on, and reports what ends the engine.
#include "server/engine_generator.h"

#include "base/log.h"
#include "base/thread.h"

namespace moraine {

EngineGenerator::EngineGenerator(std::unique_ptr<LoadedModel> model,
                                 std::shared_ptr<const Tokenizer> tokenizer,
                                 const EngineOptions& options, std::function<void()> failed,
                                 std::shared_ptr<StepRanks> ranks)
    : ranks_(std::move(ranks)),
      model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      failed_(std::move(failed)),
      engine_(model_->ctx(), model_->model(), model_->cache(), tokenizer_.get(), options) {
  thread_ = start_thread("run the engine", [this] { run(); });
}

EngineGenerator::~EngineGenerator() { stop(); }

void EngineGenerator::run() {
  try {
    engine_.run();
  } catch (const std::exception& e) {
    log_event(Level::kError, "serve.engine_failed", "what=\"{}\"", e.what());
    if (failed_) failed_();
  }
}

int64_t EngineGenerator::submit(Request request, Listener listener) {
  return engine_.submit(std::move(request), std::move(listener));
}

void EngineGenerator::cancel(int64_t id) { engine_.cancel(id); }

GeneratorStats EngineGenerator::stats() const {
  const EngineStats s = engine_.stats();
  return {.queued = s.waiting,
          .running = s.running,
          .queued_tokens = s.waiting_tokens,
          .prompt_rate = s.prompt_rate,
          .prompt_seconds =
              QueueLoad{.prompt_work = s.prompt_work, .tokens_per_second = s.prompt_rate}.seconds(),
          .pages_used = s.pages - s.pages_available,
          .pages_total = s.pages,
          .steps = s.steps,
          .preemptions = s.preemptions,
          .step_seconds = s.step_seconds,
          .model_seconds = s.model_seconds,
          .head_rows_two_stage = s.head.rows_two_stage,
          .head_rows_full = s.head.rows_full,
          .head_abandoned = s.head.abandoned,
          .head_panel_share = s.head.panel_share(),
          .experts = s.experts};
}

void EngineGenerator::stop() {
  engine_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace moraine
