// ObservedPass: one document through a model, with somebody who looks on (model/forward_observer.h).
#pragma once

#include <cstdint>
#include <span>

#include "eval/window_batch.h"
#include "model/forward_observer.h"

namespace moraine {

// Final hidden rows [n, D] of n >= 1 tokens, valid until the model's next pass. No ranks.
// Errors: kInvalidArgument for ids outside the vocabulary. More than the model's rows is a bug.
Tensor observed_pass(const EvalModel& model, std::span<const int32_t> ids,
                     ForwardObserver& observer);

}  // namespace moraine
