// ResidualNorm with SIMD: two passes over a row, the second from cache.
#include "kernels/residual_norm.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/residual_norm.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

const float* floats(const Tensor& t, int64_t offset = 0) {
  return t.empty() ? nullptr : static_cast<const float*>(t.data) + offset;
}

// kMerge: there is a residual stream. kScale: both inputs are shifted and scaled.
template <class E, bool kMerge, bool kScale>
void forward_rows(const ResidualNormForward& a, int64_t row_begin, int64_t row_end) {
  const DF df;
  const int64_t D = a.h.dims[1];
  const float *h_scale = floats(a.scale.h_scale), *h_bias = floats(a.scale.h_bias);
  const float *r_scale = floats(a.scale.r_scale), *r_bias = floats(a.scale.r_bias);
  const float* norm = floats(a.norm);
  for (int64_t t = row_begin; t < row_end; ++t) {
    const E* h = static_cast<const E*>(a.h.data) + t * D;
    const float* r = floats(a.r, kMerge ? t * D : 0);
    float* r_out = static_cast<float*>(a.r_out.data) + t * D;
    E* x = static_cast<E*>(a.x.data) + t * D;
    VF sum = hn::Zero(df);
    for_lanes(D, [&](int64_t i, auto part) MR_LANES {
      VF v = get(df, h + i, part);
      if (kScale) v = hn::Mul(hn::Add(v, get(df, h_bias + i, part)), get(df, h_scale + i, part));
      if (kMerge) {
        const VF old = get(df, r + i, part);
        v = kScale
                ? hn::MulAdd(hn::Add(old, get(df, r_bias + i, part)), get(df, r_scale + i, part), v)
                : hn::Add(old, v);
      }
      put(v, df, r_out + i, part);
      sum = hn::MulAdd(v, v, sum);
    });
    const float rstd = 1.0f / std::sqrt(sum_lanes(df, sum) / static_cast<float>(D) + a.eps);
    const VF factor = hn::Set(df, rstd);
    for_lanes(D, [&](int64_t i, auto part) MR_LANES {
      const VF xhat = hn::Mul(get(df, r_out + i, part), factor);
      put(hn::Mul(xhat, get(df, norm + i, part)), df, x + i, part);
    });
    static_cast<float*>(a.rstd.data)[t] = rstd;
  }
}

// Sums of a block of rows, [D] each: dx xhat, g, g (h + h_bias), g (r + r_bias).

template <class E, bool kMerge, bool kScale, bool kLater>  // kLater: dr_out is given
void backward_rows(const ResidualNormBackward& a, int64_t row_begin, int64_t row_end, float* sums) {
  const DF df;
  const int64_t D = a.h.dims[1];
  const float *h_scale = floats(a.scale.h_scale), *h_bias = floats(a.scale.h_bias);
  const float *r_scale = floats(a.scale.r_scale), *r_bias = floats(a.scale.r_bias);
  const float* norm = floats(a.norm);
  for (int64_t t = row_begin; t < row_end; ++t) {
    const E* h = static_cast<const E*>(a.h.data) + t * D;
    E* dh = static_cast<E*>(a.dh.data) + t * D;
    const float* r = floats(a.r, kMerge ? t * D : 0);
    float* dr = kMerge ? static_cast<float*>(a.dr.data) + t * D : nullptr;
    const float *dx = floats(a.dx, t * D), *r_out = floats(a.r_out, t * D);
    const float* dr_out = floats(a.dr_out, kLater ? t * D : 0);
    VF dot = hn::Zero(df);
    for_lanes(D, [&](int64_t i, auto part) MR_LANES {
      const VF dxhat = hn::Mul(get(df, dx + i, part), get(df, norm + i, part));
      dot = hn::MulAdd(dxhat, get(df, r_out + i, part), dot);
    });
    const float rstd = floats(a.rstd)[t];
    const float mean = sum_lanes(df, dot) * rstd / static_cast<float>(D);
    const VF factor = hn::Set(df, rstd), along = hn::Set(df, mean * rstd * rstd);
    for_lanes(D, [&](int64_t i, auto part) MR_LANES {
      const VF gx = get(df, dx + i, part), merged = get(df, r_out + i, part);
      const VF scaled = hn::Mul(gx, factor);
      VF g = hn::NegMulAdd(merged, along, hn::Mul(scaled, get(df, norm + i, part)));
      if (kLater) g = hn::Add(g, get(df, dr_out + i, part));
      float* sum = sums + i;
      put(hn::MulAdd(scaled, merged, get(df, sum, part)), df, sum, part);
      if (!kScale) {
        put(g, df, dh + i, part);
        if (kMerge) put(g, df, dr + i, part);
        return;
      }
      put(hn::Mul(g, get(df, h_scale + i, part)), df, dh + i, part);
      sum += D;
      put(hn::Add(g, get(df, sum, part)), df, sum, part);
      sum += D;
      const VF shifted_h = hn::Add(get(df, h + i, part), get(df, h_bias + i, part));
      put(hn::MulAdd(g, shifted_h, get(df, sum, part)), df, sum, part);
      if (!kMerge) return;
      put(hn::Mul(g, get(df, r_scale + i, part)), df, dr + i, part);
      sum += D;
      const VF shifted_r = hn::Add(get(df, r + i, part), get(df, r_bias + i, part));
      put(hn::MulAdd(g, shifted_r, get(df, sum, part)), df, sum, part);
    });
  }
}

