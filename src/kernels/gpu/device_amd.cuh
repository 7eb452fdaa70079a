// DeviceAmd: the language of device.h for CDNA2 (gfx90a) and CDNA3 (gfx942), by clang without ROCm.
#pragma once

#include <cstdint>

#include "kernels/gpu/chunk.h"

#define MR_GPU_SPACE amd

#define MR_DEVICE inline __attribute__((device)) __attribute__((always_inline))
#define MR_UNROLL _Pragma("unroll")
#define MR_ROLLED _Pragma("unroll 1")
#define MR_KERNEL(name, threads, ...)                                 \
  extern "C" __attribute__((global))                                  \
  __attribute__((amdgpu_flat_work_group_size(threads, threads))) void \
  name(const __VA_ARGS__)
#define MR_SHARED(T, name, count) __attribute__((shared)) T name[count]

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kWave = 64;

template <class T>
using Shared = T*;

template <class T>
MR_DEVICE T load(const T* p) {
  return *p;
}
template <class T>
MR_DEVICE void store(T* p, T v) {
  *p = v;
}

MR_DEVICE int thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
MR_DEVICE int64_t block_x() { return __builtin_amdgcn_workgroup_id_x(); }
MR_DEVICE int64_t block_y() { return __builtin_amdgcn_workgroup_id_y(); }

MR_DEVICE void sync_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Lanes go in step; the compiler must not move memory across, and what is under way must arrive.
MR_DEVICE void sync_wave() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
MR_DEVICE float shuffle_xor(float v, int mask) {
  const int from = (thread() % kWave) ^ mask;
  return __builtin_bit_cast(float,
                            __builtin_amdgcn_ds_bpermute(4 * from, __builtin_bit_cast(int, v)));
}

// A chunk goes through registers, and is there when it was asked for.
MR_DEVICE BF16 load_cell(const Chunk* p, int i) { return p->v[i]; }
MR_DEVICE void copy_async(Chunk* to, const BF16* from, bool inside) {
  *to = inside ? *reinterpret_cast<const Chunk*>(from) : Chunk{};
}
MR_DEVICE void commit_copies() {}
template <int kLater>
MR_DEVICE void wait_copies() {}

MR_DEVICE float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
MR_DEVICE float root(float x) { return __builtin_sqrtf(x); }
MR_DEVICE double root(double x) { return __builtin_sqrt(x); }
MR_DEVICE int32_t dot4(int32_t a, int32_t b, int32_t sum) {
  return __builtin_amdgcn_sdot4(a, b, sum, false);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
