// WindowBatch: runs of tokens that are laid out as the rows of one forward pass, with the losses of what they score.
//
//   WindowBatch batch(ctx, model);
//   if (!batch.fits(rows)) batch.run(take);
//   batch.add({.ids = ids, .scored = n, .owner = 7});
//   batch.run(take);                              // take(7, -log p(ids[n] | ids[0..n))), then ids[n + 1], ...
//
// Order:   losses come in the order of the windows, of each in the order of its tokens. A row's bits depend on its
//          own window alone, so how windows are grouped into passes leaves no trace.
// Errors:  kInvalidArgument for ids outside the vocabulary; kDiverged for a loss that is NaN. A window of more rows
//          than the model has is a bug.
// Cost:    one forward pass of the rows together; on P ranks, of about a P-th of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "model/model.h"

namespace moraine {

// kInvalidArgument unless every id is in the vocabulary.
void check_ids(const Model& model, std::span<const int32_t> ids);

struct TokenWindow {
  std::span<const int32_t> ids;  // n tokens make n - 1 rows: the last is only scored
  int64_t scored = 1;            // tokens ids[scored..] are scored, scored >= 1
  // As long as ids: only tokens with a 1 are scored; empty: all.
  std::span<const uint8_t> is_target = {};
  int64_t owner = 0;  // handed to `take`
};

// What computes. On several ranks all do the same with the same windows: each computes some of them, and has
// the losses of all.
struct EvalModel {
  Context& ctx;
  Model& model;
  Communicator* ranks = nullptr;  // that share the windows (ModelRanks::rows); null: alone
};

class WindowBatch {
 public:
  explicit WindowBatch(const EvalModel& model);

  int64_t rows() const { return static_cast<int64_t>(token_.size()); }
  bool fits(int64_t rows_more) const;
  void add(const TokenWindow& window);  // ids.size() >= 2
  // Computes and forgets the windows; nothing happens if there are none.
  void run(const std::function<void(int64_t owner, double loss)>& take);

 private:
  // Rows [begin, end) of the batch, and its windows from `first` on.
  struct Part {
    int64_t begin, end;
    size_t first;
  };
  std::vector<double> losses_of(const Part& part);

  EvalModel model_;
  std::vector<Part> parts_;  // of each rank, so far
  std::vector<int32_t> token_, position_, target_;
  std::vector<int64_t> owner_;  // of each row
  std::vector<int64_t> segment_begin_;
};

}  // namespace moraine
