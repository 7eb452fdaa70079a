// WeightCalibration: sources are divided once, in order.
#include "eval/weight_calibration.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/error_feedback.h"

namespace moraine {
namespace {

// As many at a time as fit, at least one; one part without sources, which sees the head.
std::vector<std::vector<PackSource>> divide(const std::vector<PackSource>& sources, int64_t bytes) {
  std::vector<std::vector<PackSource>> parts(1);
  int64_t taken = 0;
  for (const PackSource& source : sources) {
    const int64_t more = InputMoments::bytes(source);
    if (!parts.back().empty() && taken + more > bytes) {
      parts.emplace_back();
      taken = 0;
    }
    parts.back().push_back(source);
    taken += more;
  }
  return parts;
}

// -1: not among them.
int64_t place_of(const std::vector<PackSource>& sources, const std::string& name) {
  const auto found = std::find_if(sources.begin(), sources.end(),
                                  [&](const PackSource& s) { return s.name == name; });
  return found == sources.end() ? -1 : found - sources.begin();
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
  int64_t total = 0, done = 0;
  for (const std::vector<int32_t>& ids : options_.windows)
    total += std::max<int64_t>(0, static_cast<int64_t>(ids.size()) - 1);
  for (const std::vector<int32_t>& ids : options_.windows) {
    if (ids.empty()) continue;
    moments_->add(model_, std::span<const int32_t>(ids).first(ids.size() - 1));
    done += static_cast<int64_t>(ids.size()) - 1;
    if (options_.progress) options_.progress(part, parts(), done, total);
  }
}

Tensor WeightCalibration::factor(const PackSource& source, int64_t group) {
  int64_t part = 0;
  while (part < parts() && place_of(parts_[static_cast<size_t>(part)], source.name) < 0) ++part;
  MR_CHECK(part < parts(), "%s is not to be calibrated", source.name.c_str());
  if (part != part_) read(part);
  const int64_t place = place_of(parts_[static_cast<size_t>(part)], source.name);
  const InputMoments::Moments moments = moments_->of(place, group);
  const int64_t count = feedback_factor_count(source.k);
  factor_.resize(static_cast<size_t>(count));
  const Tensor factor = make_tensor(factor_.data(), DType::kF32, {count});
  make_feedback_factor(model_.ctx,
                       {.factor = factor,
                        .moments = moments.sums,
                        .rows = moments.rows,
                        .scratch = make_tensor(scratch_.data(), DType::kU8,
                                               {static_cast<int64_t>(scratch_.size())})});
  return factor;
}

}  // namespace moraine
