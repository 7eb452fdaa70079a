// Register-only multiply-adds and long memory streams, by Highway vectors of the current target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/peak_f32.cc"
#include "hwy/foreach_target.h"

#include <hwy/cache_control.h>

#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/peak_loops.h"
#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace moraine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int kReadStreams = 8;  // one alone does not get all that memory can give
constexpr int kChains = 12;  // hide 4 to 6 cycles of latency at 2 per cycle, within 16 registers

// The compiler must neither drop nor merge the chains: it may not know where a value comes from,
// nor that nobody looks at the result.
HWY_INLINE V unknown(float value) {
  volatile float memory = value;
  return hn::Set(D(), memory);
}

HWY_INLINE void look_at(V value) {
  volatile float memory = hn::GetLane(value);
  (void)memory;
}

void run_f32(int64_t iterations) {
  const V a = unknown(0.5f), b = unknown(1.0f);
  V c0 = unknown(0), c1 = unknown(1), c2 = unknown(2), c3 = unknown(3), c4 = unknown(4),
    c5 = unknown(5);
  V c6 = unknown(6), c7 = unknown(7), c8 = unknown(8), c9 = unknown(9), c10 = unknown(10),
    c11 = unknown(11);
  for (int64_t i = 0; i < iterations; ++i) {
    c0 = hn::MulAdd(c0, a, b);
    c1 = hn::MulAdd(c1, a, b);
    c2 = hn::MulAdd(c2, a, b);
    c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b);
    c5 = hn::MulAdd(c5, a, b);
    c6 = hn::MulAdd(c6, a, b);
    c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b);
    c9 = hn::MulAdd(c9, a, b);
    c10 = hn::MulAdd(c10, a, b);
    c11 = hn::MulAdd(c11, a, b);
  }
  const V sum0 = hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)),
          sum1 = hn::Add(hn::Add(c4, c5), hn::Add(c6, c7));
  look_at(hn::Add(hn::Add(sum0, sum1), hn::Add(hn::Add(c8, c9), hn::Add(c10, c11))));
}

PeakLoop f32_loop() { return {run_f32, 2.0 * kChains * static_cast<double>(hn::Lanes(D()))}; }

void stream(StreamKind kind, uint8_t* to_bytes, const uint8_t* from_bytes, int64_t bytes) {
  const D d;
  const float* from = reinterpret_cast<const float*>(from_bytes);
  float* to = reinterpret_cast<float*>(to_bytes);
  const int64_t n = bytes / 4, lanes = static_cast<int64_t>(hn::Lanes(d));
  if (kind == StreamKind::kRead) {
    const int64_t part = n / kReadStreams;
    V sums[kReadStreams];
    for (V& sum : sums) sum = hn::Zero(d);
    for (int64_t i = 0; i < part; i += lanes) {
      for (int s = 0; s < kReadStreams; ++s)
        sums[s] = hn::Add(sums[s], hn::Load(d, from + s * part + i));
    }
    for (int s = 1; s < kReadStreams; ++s) sums[0] = hn::Add(sums[0], sums[s]);
    look_at(sums[0]);
    return;
  }
  const bool non_temporal = kind == StreamKind::kCopyNonTemporal;
  for (int64_t i = 0; i < n; i += 2 * lanes) {
    const V v0 = hn::Load(d, from + i), v1 = hn::Load(d, from + i + lanes);
    if (non_temporal) {
      hn::Stream(v0, d, to + i);
      hn::Stream(v1, d, to + i + lanes);
    } else {
      hn::Store(v0, d, to + i);
      hn::Store(v1, d, to + i + lanes);
    }
  }
  if (non_temporal) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {
HWY_EXPORT(f32_loop);
HWY_EXPORT(stream);

PeakLoop f32_peak_loop() { return HWY_DYNAMIC_DISPATCH(f32_loop)(); }

void run_stream(StreamKind kind, uint8_t* to, const uint8_t* from, int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(stream)(kind, to, from, bytes);
}

PeakLoop peak_loop(PeakKind kind) {
  isa();  // the first call applies MORAINE_ISA to Highway
  if (kind == PeakKind::kF32) return f32_peak_loop();
  // Capped machines keep to what their kernels use.
  if (kind == PeakKind::kBf16 && isa() == Isa::kAmx) return amx_bf16_loop();
  if (kind == PeakKind::kBf16) return isa() == Isa::kAvx512Bf16 ? bf16_peak_loop() : PeakLoop();
  if (isa() == Isa::kAmx && amx_has_int8()) return amx_int8_loop();
  return isa() >= Isa::kAvx512 ? int8_peak_loop() : PeakLoop();
}
}  // namespace moraine::cpu
#endif  // HWY_ONCE
