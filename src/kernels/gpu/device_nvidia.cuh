// DeviceNvidia: the language of device.h for sm_80 and later, by nvcc or by clang without NVIDIA's headers.
//
// Registers, barriers and shuffles are written as PTX, so that both compilers need nothing but themselves.
#pragma once

#include <cstdint>

#include "kernels/gpu/chunk.h"

#define MR_GPU_SPACE nvidia

#ifndef __global__  // clang without headers
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#endif

#define MR_DEVICE __device__ __forceinline__
#ifndef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define MR_UNROLL _Pragma("unroll")
#define MR_ROLLED _Pragma("unroll 1")
#define MR_KERNEL(name, threads, ...) \
  extern "C" __global__ void __launch_bounds__(threads) name(const __VA_ARGS__)
#define MR_SHARED(T, name, count) __shared__ T name[count]

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kWave = 32;

struct Words4 {
  uint32_t v[4];
};

// The address of a chunk within shared memory, which is short.
struct SharedChunk {
  uint32_t at;
  MR_DEVICE explicit SharedChunk(uint32_t v) : at(v) {}
  MR_DEVICE SharedChunk(const Chunk* p) {
    uint64_t v;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(v) : "l"(p));
    at = static_cast<uint32_t>(v);
  }
  MR_DEVICE SharedChunk operator+(int by) const {
    return SharedChunk(at + static_cast<uint32_t>(by) * uint32_t{sizeof(Chunk)});
  }
};

template <class T>
struct SharedOf {
  using Type = T*;
};
template <>
struct SharedOf<Chunk> {
  using Type = SharedChunk;
};
template <class T>
using Shared = typename SharedOf<T>::Type;

template <class T>
MR_DEVICE T load(const T* p) {
  return *p;
}
template <class T>
MR_DEVICE void store(T* p, T v) {
  *p = v;
}

MR_DEVICE int thread() {
  int v;
  asm("mov.u32 %0, %%tid.x;" : "=r"(v));
  return v;
}
MR_DEVICE int64_t block_x() {
  int v;
  asm("mov.u32 %0, %%ctaid.x;" : "=r"(v));
  return v;
}
MR_DEVICE int64_t block_y() {
  int v;
  asm("mov.u32 %0, %%ctaid.y;" : "=r"(v));
  return v;
}

MR_DEVICE void sync_block() { asm volatile("bar.sync 0;" ::: "memory"); }
MR_DEVICE void sync_wave() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
MR_DEVICE float shuffle_xor(float v, int mask) {
  float got;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(got) : "f"(v), "r"(mask));
  return got;
}

MR_DEVICE BF16 load_cell(SharedChunk p, int i) {
  uint16_t bits;
  asm volatile("ld.shared.u16 %0, [%1];"
               : "=h"(bits)
               : "l"(uint64_t{p.at + 2 * static_cast<uint32_t>(i)}));
  return {bits};
}
MR_DEVICE void store(SharedChunk p, const Chunk& v) {
  const Words4 w = __builtin_bit_cast(Words4, v);
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(uint64_t{p.at}), "r"(w.v[0]),
               "r"(w.v[1]), "r"(w.v[2]), "r"(w.v[3])
               : "memory");
}
MR_DEVICE void copy_async(SharedChunk to, const BF16* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"l"(uint64_t{to.at}), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
MR_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLater>
MR_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

MR_DEVICE float fused(float x, float y, float z) {
  float v;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(v) : "f"(x), "f"(y), "f"(z));
  return v;
}
MR_DEVICE float root(float x) {
  float v;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(v) : "f"(x));
  return v;
}
MR_DEVICE double root(double x) {
  double v;
  asm("sqrt.rn.f64 %0, %1;" : "=d"(v) : "d"(x));
  return v;
}
MR_DEVICE int32_t dot4(int32_t a, int32_t b, int32_t sum) {
  int32_t v;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(sum));
  return v;
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
