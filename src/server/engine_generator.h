// EngineGenerator: a loaded model, its engine, and the thread that runs it.
//
// Errors: what a step throws ends all requests (kError), is logged, and is told to `failed`.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "infer/engine.h"
#include "model/loaded_model.h"
#include "server/served_model.h"

namespace moraine {

class EngineGenerator final : public Generator {
 public:
  EngineGenerator(std::unique_ptr<LoadedModel> model, std::shared_ptr<const Tokenizer> tokenizer,
                  const EngineOptions& options, std::function<void()> failed,
                  std::shared_ptr<StepRanks> ranks = nullptr);  // of options.ranks
  ~EngineGenerator() override;
  int64_t submit(Request request, Listener listener) override;
  void cancel(int64_t id) override;
  GeneratorStats stats() const override;
  void stop() override;

 private:
  void run();

  const std::shared_ptr<StepRanks> ranks_;
  const std::unique_ptr<LoadedModel> model_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::function<void()> failed_;
  Engine engine_;
  std::thread thread_;
};

}  // namespace moraine
