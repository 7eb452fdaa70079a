// Elementwise: a task takes one block of a flat buffer.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/elementwise.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

// The exported functions work on elements [begin, end).

template <class E>
void add_elements(float* y, const E* x, int64_t n) {
  const DF df;
  for_lanes(n, [&](int64_t i, auto part) MR_LANES {
    put(hn::Add(get(df, y + i, part), get(df, x + i, part)), df, y + i, part);
  });
}

void add_range(const Tensor& y, const Tensor& x, int64_t begin, int64_t end) {
  float* to = y.as<float>() + begin;
  x.dtype == DType::kBF16 ? add_elements(to, x.as<BF16>() + begin, end - begin)
                          : add_elements(to, x.as<float>() + begin, end - begin);
}

template <class E>
void scale_elements(E* y, int64_t n, float factor) {
  const DF df;
  const VF f = hn::Set(df, factor);
  for_lanes(n, [&](int64_t i, auto part)
                   MR_LANES { put(hn::Mul(get(df, y + i, part), f), df, y + i, part); });
}

void scale_range(const Tensor& y, int64_t begin, int64_t end, float factor) {
  y.dtype == DType::kBF16 ? scale_elements(y.as<BF16>() + begin, end - begin, factor)
                          : scale_elements(y.as<float>() + begin, end - begin, factor);
}

// The nearest bf16 value, as a float.
HWY_INLINE VF to_bf16_value(DF df, VF v) { return hn::BitCast(df, upper_bf16(df, v)); }

// Whole aligned vectors past the caches, if kStream.
template <bool kStream>
HWY_INLINE void put_to(VF v, DF df, float* p, Whole part) {
  if constexpr (kStream) {
    hn::Stream(v, df, p);
  } else {
    put(v, df, p, part);
  }
}
template <bool kStream>
HWY_INLINE void put_to(VF v, DF df, BF16* p, Whole part) {
  const hn::Rebind<uint16_t, DF> d16;
  constexpr bool kWide = hn::MaxLanes(d16) >= 8;  // a stream of less than 16 bytes writes 16
  if constexpr (kStream && kWide) {
    const hn::RebindToSigned<DF> di;
    const auto bits = hn::BitCast(di, hn::ShiftRight<16>(upper_bf16(df, v)));
    hn::Stream(hn::DemoteTo(d16, bits), d16, reinterpret_cast<uint16_t*>(p));
  } else {
    put(v, df, p, part);
  }
}
template <bool kStream, class E>
HWY_INLINE void put_to(VF v, DF df, E* p, Rest part) {
  put(v, df, p, part);
}

template <bool kStream, class To, class From>
void copy_elements(To* y, const From* x, int64_t n, bool round) {
  const DF df;
  if (round) {
    for_lanes(n, [&](int64_t i, auto part) MR_LANES {
      put_to<kStream>(to_bf16_value(df, get(df, x + i, part)), df, y + i, part);
    });
  } else {
    for_lanes(n, [&](int64_t i, auto part)
                     MR_LANES { put_to<kStream>(get(df, x + i, part), df, y + i, part); });
  }
  if (kStream) hwy::FlushStream();
}

template <bool kStream>
void copy_any(const Tensor& y, const Tensor& x, int64_t begin, int64_t n, bool round) {
  const bool narrow_y = y.dtype == DType::kBF16, narrow_x = x.dtype == DType::kBF16;
  if (narrow_y && narrow_x) {
    copy_elements<kStream>(y.as<BF16>() + begin, x.as<BF16>() + begin, n, false);
  } else if (narrow_y) {  // the store rounds
    copy_elements<kStream>(y.as<BF16>() + begin, x.as<float>() + begin, n, false);
  } else if (narrow_x) {  // nothing to round
    copy_elements<kStream>(y.as<float>() + begin, x.as<BF16>() + begin, n, false);
  } else {
    copy_elements<kStream>(y.as<float>() + begin, x.as<float>() + begin, n, round);
  }
}

void copy_range(const Tensor& y, const Tensor& x, int64_t begin, int64_t end, bool round,
                bool stream) {
  stream ? copy_any<true>(y, x, begin, end - begin, round)
         : copy_any<false>(y, x, begin, end - begin, round);
}

void zero_range(const Tensor& y, int64_t begin, int64_t end, bool stream) {
  const hn::ScalableTag<uint8_t> d;
  uint8_t* p = static_cast<uint8_t*>(y.data) + begin;
  const int64_t n = end - begin, lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (stream) {
    for (; i + lanes <= n; i += lanes) hn::Stream(hn::Zero(d), d, p + i);
    hwy::FlushStream();
  }
  std::memset(p + i, 0, static_cast<size_t>(n - i));
}

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;

HWY_INLINE VD load_wide(DD dd, const float* p) {
  const hn::Rebind<float, DD> half;
  return hn::PromoteTo(dd, hn::LoadU(half, p));
}

