// InputMoments: what the inputs of a model's products are like on given text: how large, and how they go together.
//
// What weights of 6 and 4 bits are calibrated with: of each group (expert) of the watched matrices the sums of x x^T
// over its rows (kernels/error_feedback.h).
//
//   InputMoments moments(model.config(), {{source, 0, source.groups}});
//   moments.add({ctx, model}, documents);               // as often as there is text
//   moments.of(source, expert)                          // [k, k]
//
// Memory: 4 k^2 bytes of each watched group.
// Order:  rows in order, sums in f32 over those of a pass: the same bits for any number of threads, and whatever else
//         is watched.
// Cost:   beside the pass 2 k^2 flops for each row of a watched group; and each pass that reaches the group reads and
//         writes its moments once, which takes longer where it gives the group fewer than about 64 rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eval/observed_pass.h"
#include "model/forward_observer.h"
#include "model/pack_source.h"

namespace moraine {

constexpr int64_t kEnoughRows = 16;  // that reach an expert, for it to count as covered

// Groups [begin, end) of a matrix that is served (PackSource::served).
struct WatchedGroups {
  PackSource source;
  int64_t begin = 0, end = 0;

  bool has(const PackSource& of, int64_t group) const {
    return source.name == of.name && begin <= group && group < end;
  }
};

class InputMoments : public ForwardObserver {
 public:
  InputMoments(const ModelConfig& config, std::span<const WatchedGroups> watched);

  static int64_t group_bytes(const PackSource& source) { return 4 * source.k * source.k; }

  // Documents of at most the model's rows together. Errors: those of observed_pass.
  void add(const EvalModel& model, Documents documents);

  struct Moments {
    Tensor sums;       // [k, k] f32
    int64_t rows = 0;  // that they are of
  };
  // Of a watched group.
  Moments of(const PackSource& source, int64_t group) const;

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
    WatchedGroups watched;
    Tensor moments;             // [groups, k, k]
    std::vector<int64_t> rows;  // of each group
  };

  bool dense_;
  Context* ctx_ = nullptr;  // of the pass that is shown
  int64_t tokens_ = 0;
  std::vector<std::vector<int64_t>> expert_rows_;  // of each layer's experts
  Arena arena_;
  std::vector<Sums> sums_;
};

}  // namespace moraine
