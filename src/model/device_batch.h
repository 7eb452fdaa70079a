// DeviceBatch: the ids of a batch where the model computes: on a GPU, a copy; else the batch itself.
//
// This is where ids and positions are checked for a GPU, whose kernels do not: it is the last the host sees of them.
#pragma once

#include "kernels/context.h"
#include "model/batch.h"
#include "tensor/arena.h"

namespace moraine {

class DeviceBatch {
 public:
  struct Limits {
    int64_t vocabulary, positions;
  };

  DeviceBatch() = default;
  DeviceBatch(Arena& arena, int64_t tokens, const Limits& limits);

  // Valid until the next call. An id or a position outside its limit is the caller's bug.
  Batch put(Context& ctx, const Batch& batch) const;
  Tensor put_target(Context& ctx, const Tensor& target) const;

 private:
  Limits limits_ = {};
  Tensor token_, position_, target_;  // [tokens] i32; empty: not on a device
};

}  // namespace moraine
