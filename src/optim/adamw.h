// AdamW: Adam with decoupled weight decay on ranges of flat buffers.
//
//   m = beta1 m + (1 - beta1) g ;  v = beta2 v + (1 - beta2) g^2
//   w = w (1 - lr wd) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//
// Shapes: ranges of [N] buffers; m and v are compact, addressed by state_offset.
// Types:  f32.
// Order:  element by element: the same bits for any split of a range over tasks, threads or ranks.
// Cost:   7 passes of 4 bytes over the elements.
// Source: Kingma and Ba 2015; Loshchilov and Hutter 2019.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct AdamWOptions {
  double lr = 2e-3;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

struct AdamWRange {
  int64_t offset = 0;        // first element in weights and gradients
  int64_t state_offset = 0;  // first element in m and v
  int64_t count = 0;
  double lr_scale = 1;
  bool weight_decay = false;
};

struct AdamWSeen;  // flat_math.h
struct AdamWSums;

struct AdamWStep {
  Tensor weights;                      // [N] in and out
  Tensor m;                            // [S] in and out
  Tensor v;                            // [S] in and out
  Tensor gradients;                    // [N] in
  std::span<const AdamWRange> ranges;  // those to move: all, or a rank's slices
  double gradient_scale;
  double lr;     // of this step, schedule included; lr_scale of the range comes on top
  int64_t step;  // 1 for the first
  const AdamWOptions& options;
  // If asked for: sums of weights, m and v as the step found them and left them. Not on a device.
  AdamWSeen* seen = nullptr;
};

void adamw_step(Context& ctx, const AdamWStep& a);

struct AdamWMemory {
  Tensor weights;                      // [N]
  Tensor m;                            // [S]
  Tensor v;                            // [S]
  std::span<const AdamWRange> ranges;  // all, or a rank's slices
};
// The sums of what is there now, each element at the position that it has in the ranges laid end to end. Cost: 3 passes
// of 4 bytes over the elements.
AdamWSums adamw_sums(Context& ctx, const AdamWMemory& a);

struct AdamWBlock;  // flat_math.h
// Elements [begin, begin + n) of a range, as the loops take them: pointers, and this step's factors.
AdamWBlock adamw_block_of(const AdamWStep& a, const AdamWRange& range, int64_t begin, int64_t n);
// Stops at a bug of the caller: types, shapes, ranges outside the buffers.
void check_adamw(const AdamWStep& a);

}  // namespace moraine
