// Device: the language of the kernels in kernels/gpu: one source for AMD, for NVIDIA and for a CPU that plays either.
//
//   A launch is a grid of blocks, blocks_x by blocks_y. A block is threads that share memory and meet at barriers.
//   kWave threads that follow each other are a wave, 64 on AMD's CDNA, 32 on NVIDIA; its lanes meet too, hand
//   registers to each other, and multiply tiles together (tile.h). Blocks know nothing of each other.
//
//   MR_KERNEL(name, threads, Args a) { }   an entry: a block has `threads` threads; Args: plain numbers and pointers
//   MR_DEVICE                              before a function that kernels call
//   MR_SHARED(T, name, count);             name: memory of the block, Shared<T>; holds rubbish until it is written
//   MR_UNROLL, MR_ROLLED                   before a loop over an array of registers, so that none of it lies in memory;
//                                          before one that is rare and shall take no registers
//   thread(), block_x(), block_y()         which one this is; lane() = thread() % kWave
//   sync_block()                           all threads of the block come to this line, and see what was written before
//   sync_wave()                            the same among the lanes of a wave
//   shuffle_xor(v, mask)                   v of lane() ^ mask, 0 < mask < 32; all lanes of the wave come to this line
//   load(p), store(p, v)                   *p, of global or of shared memory; p + i is the i-th from p
//   copy_async(to, from, inside)           a chunk, 16 bytes of global memory, on its way to shared memory; zeros
//                                          if not inside: `from` is not read then, and may be anywhere. Until it is
//                                          waited for, what is there is rubbish
//   commit_copies(), wait_copies<n>()      what this thread has asked for since its last commit is a group; wait
//                                          until all its groups but the last n are there: other threads see them
//                                          behind sync_block()
//   load_cell(p, i)                        element i of a chunk in shared memory
//   widen(BF16), narrow(float)             bf16 to f32, and back to nearest even; NaN stays NaN
//   fused(x, y, z)                         x y + z, rounded once
//   root(x)                                square root of f32 or f64, rounded to nearest
//   dot4(a, b, sum)                        sum + the four products of signed bytes of words a and b, modulo 2^32
//
// Rules:    a barrier stands where all threads come: not in a branch that some do not take, not after an early return.
//           Shared memory is touched by load and store only. No atomics: sums have an order.
// Numbers:  + - * / root and fused are IEEE, subnormals included, on every target as it is compiled here, and nothing
//           is contracted (docs/gpu.md): a kernel without tiles gives the same bits everywhere.
// Tests:    MR_GPU_WAVE, 32 or 64, says which machine a compilation for the CPU plays; emulate.h what it watches.
#pragma once

#include <cstdint>

#include "kernels/gpu/chunk.h"
#include "tensor/dtype.h"

#if defined(__HIP__)
#include "kernels/gpu/device_amd.cuh"
#elif defined(__CUDA__) || defined(__CUDACC__)
#include "kernels/gpu/device_nvidia.cuh"
#else
#include "kernels/gpu/device_emulated.h"
#endif

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// A quotient of a number that is not negative by a power of two is a shift; compilers do not know that of thread().
MR_DEVICE int lane() { return static_cast<int>(static_cast<unsigned>(thread()) % kWave); }
MR_DEVICE int wave() { return static_cast<int>(static_cast<unsigned>(thread()) / kWave); }

MR_DEVICE uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
MR_DEVICE float from_bits(uint32_t v) { return __builtin_bit_cast(float, v); }

MR_DEVICE float widen(BF16 v) { return from_bits(uint32_t{v.bits} << 16); }
MR_DEVICE float widen(float v) { return v; }

MR_DEVICE BF16 narrow(float v) {
  const uint32_t bits = bits_of(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

// Whether every line of a matrix with lines of `width` begins where a Unit may.
template <class Unit, class E>
MR_DEVICE bool lines_are_aligned(const E* data, int64_t width) {
  return (reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(width) * sizeof(E)) %
             sizeof(Unit) ==
         0;
}

// To the type of an output.
template <class E>
MR_DEVICE E narrow_to(float v);
template <>
MR_DEVICE float narrow_to<float>(float v) {
  return v;
}
template <>
MR_DEVICE BF16 narrow_to<BF16>(float v) {
  return narrow(v);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