HWY_INLINE VD load_wide(DD dd, const BF16* p) {
  const hn::Rebind<float, DD> half;
  const hn::Rebind<uint32_t, DD> words;
  const hn::Rebind<uint16_t, DD> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::PromoteTo(dd, hn::BitCast(half, hn::ShiftLeft<16>(hn::PromoteTo(words, bits))));
}

HWY_INLINE double widen(float value) { return static_cast<double>(value); }
HWY_INLINE double widen(BF16 value) { return static_cast<double>(to_float(value)); }

// Four sums in turn; a square of two floats is exact in double.
template <class E>
double squares(const E* x, int64_t n) {
  const DD dd;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(dd));
  VD s0 = hn::Zero(dd), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const VD v0 = load_wide(dd, x + i), v1 = load_wide(dd, x + i + lanes);
    const VD v2 = load_wide(dd, x + i + 2 * lanes), v3 = load_wide(dd, x + i + 3 * lanes);
    s0 = hn::MulAdd(v0, v0, s0);
    s1 = hn::MulAdd(v1, v1, s1);
    s2 = hn::MulAdd(v2, v2, s2);
    s3 = hn::MulAdd(v3, v3, s3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += widen(x[i]) * widen(x[i]);
  return sum;
}

double squares_range(const Tensor& x, int64_t begin, int64_t end) {
  return x.dtype == DType::kBF16 ? squares(x.as<BF16>() + begin, end - begin)
                                 : squares(x.as<float>() + begin, end - begin);
}

// x - x is NaN for infinities and NaN, else 0.
template <class E>
bool finite(const E* x, int64_t n) {
  const DF df;
  VF sum = hn::Zero(df);
  for_lanes(n, [&](int64_t i, auto part) MR_LANES {
    const VF v = get(df, x + i, part);
    sum = hn::Add(sum, hn::Sub(v, v));
  });
  return hn::AllTrue(df, hn::Eq(sum, hn::Zero(df)));
}

bool finite_range(const Tensor& x, int64_t begin, int64_t end) {
  return x.dtype == DType::kBF16 ? finite(x.as<BF16>() + begin, end - begin)
                                 : finite(x.as<float>() + begin, end - begin);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(zero_range);
HWY_EXPORT(add_range);
HWY_EXPORT(scale_range);
HWY_EXPORT(copy_range);
HWY_EXPORT(squares_range);
HWY_EXPORT(finite_range);

namespace {

constexpr int64_t kTaskElements = 65536;  // 256 KiB of f32: a few tens of microseconds

// A result that no cache holds is written past them, without reading its lines first: zero gains
// half or more, a copy 15 to 25 %.
constexpr int64_t kStreamBytes = int64_t{32} << 20;

bool streams(const Tensor& y) {
  constexpr uintptr_t kLine = 64;  // the widest vector
  return y.bytes() >= kStreamBytes && reinterpret_cast<uintptr_t>(y.data) % kLine == 0;
}

template <class F>
void for_blocks(const Context& ctx, int64_t count, const F& f) {
  for_row_tasks(ctx, count, kTaskElements, [&](int64_t begin, int64_t end, int) { f(begin, end); });
}

}  // namespace

void zero(Context& ctx, const Tensor& y) {
  const bool stream = streams(y);
  for_row_tasks(ctx, y.bytes(), 4 * kTaskElements, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(zero_range)(y, begin, end, stream);
  });
}

void add_into(Context& ctx, const Tensor& y, const Tensor& x) {
  for_blocks(ctx, y.count(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_range)(y, x, begin, end);
  });
}

void scale(Context& ctx, const Tensor& y, float factor) {
  for_blocks(ctx, y.count(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scale_range)(y, begin, end, factor);
  });
}

void round_copy(Context& ctx, const Tensor& y, const Tensor& x, DType precision) {
  MR_CHECK(y.dtype != DType::kF64 && x.dtype != DType::kF64);
  const bool round = precision == DType::kBF16 && y.dtype == DType::kF32 && x.dtype == DType::kF32;
  if (y.data == x.data && !round) return;  // of one type, and nothing to change
  const bool stream = streams(y);
  for_blocks(ctx, y.count(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(copy_range)(y, x, begin, end, round, stream);
  });
}

void squares_of_ranges(Context& ctx, const SquaresOfRanges& a) {
  const int64_t n = static_cast<int64_t>(a.ranges.size());
  for_row_tasks(ctx, n, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const ElementRange r = a.ranges[static_cast<size_t>(j)];
      a.sums[static_cast<size_t>(j)] = HWY_DYNAMIC_DISPATCH(squares_range)(a.x, r.begin, r.end);
    }
  });
}

bool all_finite(Context& ctx, const Tensor& x) {
  std::atomic<bool> finite = true;
  for_blocks(ctx, x.count(), [&](int64_t begin, int64_t end) {
    if (!finite.load(std::memory_order_relaxed)) return;
    if (!HWY_DYNAMIC_DISPATCH(finite_range)(x, begin, end))
      finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
