// ObservedPass: the batch of some documents.
#include "eval/observed_pass.h"

#include <vector>

#include "base/check.h"

namespace moraine {
namespace {

// Looks on while it lives.
class Observation {
 public:
  Observation(Model& model, ForwardObserver& observer) : model_(model) { model.observe(&observer); }
  ~Observation() { model_.observe(nullptr); }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  Model& model_;
};

}  // namespace

Tensor observed_pass(const EvalModel& model, Documents documents, ForwardObserver& observer) {
  MR_CHECK(model.ranks == nullptr && !documents.empty());
  std::vector<int32_t> token;
  std::vector<int64_t> begins;
  for (const std::span<const int32_t> ids : documents) {
    MR_CHECK(!ids.empty());
    check_ids(model.model, ids);
    begins.push_back(static_cast<int64_t>(token.size()));
    token.insert(token.end(), ids.begin(), ids.end());
  }
  const int64_t T = static_cast<int64_t>(token.size());
  std::vector<int32_t> position(token.size());
  Batch batch{.token = make_tensor(token.data(), DType::kI32, {T}),
              .position = make_tensor(position.data(), DType::kI32, {T}),
              .segments = {}};
  set_documents(batch, begins);
  const Observation looking(model.model, observer);
  return model.model.forward(model.ctx, batch);
}

std::vector<std::vector<std::span<const int32_t>>> divide_windows(
    std::span<const std::vector<int32_t>> windows, int64_t rows) {
  std::vector<std::vector<std::span<const int32_t>>> passes;
  int64_t left = 0;
  for (const std::vector<int32_t>& ids : windows) {
    const int64_t own = static_cast<int64_t>(ids.size()) - 1;
    if (own < 1) continue;
    if (passes.empty() || own > left) {
      passes.emplace_back();
      left = rows;
    }
    passes.back().push_back(ids);
    left -= own;
  }
  return passes;
}

}  // namespace moraine
