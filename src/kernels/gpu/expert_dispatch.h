// ExpertDispatch on a GPU: the plan is a counting sort without atomics, the rest a thread for each channel.
//
//   load    a block of 64 threads counts the choices of its class
//   place   the same block adds up the loads of the classes before it; thread i takes the i-th piece of all choices,
//           so that its first match comes after the matches of the pieces before
//   the gradient of combine: a block of 256 threads takes a token, for its dots with the experts' rows
//
// Formulas, shapes and types: kernels/expert_dispatch.h; f32 and bf16.
// Order:    integers; combine adds choices ascending, a fused multiply-add each, and so do the gradients, which add to
//           dx once, or once for each skip. A dot: thread i adds channels i, i + 256, ... ascending; then block_sum.h.
//           The same bits in waves of 32 and 64, on every target. A token's bits depend on its own choices.
// Errors:   an expert outside [0, E] is the caller's bug, and is not looked for.
// Cost:     the plan reads all choices E + 1 times. Nothing of it is known to the host: `rows` and `load` stay there.
#pragma once

#include <cstdint>

namespace moraine {
struct CombineBackward;  // kernels/expert_dispatch.h
struct CombineForward;
struct DispatchBackward;
struct DispatchForward;
struct DispatchPlan;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

constexpr int kPlanThreads = 64;
constexpr int kCombineThreads = 256;

struct DispatchPlanArgs {
  int64_t* rows;          // [E+1] out
  int32_t* choice_of;     // [choices] out
  int32_t* row_of;        // [choices] out
  int64_t* load;          // [E+1] out
  const int32_t* expert;  // [choices]; E: skip
  int64_t choices, E;
};

struct DispatchArgs {
  void* xe;                  // [T*n, D] out; f32 or bf16
  const void* x;             // [T, D]; as xe
  const int32_t* choice_of;  // [T*n]
  int64_t choices, n, D;
};

struct CombineArgs {
  void* h;                // [T, D] out; f32 or bf16
  const void* ye;         // [T*n, D]; as h
  const float* gate;      // [T, n]
  const void* x;          // [T, D]; as h, or null: no identity
  const int32_t* row_of;  // [T, n]
  int64_t T, n, D;
};

struct DispatchBackwardArgs {
  float* dx;              // [T, D] added to
  const void* dxe;        // [T*n, D]; f32 or bf16
  const int32_t* row_of;  // [T, n]
  int64_t T, n, D;
};

struct CombineBackwardArgs {
  void* dye;              // [T*n, D] out; f32 or bf16
  float* dgate;           // [T, n] out
  float* dx;              // [T, D] added to, or null: no identity
  const void* dh;         // [T, D]; as dye
  const void* ye;         // [T*n, D]; as dye
  const float* gate;      // [T, n]
  const void* x;          // [T, D]; as dye, or null with dx
  const int32_t* row_of;  // [T, n]
  int64_t n, D;
};

// Tensors in the memory of `gpu`.
void dispatch_plan(Gpu& gpu, const DispatchPlan& a);
void dispatch_forward(Gpu& gpu, const DispatchForward& a);
void dispatch_backward(Gpu& gpu, const DispatchBackward& a);
void combine_forward(Gpu& gpu, const CombineForward& a);
void combine_backward(Gpu& gpu, const CombineBackward& a);

}  // namespace moraine::gpu
