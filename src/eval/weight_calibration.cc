// WeightCalibration: groups are divided once, in order.
#include "eval/weight_calibration.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/error_feedback.h"

namespace moraine {
namespace {

using Part = std::vector<WatchedGroups>;

// As many at a time as fit, at least one; without sources one part, which counts rows.
std::vector<Part> divide(const std::vector<PackSource>& sources, int64_t bytes) {
  std::vector<Part> parts(1);
  int64_t left = bytes;
  for (const PackSource& source : sources) {
    const int64_t each = InputMoments::group_bytes(source);
    for (int64_t begin = 0, end; begin < source.groups; begin = end) {
      if (left < each && !parts.back().empty()) {
        parts.emplace_back();
        left = bytes;
      }
      end = std::min(source.groups, begin + std::max<int64_t>(1, left / each));
      parts.back().push_back({source, begin, end});
      left -= (end - begin) * each;
    }
  }
  return parts;
}

}  // namespace

WeightCalibration::WeightCalibration(const EvalModel& model, Options options)
    : model_(model),
      options_(std::move(options)),
      parts_(divide(options_.sources, options_.bytes)),
      scratch_(static_cast<size_t>(feedback_scratch_bytes())) {
  read(0);
}

void WeightCalibration::read(int64_t part) {
  moments_.reset();  // before the next ones take memory
  moments_ =
      std::make_unique<InputMoments>(model_.model.config(), parts_[static_cast<size_t>(part)]);
  part_ = part;
  int64_t total = 0;
  for (const std::vector<int32_t>& ids : options_.windows)
    total += std::max<int64_t>(0, static_cast<int64_t>(ids.size()) - 1);
  if (options_.progress) options_.progress(part, parts(), 0, total);
  for (auto& pass : divide_windows(options_.windows, model_.model.options().tokens)) {
    for (std::span<const int32_t>& ids : pass) ids = ids.first(ids.size() - 1);
    moments_->add(model_, pass);
    if (options_.progress) options_.progress(part, parts(), moments_->tokens(), total);
  }
}

Tensor WeightCalibration::factor(const PackSource& source, int64_t group) {
  const int64_t count = feedback_factor_count(source.k);
  const auto made = [&] { return make_tensor(factor_.data(), DType::kF32, {count}); };
  const std::pair<std::string, int64_t> asked = {source.name, group};
  if (made_ == asked) return made();
  const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& groups) {
    return std::any_of(groups.begin(), groups.end(),
                       [&](const WatchedGroups& w) { return w.has(source, group); });
  });
  MR_CHECK(part != parts_.end(), "%s is not to be calibrated", source.name.c_str());
  if (part - parts_.begin() != part_) read(part - parts_.begin());
  const InputMoments::Moments moments = moments_->of(source, group);
  if (!all_finite(model_.ctx, moments.sums)) {
    throw_error(Code::kCorrupt,
                "calibrate {}: its inputs are infinite or NaN on this text; look at the model with "
                "`moraine eval perplexity`, or pack without calibration",
                source.name);
  }
  factor_.resize(static_cast<size_t>(count));
  make_feedback_factor(model_.ctx,
                       {.factor = made(),
                        .moments = moments.sums,
                        .rows = moments.rows,
                        .scratch = make_tensor(scratch_.data(), DType::kU8,
                                               {static_cast<int64_t>(scratch_.size())})});
  made_ = asked;
  return made();
}

}  // namespace moraine
