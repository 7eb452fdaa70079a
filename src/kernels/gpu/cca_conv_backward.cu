// CcaConvBackward, device side: the gradient of u at a row and at the next one makes that of p.
#include "kernels/gpu/cca_conv_backward.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/row_sums.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// A channel's weights; its sums over the rows so far.
struct ConvChannel {
  int64_t c;
  float w0, w1;
  float dw0, dw1, db;
};

// The gradient of tap 0 or 1 in the pair of row t.
template <class E>
MR_DEVICE float tap_gradient(const CcaConvBackwardArgs& a, int64_t t, int64_t c, int tap) {
  const int64_t pair = (c / a.d * a.T + t) * 2 * a.d + 2 * (c % a.d);
  return widen(load(static_cast<const E*>(a.dpair) + (pair + tap)));
}

// Whether row t + 1 is of the same segment.
MR_DEVICE bool is_followed(const CcaConvBackwardArgs& a, int64_t t) {
  return t + 1 < a.T && load(a.place + (t + 1)).before > 0;
}

template <class E>
MR_DEVICE float u_gradient(const CcaConvBackwardArgs& a, int64_t t, int64_t c) {
  const float du = tap_gradient<E>(a, t, c, 1);
  return is_followed(a, t) ? du + tap_gradient<E>(a, t + 1, c, 0) : du;
}

// u, p and p before that of the position before a segment: they may be of rows elsewhere. Returns p there.
template <class E>
MR_DEVICE float add_before_segment(const CcaConvBackwardArgs& a, ConvChannel& ch, int64_t t,
                                   float du) {
  const RowPlace place = load(a.place + t);
  const float du_before = tap_gradient<E>(a, t, ch.c, 0);
  ch.db += du_before;
  if (place.halo < 0) return 0;
  const int64_t at = place.halo * 2 * a.C + ch.c;
  if (a.dhalo != nullptr) {
    store(a.dhalo + at, ch.w0 * du_before);
    store(a.dhalo + (at + a.C), fused(ch.w1, du_before, ch.w0 * du));
  }
  if (a.halo == nullptr) return 0;
  const E* const halo = static_cast<const E*>(a.halo) + at;
  const float before = widen(load(halo + a.C));
  ch.dw0 = fused(du_before, widen(load(halo)), ch.dw0);
  ch.dw1 = fused(du_before, before, ch.dw1);
  return before;
}

template <class E>
MR_DEVICE void add_conv_row(const CcaConvBackwardArgs& a, ConvChannel& ch, int64_t t) {
  const E* const p = static_cast<const E*>(a.qkv) + (t * a.N + ch.c);
  E* const dp = static_cast<E*>(a.dqkv) + (t * a.N + ch.c);
  const float du = u_gradient<E>(a, t, ch.c);
  const float du_next = is_followed(a, t) ? u_gradient<E>(a, t + 1, ch.c) : 0.0f;
  const float was = widen(load(static_cast<const E*>(dp)));
  store(dp, narrow_to<E>(fused(ch.w1, du, fused(ch.w0, du_next, was))));
  const float before =
      load(a.place + t).before > 0 ? widen(load(p - a.N)) : add_before_segment<E>(a, ch, t, du);
  ch.dw0 = fused(du, before, ch.dw0);
  ch.dw1 = fused(du, widen(load(p)), ch.dw1);
  ch.db += du;
}

template <class E>
MR_DEVICE void conv_gradient(const CcaConvBackwardArgs& a) {
  const int64_t c = block_x() * kConvThreads + thread(), begin = block_y() * kSumRows;
  if (c >= a.C) return;
  ConvChannel ch = {c, load(a.w + 2 * c), load(a.w + (2 * c + 1)), 0, 0, 0};
  for (int64_t t = begin; t < begin + kSumRows && t < a.T; ++t) add_conv_row<E>(a, ch, t);
  float* const sums = a.sums + block_y() * 3 * a.C;
  store(sums + 2 * c, ch.dw0);
  store(sums + (2 * c + 1), ch.dw1);
  store(sums + (2 * a.C + c), ch.db);
}

MR_KERNEL(cca_conv_backward_f32, kConvThreads, CcaConvBackwardArgs a) { conv_gradient<float>(a); }
MR_KERNEL(cca_conv_backward_bf16, kConvThreads, CcaConvBackwardArgs a) { conv_gradient<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
