// DeviceEmulated: the language of device.h on a CPU, each word handed to the emulator with the line it stands in.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/gpu/chunk.h"
#include "kernels/gpu/emulate.h"

#ifndef MR_GPU_WAVE
#define MR_GPU_WAVE 32
#endif
// One name for what both compilations of a kernel would define.
#if MR_GPU_WAVE == 32
#define MR_GPU_SPACE wave32
#else
#define MR_GPU_SPACE wave64
#endif

#define MR_DEVICE inline
#define MR_UNROLL
#define MR_ROLLED
#define MR_KERNEL(name, threads, ...) inline void name(__VA_ARGS__)
#define MR_SHARED(T, name, count) \
  const Shared<T> name { declare_shared(#name, count, sizeof(T), SourceLine::here()), 0 }

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

constexpr int kWave = MR_GPU_WAVE;

// A checked pointer into an array of the block.
template <class T>
struct Shared {
  SharedArray* array;
  int64_t index;
  Shared operator+(int64_t by) const { return {array, index + by}; }
};

template <class T>
T load(Shared<T> p, const SourceLine& at = SourceLine::here()) {
  return *static_cast<T*>(read_shared(p.array, p.index, at));
}
template <class T>
void store(Shared<T> p, T v, const SourceLine& at = SourceLine::here()) {
  *static_cast<T*>(write_shared(p.array, p.index, at)) = v;
}
template <class T>
T load(const T* p) {
  return *p;
}
template <class T>
void store(T* p, T v) {
  *p = v;
}

inline int thread() { return emulated_thread().thread; }
inline int64_t block_x() { return emulated_thread().block_x; }
inline int64_t block_y() { return emulated_thread().block_y; }

inline void sync_block(const SourceLine& at = SourceLine::here()) { meet_block(at); }
inline void sync_wave(const SourceLine& at = SourceLine::here()) {
  meet_wave(nullptr, nullptr, at);
}

struct ShuffleLane {
  float v;
  int mask;
  float got;
};
inline void shuffle_lanes(void** lanes, int count) {
  for (int i = 0; i < count; ++i) {
    ShuffleLane& mine = *static_cast<ShuffleLane*>(lanes[i]);
    mine.got = static_cast<ShuffleLane*>(lanes[i ^ mine.mask])->v;
  }
}
inline float shuffle_xor(float v, int mask, const SourceLine& at = SourceLine::here()) {
  ShuffleLane mine = {v, mask, 0};
  meet_wave(&shuffle_lanes, &mine, at);
  return mine.got;
}

inline BF16 load_cell(Shared<Chunk> p, int i, const SourceLine& at = SourceLine::here()) {
  return static_cast<const Chunk*>(read_shared(p.array, p.index, at))->v[i];
}
inline void copy_async(Shared<Chunk> to, const BF16* from, bool inside,
                       const SourceLine& at = SourceLine::here()) {
  copy_shared_later(to.array, to.index, inside ? from : nullptr, at);
}
inline void commit_copies() { commit_shared_copies(); }
template <int kLater>
void wait_copies() {
  wait_shared_copies(kLater);
}

inline float fused(float x, float y, float z) { return std::fma(x, y, z); }
inline float root(float x) { return std::sqrt(x); }
inline double root(double x) { return std::sqrt(x); }
inline int32_t dot4(int32_t a, int32_t b, int32_t sum) {
  auto total = static_cast<uint32_t>(sum);
  for (int byte = 0; byte < 4; ++byte) {
    const auto left = static_cast<int8_t>(a >> 8 * byte),
               right = static_cast<int8_t>(b >> 8 * byte);
    total += static_cast<uint32_t>(left * right);
  }
  return static_cast<int32_t>(total);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu

// An entry of a table of kernels: {"name", how to call it}.
#define MR_EMULATED(name, Args)                                      \
  {                                                                  \
#name, [](const void* a) { name(*static_cast<const Args*>(a)); } \
  }
