// WindowBatch: one document of the batch for each window.
#include "eval/window_batch.h"

#include "base/check.h"
#include "base/error.h"

namespace moraine {
namespace {

double loss_at(const Tensor& losses, int64_t t) {
  return losses.dtype == DType::kF64 ? losses.as<double>()[t]
                                     : static_cast<double>(losses.as<float>()[t]);
}

}  // namespace

void check_ids(const Model& model, std::span<const int32_t> ids) {
  const int64_t V = model.config().vocab_size;
  for (const int32_t id : ids) {
    if (id < 0 || id >= V)
      throw_error(Code::kInvalidArgument, "score: token {} is not in the vocabulary of {}", id, V);
  }
}

bool WindowBatch::fits(int64_t rows_more) const {
  return rows() + rows_more <= model_.options().tokens;
}

void WindowBatch::add(const TokenWindow& window) {
  const int64_t n = static_cast<int64_t>(window.ids.size());
  MR_CHECK(n >= 2 && window.scored >= 1 && fits(n - 1), "n=%ld", long(n));
  MR_CHECK(window.is_target.empty() || window.is_target.size() == window.ids.size());
  check_ids(model_, window.ids);
  segment_begin_.push_back(rows());
  for (int64_t i = 0; i + 1 < n; ++i) {
    const size_t next = static_cast<size_t>(i + 1);
    const bool scored =
        i + 1 >= window.scored && (window.is_target.empty() || window.is_target[next] != 0);
    token_.push_back(window.ids[static_cast<size_t>(i)]);
    target_.push_back(scored ? window.ids[next] : -1);
    owner_.push_back(window.owner);
  }
}

void WindowBatch::run(const std::function<void(int64_t owner, double loss)>& take) {
  const int64_t T = rows();
  if (T == 0) return;
  position_.resize(token_.size());
  Batch batch{.token = make_tensor(token_.data(), DType::kI32, {T}),
              .position = make_tensor(position_.data(), DType::kI32, {T}),
              .segments = {}};
  set_documents(batch, segment_begin_);
  Tensor losses;
  model_.loss(ctx_, batch, make_tensor(target_.data(), DType::kI32, {T}), &losses);
  for (int64_t t = 0; t < T; ++t) {
    if (target_[static_cast<size_t>(t)] >= 0)
      take(owner_[static_cast<size_t>(t)], loss_at(losses, t));
  }
  for (std::vector<int32_t>* v : {&token_, &position_, &target_}) v->clear();
  owner_.clear();
  segment_begin_.clear();
}

}  // namespace moraine
