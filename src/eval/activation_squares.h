// ActivationSquares: how large the inputs of a model's products are, channel by channel, on given text.
//
// What 4-bit weights are calibrated with: an error in a weight counts as much as the mean square of the activation
// that it meets. For each group (expert) of a matrix by itself; one that few rows reach takes the mean of all.
//
//   ActivationSquares squares(model.config());
//   squares.add({ctx, model}, ids);                     // as often as there is text
//   squares.importance(layer, ServedMatrix::kGateUp)    // [groups, k]
//
// Order: sums in double, rows in order: the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/window_batch.h"
#include "model/forward_observer.h"

namespace moraine {

constexpr int64_t kEnoughRows = 16;  // that reach an expert, for it to be calibrated by itself

class ActivationSquares : public ForwardObserver {
 public:
  explicit ActivationSquares(const ModelConfig& config);

  // One document, at most the model's rows. Errors: kInvalidArgument for ids outside the vocabulary.
  void add(const EvalModel& model, std::span<const int32_t> ids);

  // Mean squares, [groups * k]; layer: -1 for the head. All 1 where nothing was seen.
  std::vector<float> importance(int64_t layer, ServedMatrix matrix) const;

  int64_t tokens() const { return tokens_; }
  // Experts with enough rows, of all experts of all layers; (0, 0): dense.
  struct Coverage {
    int64_t enough = 0, all = 0;
    int64_t fewest = 0;  // rows of any expert
  };
  Coverage coverage() const;

  void reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
             std::span<const int64_t> rows) override;
  void chooses(int64_t, const Tensor&) override {}

 private:
  // Of one matrix.
  struct Sums {
    int64_t k = 0;
    std::vector<int64_t> rows;    // of each group
    std::vector<double> squares;  // [groups, k]
  };
  Sums& of(int64_t layer, ServedMatrix matrix);
  const Sums& of(int64_t layer, ServedMatrix matrix) const;

  bool dense_;
  int64_t tokens_ = 0;
  std::vector<Sums> sums_;  // the head's, then those of each layer
};

}  // namespace moraine
