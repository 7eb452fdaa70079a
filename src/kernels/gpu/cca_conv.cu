// CcaConv, device side: three columns of a channel, two sums.
#include "kernels/gpu/cca_conv.h"
#include "kernels/gpu/element.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// p `back` rows before row t, in its segment or in the halo before that.
template <class E>
MR_DEVICE float p_back(const CcaConvArgs& a, const RowPlace& place, int64_t t, int64_t c,
                       int back) {
  if (place.before >= back)
    return widen(load(static_cast<const E*>(a.qkv) + ((t - back) * a.N + c)));
  if (place.halo < 0) return 0;
  const int64_t row = place.halo * int64_t{2} + (place.before - back + 2);
  return widen(load(static_cast<const E*>(a.halo) + (row * a.C + c)));
}

template <class E>
MR_DEVICE void cca_conv_channel(const CcaConvArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.C) return;
  const int64_t t = i / a.C, c = i % a.C;
  const RowPlace place = load(a.place + t);
  const float w0 = load(a.w + 2 * c), w1 = load(a.w + (2 * c + 1)), b = load(a.b + c);
  const float p1 = p_back<E>(a, place, t, c, 1);
  const float before = fused(w0, p_back<E>(a, place, t, c, 2), fused(w1, p1, b));
  const float now = fused(w0, p1, fused(w1, p_back<E>(a, place, t, c, 0), b));
  E* const pair = static_cast<E*>(a.pair) + (c / a.d * a.T + t) * 2 * a.d + 2 * (c % a.d);
  store(pair, narrow_to<E>(before));
  store(pair + 1, narrow_to<E>(now));
}

MR_KERNEL(cca_conv_f32, kElementThreads, CcaConvArgs a) { cca_conv_channel<float>(a); }
MR_KERNEL(cca_conv_bf16, kElementThreads, CcaConvArgs a) { cca_conv_channel<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
