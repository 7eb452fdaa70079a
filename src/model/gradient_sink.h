// GradientSink: where a backward pass puts the gradients of the weights.
#pragma once

#include <cstdint>
#include <functional>

#include "tensor/tensor.h"

namespace moraine {

struct GradientSink {
  Tensor sum;  // [gradient_count(table, senders)] (model/weights.h), added to
  // Called when a layer's matrices have all that this pass adds to them, from the last layer down:
  // they may leave while the layers below still run. The vectors, and the embedding, are complete
  // at the end of the pass. Empty: nobody waits.
  std::function<void(int64_t layer)> layer_done = {};
  // The last pass that adds to `sum`: what guests have summed leaves for its homes, where it is after
  // GuestExperts::wait_gradients (parallel/guest_experts.h).
  bool ends_slot = false;
};

}  // namespace moraine
