// QkNormRopeBackward, device side: a head's share along itself, then the channels of a group of heads.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/element.h"
#include "kernels/gpu/head_channel.h"
#include "kernels/gpu/qk_norm_rope_backward.h"
#include "kernels/gpu/row_sums.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Channel c of a head's gradient, turned back.
template <class E>
MR_DEVICE float turned_back(const QkNormRopeBackwardArgs& a, int64_t t, int64_t head, int64_t c) {
  const E* const dy = head < a.H ? static_cast<const E*>(a.dq) + (t * a.H + head) * a.d
                                 : static_cast<const E*>(a.dk) + (t * a.K + head - a.H) * a.d;
  const float v = widen(load(dy + c));
  if (c >= 2 * a.half) return v;
  const bool first = c < a.half;
  const int64_t i = first ? c : c - a.half;
  const float other = widen(load(dy + (first ? c + a.half : i)));
  const float* const rope = a.rope + (load(a.position + t) * a.half + i) * 2;
  return fused(first ? other : -other, load(rope + 1), v * load(rope));
}

template <class E>
MR_DEVICE void rope_gradient(const QkNormRopeBackwardArgs& a) {
  const int64_t i = element(), width = (a.H + a.K) * a.d;
  if (i >= a.T * width) return;
  const int64_t t = i / width, column = i % width;
  const float dp = turned_back<E>(a, t, column / a.d, column % a.d);
  store(static_cast<E*>(a.dqkv) + (t * a.N + column), narrow_to<E>(dp));
}

MR_KERNEL(qk_rope_backward_f32, kElementThreads, QkNormRopeBackwardArgs a) {
  rope_gradient<float>(a);
}
MR_KERNEL(qk_rope_backward_bf16, kElementThreads, QkNormRopeBackwardArgs a) {
  rope_gradient<BF16>(a);
}

template <class E>
MR_DEVICE void head_along(const QkNormRopeBackwardArgs& a) {
  const int64_t t = block_x(), head = block_y(), g = head - a.H;
  float dot = 0;
  for (int64_t c = thread(); c < a.d; c += kHeadThreads) {
    dot = fused(head_channel<E>(a, t, head, c), turned_back<E>(a, t, head, c), dot);
  }
  dot = block_sum<kHeadThreads>(dot);
  if (thread() > 0) return;
  // The quotient at the length below which it is a constant, less a few roundings: another backend may have made n.
  constexpr float kTiny = 1e-12f;
  const float width = static_cast<float>(a.d), n_constant = root(width) / kTiny * (1 - 0x1p-21f);
  const float n = head < a.H ? load(a.nq + (t * a.H + head)) : load(a.nk + (t * a.K + g));
  const int64_t at = t * (a.H + a.K) + head;
  store(a.scale + at, head < a.H ? n : n * load(a.temp + g));
  // In this order the largest n does not overflow.
  store(a.along + at, n >= n_constant ? 0.0f : dot * n / width * n);
  if (head >= a.H) store(a.temp_terms + (t * a.K + g), dot * n);
}

MR_KERNEL(qk_norm_along_f32, kHeadThreads, QkNormRopeBackwardArgs a) { head_along<float>(a); }
MR_KERNEL(qk_norm_along_bf16, kHeadThreads, QkNormRopeBackwardArgs a) { head_along<BF16>(a); }

MR_KERNEL(qk_norm_temp_rows, kElementThreads, QkNormRopeBackwardArgs a) {
  const int64_t i = element(), block = i / a.K, begin = block * kSumRows;
  if (begin >= a.T) return;
  float sum = 0;
  for (int64_t t = begin; t < begin + kSumRows && t < a.T; ++t) {
    sum += load(static_cast<const float*>(a.temp_terms) + (t * a.K + i % a.K));
  }
  store(a.sums + i, sum);
}

// The gradient of a head before the norm, which is that of z.
template <class E>
MR_DEVICE float head_gradient(const QkNormRopeBackwardArgs& a, int64_t t, int64_t head, int64_t c) {
  const int64_t at = t * (a.H + a.K) + head;
  const float along = load(static_cast<const float*>(a.along) + at);
  const float across = fused(-head_channel<E>(a, t, head, c), along, turned_back<E>(a, t, head, c));
  const float da = across * load(static_cast<const float*>(a.scale) + at);
  store(static_cast<E*>(a.dz) + ((head * a.T + t) * a.d + c), narrow_to<E>(da));
  return da;
}

// The mean's part: dmq[h] = da_q[h] + da_k / repeat.
template <class E>
MR_DEVICE void group_gradient(const QkNormRopeBackwardArgs& a) {
  const int64_t i = element(), width = a.K * a.d;
  if (i >= a.T * width) return;
  const int64_t t = i / width, g = i % width / a.d, c = i % a.d, repeat = a.H / a.K;
  E* const dp = static_cast<E*>(a.dqkv) + (t * a.N + c);
  const float da_key = head_gradient<E>(a, t, a.H + g, c);
  const float shared = da_key * (1.0f / static_cast<float>(repeat));
  float sum = da_key;
  for (int64_t h = g * repeat; h < (g + 1) * repeat; ++h) {
    const float da = head_gradient<E>(a, t, h, c);
    sum += da;
    store(dp + h * a.d, narrow_to<E>((da + shared) * 0.5f));
  }
  store(dp + (a.H + g) * a.d, narrow_to<E>(sum * 0.5f));
}

MR_KERNEL(qk_norm_rope_backward_f32, kElementThreads, QkNormRopeBackwardArgs a) {
  group_gradient<float>(a);
}
MR_KERNEL(qk_norm_rope_backward_bf16, kElementThreads, QkNormRopeBackwardArgs a) {
  group_gradient<BF16>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
