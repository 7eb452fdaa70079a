// RouterState with SIMD: two passes over a row, the second from cache.
#include "kernels/router_state.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/router_state.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

const float* row_of(const Tensor& t, int64_t begin) {
  return t.empty() ? nullptr : static_cast<const float*>(t.data) + begin;
}

template <class E, bool kFirst>  // kFirst: no layer before this one
void forward_rows(const RouterStateForward& a, int64_t row_begin, int64_t row_end) {
  const DF df;
  const int64_t R = a.s.dims[1];
  const float *gamma = row_of(a.gamma, 0), *norm = row_of(a.norm, 0);
  for (int64_t t = row_begin; t < row_end; ++t) {
    const float *y = row_of(a.y, t * R), *s_prev = row_of(a.s_prev, t * R);
    float* s = static_cast<float*>(a.s.data) + t * R;
    E* x = static_cast<E*>(a.x.data) + t * R;
    VF sum = hn::Zero(df);
    for_lanes(R, [&](int64_t i, auto part) MR_LANES {
      VF v = get(df, y + i, part);
      if (!kFirst) v = hn::MulAdd(get(df, gamma + i, part), get(df, s_prev + i, part), v);
      put(v, df, s + i, part);
      sum = hn::MulAdd(v, v, sum);
    });
    const float rstd = 1.0f / std::sqrt(sum_lanes(df, sum) / static_cast<float>(R) + a.eps);
    const VF factor = hn::Set(df, rstd);
    for_lanes(R, [&](int64_t i, auto part) MR_LANES {
      const VF xhat = hn::Mul(get(df, s + i, part), factor);
      put(hn::Mul(xhat, get(df, norm + i, part)), df, x + i, part);
    });
    static_cast<float*>(a.rstd.data)[t] = rstd;
  }
}

// Sums of a block of rows, [R] each: dx xhat, g s_prev.
template <class E, bool kFirst, bool kLater>  // kLater: ds is given
void backward_rows(const RouterStateBackward& a, int64_t row_begin, int64_t row_end, float* sums) {
  const DF df;
  const int64_t R = a.s.dims[1];
  const float *gamma = row_of(a.gamma, 0), *norm = row_of(a.norm, 0);
  for (int64_t t = row_begin; t < row_end; ++t) {
    const E* dx = static_cast<const E*>(a.dx.data) + t * R;
    E* dy = static_cast<E*>(a.dy.data) + t * R;
    const float *s = row_of(a.s, t * R), *s_prev = row_of(a.s_prev, t * R);
    const float* ds = row_of(a.ds, t * R);
    float* ds_prev = kFirst ? nullptr : static_cast<float*>(a.ds_prev.data) + t * R;
    VF dot = hn::Zero(df);
    for_lanes(R, [&](int64_t i, auto part) MR_LANES {
      const VF dxhat = hn::Mul(get(df, dx + i, part), get(df, norm + i, part));
      dot = hn::MulAdd(dxhat, get(df, s + i, part), dot);
    });
    const float rstd = row_of(a.rstd, t)[0];
    const float mean = sum_lanes(df, dot) * rstd / static_cast<float>(R);
    const VF factor = hn::Set(df, rstd), along = hn::Set(df, mean * rstd * rstd);
    for_lanes(R, [&](int64_t i, auto part) MR_LANES {
      const VF state = get(df, s + i, part), scaled = hn::Mul(get(df, dx + i, part), factor);
      VF g = hn::NegMulAdd(state, along, hn::Mul(scaled, get(df, norm + i, part)));
      if (kLater) g = hn::Add(g, get(df, ds + i, part));
      float* sum = sums + i;
      put(hn::MulAdd(scaled, state, get(df, sum, part)), df, sum, part);
      put(g, df, dy + i, part);
      if (kFirst) return;
      sum += R;
      put(hn::MulAdd(g, get(df, s_prev + i, part), get(df, sum, part)), df, sum, part);
      put(hn::Mul(g, get(df, gamma + i, part)), df, ds_prev + i, part);
    });
  }
}

template <class E>
void forward_of(const RouterStateForward& a, int64_t begin, int64_t end) {
  a.s_prev.empty() ? forward_rows<E, true>(a, begin, end) : forward_rows<E, false>(a, begin, end);
}

template <class E>
void backward_of(const RouterStateBackward& a, int64_t begin, int64_t end, float* sums) {
  const bool first = a.s_prev.empty(), later = !a.ds.empty();
  if (first && later) return backward_rows<E, true, true>(a, begin, end, sums);
  if (first) return backward_rows<E, true, false>(a, begin, end, sums);
  if (later) return backward_rows<E, false, true>(a, begin, end, sums);
  backward_rows<E, false, false>(a, begin, end, sums);
}

void router_state_forward_rows(const RouterStateForward& a, int64_t begin, int64_t end) {
  a.x.dtype == DType::kBF16 ? forward_of<BF16>(a, begin, end) : forward_of<float>(a, begin, end);
}

void router_state_backward_rows(const RouterStateBackward& a, int64_t begin, int64_t end,
                                float* sums) {
  a.dx.dtype == DType::kBF16 ? backward_of<BF16>(a, begin, end, sums)
                             : backward_of<float>(a, begin, end, sums);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {
namespace {

HWY_EXPORT(router_state_forward_rows);
HWY_EXPORT(router_state_backward_rows);

}  // namespace

namespace cpu {

void router_state_forward(Context& ctx, const RouterStateForward& a) {
  MR_CHECK(a.x.dtype != DType::kF64);
  for_row_tasks(ctx, a.s.dims[0], rows_per_task(a.s.dims[1]), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(router_state_forward_rows)(a, begin, end);
  });
}

void router_state_backward(Context& ctx, const RouterStateBackward& a) {
  MR_CHECK(a.dx.dtype != DType::kF64);
  const int64_t T = a.s.dims[0], R = a.s.dims[1];
  const bool first = a.s_prev.empty();
  const auto block = [&](int64_t begin, int64_t end, float* sums, int) {
    HWY_DYNAMIC_DISPATCH(router_state_backward_rows)(a, begin, end, sums);
  };
  sum_row_blocks(ctx, T, first ? R : 2 * R, block, [&](const float* sums) {
    for (int64_t r = 0; r < R; ++r) a.dnorm.as<float>()[r] += sums[r];
    for (int64_t r = 0; r < R && !first; ++r) a.dgamma.as<float>()[r] += sums[R + r];
  });
}

}  // namespace cpu
}  // namespace moraine
#endif  // HWY_ONCE