template <class E>
void forward_of(const ResidualNormForward& a, int64_t begin, int64_t end) {
  const bool merge = !a.r.empty(), scale = !a.scale.h_scale.empty();
  if (merge && scale) return forward_rows<E, true, true>(a, begin, end);
  if (merge) return forward_rows<E, true, false>(a, begin, end);
  if (scale) return forward_rows<E, false, true>(a, begin, end);
  forward_rows<E, false, false>(a, begin, end);
}

template <class E, bool kLater>
void backward_of(const ResidualNormBackward& a, int64_t begin, int64_t end, float* sums) {
  const bool merge = !a.r.empty(), scale = !a.scale.h_scale.empty();
  if (merge && scale) return backward_rows<E, true, true, kLater>(a, begin, end, sums);
  if (merge) return backward_rows<E, true, false, kLater>(a, begin, end, sums);
  if (scale) return backward_rows<E, false, true, kLater>(a, begin, end, sums);
  backward_rows<E, false, false, kLater>(a, begin, end, sums);
}

void residual_norm_forward_rows(const ResidualNormForward& a, int64_t begin, int64_t end) {
  a.h.dtype == DType::kBF16 ? forward_of<BF16>(a, begin, end) : forward_of<float>(a, begin, end);
}

void residual_norm_backward_rows(const ResidualNormBackward& a, int64_t begin, int64_t end,
                                 float* sums) {
  if (a.h.dtype == DType::kBF16) {
    a.dr_out.empty() ? backward_of<BF16, false>(a, begin, end, sums)
                     : backward_of<BF16, true>(a, begin, end, sums);
  } else {
    a.dr_out.empty() ? backward_of<float, false>(a, begin, end, sums)
                     : backward_of<float, true>(a, begin, end, sums);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {
namespace {

HWY_EXPORT(residual_norm_forward_rows);
HWY_EXPORT(residual_norm_backward_rows);

// to[d] += from[d] * scale[d]; without scale: += from[d].
void add_to(const Tensor& to, const float* from, const Tensor& scale) {
  float* sum = to.as<float>();
  for (int64_t d = 0; d < to.dims[0]; ++d) {
    sum[d] += scale.empty() ? from[d] : from[d] * scale.as<float>()[d];
  }
}

}  // namespace

namespace cpu {

void residual_norm_forward(Context& ctx, const ResidualNormForward& a) {
  MR_CHECK(a.h.dtype != DType::kF64);
  for_row_tasks(ctx, a.h.dims[0], rows_per_task(a.h.dims[1]), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(residual_norm_forward_rows)(a, begin, end);
  });
}

void residual_norm_backward(Context& ctx, const ResidualNormBackward& a) {
  MR_CHECK(a.h.dtype != DType::kF64);
  const int64_t T = a.h.dims[0], D = a.h.dims[1];
  const bool merge = !a.r.empty(), scale = !a.scale.h_scale.empty();
  const auto block = [&](int64_t begin, int64_t end, float* sums, int) {
    HWY_DYNAMIC_DISPATCH(residual_norm_backward_rows)(a, begin, end, sums);
  };
  // The sums of g are scaled once, not in every row.
  sum_row_blocks(ctx, T, D * (scale ? (merge ? 4 : 3) : 1), block, [&](const float* sums) {
    add_to(a.dnorm, sums, {});
    if (!scale) return;
    add_to(a.dscale.h_bias, sums + D, a.scale.h_scale);
    add_to(a.dscale.h_scale, sums + 2 * D, {});
    if (!merge) return;
    add_to(a.dscale.r_bias, sums + D, a.scale.r_scale);
    add_to(a.dscale.r_scale, sums + 3 * D, {});
  });
}

}  // namespace cpu
}  // namespace moraine
#endif  // HWY_ONCE
