// ObservedPass: the batch of one document.
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

Tensor observed_pass(const EvalModel& model, std::span<const int32_t> ids,
                     ForwardObserver& observer) {
  MR_CHECK(model.ranks == nullptr && !ids.empty());
  check_ids(model.model, ids);
  const int64_t T = static_cast<int64_t>(ids.size());
  std::vector<int32_t> token(ids.begin(), ids.end()), position(ids.size());
  Batch batch{.token = make_tensor(token.data(), DType::kI32, {T}),
              .position = make_tensor(position.data(), DType::kI32, {T}),
              .segments = {}};
  set_documents(batch, {0});
  const Observation looking(model.model, observer);
  return model.model.forward(model.ctx, batch);
}

}  // namespace moraine
