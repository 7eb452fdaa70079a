// Squares: sums of squares of ranges on a GPU, in double: a block takes a range.
//
//   sums[j] = sum of x[i]^2, i in ranges[j]
//
// Where no x is infinite or NaN no sum is, as squares are below 2^256, and the other way round: so all_finite.
//
// Types:    x f32 or bf16; squares, exact, and their sums f64.
// Order:    thread t of 256 adds elements t, t + 256, ... of the range ascending, then the 256 sums as a binary tree: a
//           function of the range's length; the same bits on every target.
// Cost:     memory-bound: each element once.
#pragma once

#include <cstdint>

namespace moraine {
struct SquaresOfRanges;  // kernels/elementwise.h
struct Tensor;           // tensor/tensor.h
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

constexpr int kSquaresThreads = 256;

struct SquaresArgs {
  double* sums;   // [n] out
  const void* x;  // f32 or bf16
  const int64_t*
      ranges;  // [n, 2]: begin, end; or null: [j * length, (j + 1) * length), the last one cut at `count`
  int64_t length, count;
};

// `x` in the memory of `gpu`; ranges in the host's, a list of the GPU's; sums in the host's, copied out:
// it waits.
void squares_of_ranges(Gpu& gpu, const SquaresOfRanges& a);
bool all_finite(Gpu& gpu, const Tensor& x);  // waits as well

}  // namespace moraine::gpu
