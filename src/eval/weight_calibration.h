// WeightCalibration: what errors of a model's weights are fed back with (kernels/error_feedback.h), matrix by matrix.
//
//   WeightCalibration calibration({ctx, model}, {.windows = text, .sources = few_bits, .bytes = budget});
//   calibration.factor(source, expert)       // in the order of `sources`, each of its groups in turn
//
// The moments of all matrices together may have no room, so they are taken of as many groups as fit, the first ones
// when it is made, and of the next ones when the first of these is asked for: a pass over the text for each such part.
// No bit depends on how many there are.
//
// Memory:  options.bytes, or the moments of one group if these are more; and a factor.
// Cost:    of each part a forward pass of the text and the moments' products; then the factors'.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eval/input_moments.h"

namespace moraine {

class WeightCalibration {
 public:
  struct Options {
    // Each read as a document, but for its last token, as many at a time as the model has rows for; they outlive the
    // calibration.
    std::span<const std::vector<int32_t>> windows;
    std::vector<PackSource> sources;  // in the order in which they will be asked for
    int64_t bytes = 0;                // for moments
    // Of pass `part` of `parts`, counted from 0: tokens.
    std::function<void(int64_t part, int64_t parts, int64_t done, int64_t total)> progress = {};
  };
  // Errors: those of InputMoments.
  WeightCalibration(const EvalModel& model, Options options);

  // [feedback_factor_count(k)], valid until another one is asked for. `source`: one of those of the options.
  // Errors: kCorrupt for inputs that are infinite or NaN.
  Tensor factor(const PackSource& source, int64_t group);

  InputMoments::Coverage coverage() const { return moments_->coverage(); }
  int64_t tokens() const { return moments_->tokens(); }
  int64_t parts() const { return static_cast<int64_t>(parts_.size()); }

 private:
  void read(int64_t part);

  EvalModel model_;
  Options options_;
  std::vector<std::vector<WatchedGroups>> parts_;
  int64_t part_ = -1;  // that moments_ are of
  std::unique_ptr<InputMoments> moments_;
  std::pair<std::string, int64_t> made_;  // whose factor_ it is
  std::vector<float> factor_;
  std::vector<uint8_t> scratch_;
};

}  // namespace moraine
