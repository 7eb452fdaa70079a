// ObservedPass: documents through a model, with somebody who looks on (model/forward_observer.h).
//
// Several at once read the weights once: of a model that is larger than memory, that is what takes the time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "eval/window_batch.h"
#include "model/forward_observer.h"

namespace moraine {

using Documents = std::span<const std::span<const int32_t>>;

// Final hidden rows [n, D] of the documents' n tokens, one document after another, valid until the model's next pass.
// Each has a token at least. No ranks.
// Errors: kInvalidArgument for ids outside the vocabulary. More than the model's rows is a bug.
Tensor observed_pass(const EvalModel& model, Documents documents, ForwardObserver& observer);
inline Tensor observed_pass(const EvalModel& model, std::span<const int32_t> ids,
                            ForwardObserver& observer) {
  return observed_pass(model, Documents(&ids, 1), observer);
}

constexpr int64_t kObservedRows = 4096;  // of a pass, where a model is opened to be looked at

// Rows for whole windows of `window` rows: at most `rows`, or one window.
constexpr int64_t whole_windows(int64_t rows, int64_t window) {
  return std::max<int64_t>(1, rows / window) * window;
}

// Windows whose last token is only predicted, in order, in passes of at most `rows` rows together; at least one window
// in each. Those of fewer than two tokens are left out.
std::vector<std::vector<std::span<const int32_t>>> divide_windows(
    std::span<const std::vector<int32_t>> windows, int64_t rows);

}  // namespace moraine
