// InputMoments: what the inputs of a model's products are like on given text: how large, and how they go together.
//
// What weights of 6 and 4 bits are calibrated with. Of each group (expert) of a watched matrix the sums of x x^T over
// its rows (kernels/error_feedback.h); of the head, which is an embedding as well, the mean squares alone. A group that
// fewer than kEnoughRows reach takes those of all groups.
//
//   InputMoments moments(model.config(), sources);      // some of pack_sources(...)
//   moments.add({ctx, model}, ids);                     // as often as there is text
//   moments.of(0, expert)                               // of sources[0]: [k, k]
//
// Memory: 4 groups k^2 bytes of each source, and as much as one group of the largest.
// Order:  rows in order: the same bits for any number of threads, and whatever else is watched.
// Cost:   2 T k^2 flops beside those of the pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "eval/window_batch.h"
#include "model/forward_observer.h"
#include "model/pack_source.h"

namespace moraine {

constexpr int64_t kEnoughRows = 16;  // that reach an expert, for it to be calibrated by itself

class InputMoments : public ForwardObserver {
 public:
  // Sources that are served (PackSource::served), of layers: not the head.
  InputMoments(const ModelConfig& config, std::span<const PackSource> sources);
  ~InputMoments() override;

  static int64_t bytes(const PackSource& source);

  // One document, at most the model's rows. Errors: kInvalidArgument for ids outside the vocabulary.
  void add(const EvalModel& model, std::span<const int32_t> ids);

  struct Moments {
    Tensor sums;       // [k, k] f32
    int64_t rows = 0;  // that they are of
  };
  // Valid until the next call.
  Moments of(int64_t source, int64_t group);

  std::vector<float> head_squares() const;  // means, [D]; all 1 where nothing was seen
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
  struct Sums {
    PackSource source;
    Tensor moments;             // [groups, k, k]
    std::vector<int64_t> rows;  // of each group
  };
  void add_head(const Tensor& x, int64_t rows);

  bool dense_;
  Context* ctx_ = nullptr;  // of the pass that is shown
  int64_t tokens_ = 0;
  std::vector<double> head_;                       // sums of squares
  std::vector<std::vector<int64_t>> expert_rows_;  // of each layer's experts
  std::unique_ptr<Arena> arena_;
  std::vector<Sums> sums_;
  std::vector<float> pooled_;  // of all groups
};

}  // namespace moraine
