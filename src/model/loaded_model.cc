// Opens a model directory and takes everything it needs from one arena.
#include "model/loaded_model.h"

#include "base/error.h"
#include "model/model_directory.h"

namespace moraine {

std::unique_ptr<LoadedModel> LoadedModel::open(const ModelDirectory& directory,
                                               const LoadOptions& options) {
  const ModelConfig& config = directory.config();
  if (!options.dtype.empty() && options.dtype != "f32" && options.dtype != "bf16") {
    throw_error(Code::kInvalidArgument, "dtype {}: wanted f32 or bf16", options.dtype);
  }
  const int64_t positions = options.positions > 0 ? options.positions : config.max_positions;
  if (positions > config.max_positions) {
    throw_error(Code::kInvalidArgument, "{} positions: the model was made for {} (max_positions)",
                positions, config.max_positions);
  }
  std::unique_ptr<LoadedModel> m(
      new LoadedModel(options.threads > 0 ? static_cast<int>(options.threads) : usable_cores()));
  const ParameterTable table = build_parameters(config);
  const Tensor master =
      m->arena_.take("weights.master", "weights", DType::kF32, {table.total_count});
  directory.read_weights(master);
  const DType compute = options.dtype.empty()     ? directory.compute_dtype()
                        : options.dtype == "bf16" ? DType::kBF16
                                                  : DType::kF32;
  m->ctx_ = make_context(Backend::kCpu, m->pool_, m->arena_);
  m->model_ = std::make_unique<Model>(
      m->arena_, config,
      ModelOptions{.compute = compute, .tokens = options.tokens, .positions = positions}, master);
  m->model_->refresh(m->ctx_);
  if (options.cache.pages > 0) m->cache_ = make_cache(m->arena_, config, compute, options.cache);
  m->arena_.seal();
  return m;
}

}  // namespace moraine
