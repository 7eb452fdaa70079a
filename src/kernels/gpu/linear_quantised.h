// LinearQuantised on a GPU: products with packs of integers of 8, 6 or 4 bits, k in blocks of 128 inputs.
//
//   a block of threads computes 64 rows by 64 outputs of one group. For each block of inputs its rows become integers
//   in shared memory, four threads to a row, beside the integers of its weights; a thread sums 4 rows by 4 outputs.
//
// Formulas, and the bytes of a pack: kernels/quantised.h. A pack is the file's, byte for byte, in the GPU's memory.
// Shapes, grid and arguments: linear.h.
// Types:    x f32 or bf16; y that or f32.
// Order:    the sum of a block is of integers, by dot4 and not by matrix units, hence exact; over blocks one fused
//           multiply-add each, ascending, from zero; then the bias. So the bits are those of the CPU (of every Isa that
//           has fma) on every target and by every rule, NaN's payload aside.
// Cost:     T n k dots of four; each x is made an integer n / 64 times. One shape of tile, not tuned: tiles of int8 on
//           matrix units would have the same bits.
#pragma once

#include <cstdint>

#include "kernels/gpu/linear.h"

namespace moraine::gpu {

constexpr int kQuantisedThreads = 256;
constexpr int kQuantisedInputs = 128,
              kQuantisedRun = 64;  // of a block of a pack, and what stands together
constexpr int kQuantisedColumns = 32;

}  // namespace moraine::gpu
