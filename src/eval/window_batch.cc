// WindowBatch: one document of the batch for each window.
#include "eval/window_batch.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "comm/collectives.h"

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

WindowBatch::WindowBatch(const EvalModel& model) : model_(model), parts_{{0, 0, 0}} {}

// A rank's windows are filled up before the next one's.
bool WindowBatch::fits(int64_t rows_more) const {
  const int64_t most = model_.model.options().tokens;
  const size_t ranks = model_.ranks == nullptr ? 1 : static_cast<size_t>(model_.ranks->size());
  const Part& last = parts_.back();
  return last.end - last.begin + rows_more <= most || (parts_.size() < ranks && rows_more <= most);
}

void WindowBatch::add(const TokenWindow& window) {
  const int64_t n = static_cast<int64_t>(window.ids.size());
  MR_CHECK(n >= 2 && window.scored >= 1 && fits(n - 1), "n=%ld", long(n));
  MR_CHECK(window.is_target.empty() || window.is_target.size() == window.ids.size());
  check_ids(model_.model, window.ids);
  if (rows() - parts_.back().begin + n - 1 > model_.model.options().tokens)
    parts_.push_back({rows(), rows(), segment_begin_.size()});
  segment_begin_.push_back(rows());
  for (int64_t i = 0; i + 1 < n; ++i) {
    const size_t next = static_cast<size_t>(i + 1);
    const bool scored =
        i + 1 >= window.scored && (window.is_target.empty() || window.is_target[next] != 0);
    token_.push_back(window.ids[static_cast<size_t>(i)]);
    target_.push_back(scored ? window.ids[next] : -1);
    owner_.push_back(window.owner);
  }
  parts_.back().end = rows();
}

std::vector<double> WindowBatch::losses_of(const Part& part) {
  // A rank without a window takes part with a row that nobody asked for.
  const bool idle = part.begin == part.end;
  const int64_t T = idle ? 1 : part.end - part.begin;
  int32_t nothing = 0, no_target = -1;
  std::vector<int64_t> begins = {0};
  for (size_t i = part.first + 1; i < segment_begin_.size() && segment_begin_[i] < part.end; ++i)
    begins.push_back(segment_begin_[i] - part.begin);
  position_.resize(static_cast<size_t>(T));
  const auto rows = [&](std::vector<int32_t>& of, int32_t* one) {
    return make_tensor(idle ? one : of.data() + part.begin, DType::kI32, {T});
  };
  Batch batch{.token = rows(token_, &nothing),
              .position = make_tensor(position_.data(), DType::kI32, {T}),
              .segments = {}};
  set_documents(batch, begins);
  Tensor losses;
  model_.model.loss(model_.ctx, batch, rows(target_, &no_target), &losses);
  std::vector<double> result;
  for (int64_t t = 0; t < part.end - part.begin; ++t) result.push_back(loss_at(losses, t));
  return result;
}

void WindowBatch::run(const std::function<void(int64_t owner, double loss)>& take) {
  if (rows() == 0) return;
  std::vector<double> losses;
  if (model_.ranks == nullptr) {
    losses = losses_of(parts_.front());
  } else {
    Communicator& ranks = *model_.ranks;
    parts_.resize(static_cast<size_t>(ranks.size()), {rows(), rows(), segment_begin_.size()});
    const Part& mine = parts_[static_cast<size_t>(ranks.rank())];
    const std::vector<double> of_mine = losses_of(mine);
    losses.resize(token_.size());
    std::copy(of_mine.begin(), of_mine.end(), losses.begin() + mine.begin);
    Shares shares;
    for (const Part& part : parts_) shares.push_back({{part.begin, part.end}});
    all_gather(ranks, make_tensor(losses.data(), DType::kF64, {rows()}), shares);
  }
  for (size_t t = 0; t < losses.size(); ++t) {
    if (target_[t] < 0) continue;
    if (std::isnan(losses[t]))
      throw_error(Code::kDiverged,
                  "score: the model's prediction of token {} is not a number: it has diverged, or "
                  "its weights are damaged; take another checkpoint",
                  target_[t]);
    take(owner_[t], losses[t]);
  }
  for (std::vector<int32_t>* v : {&token_, &position_, &target_}) v->clear();
  owner_.clear();
  segment_begin_.clear();
  parts_ = {{0, 0, 0}};
}

}  // namespace moraine
