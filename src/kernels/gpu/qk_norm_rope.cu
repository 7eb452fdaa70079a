// QkNormRope, device side: the length of a head, then its channels turned.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/head_channel.h"
#include "kernels/gpu/qk_norm_rope.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// What the head is multiplied by; thread 0 stores the inverse norm.
template <class E>
MR_DEVICE float head_factor(const QkNormRopeArgs& a, int64_t t, int64_t head) {
  if (a.z == nullptr) return 1;
  constexpr float kTiny = 1e-12f;
  float squares = 0;
  for (int64_t c = thread(); c < a.d; c += kHeadThreads) {
    const float v = head_channel<E>(a, t, head, c);
    squares = fused(v, v, squares);
  }
  const float length = root(block_sum<kHeadThreads>(squares));
  const float n = root(static_cast<float>(a.d)) / (length > kTiny ? length : kTiny);
  float* const out = head < a.H ? a.nq + (t * a.H + head) : a.nk + (t * a.K + head - a.H);
  if (thread() == 0) store(out, n);
  return head < a.H ? n : n * load(a.temp + (head - a.H));
}

template <class E>
MR_DEVICE void qk_norm_rope_head(const QkNormRopeArgs& a) {
  const int64_t t = block_x(), head = block_y();
  const float factor = head_factor<E>(a, t, head);
  const float* const rope = a.rope + load(a.position + t) * a.half * 2;
  E* const out = head < a.H ? static_cast<E*>(a.q) + (t * a.H + head) * a.d
                            : static_cast<E*>(a.k) + (t * a.K + head - a.H) * a.d;
  for (int64_t c = thread(); c < a.d; c += kHeadThreads) {
    const float v = head_channel<E>(a, t, head, c) * factor;
    if (c >= 2 * a.half) {
      store(out + c, narrow_to<E>(v));
      continue;
    }
    const bool first = c < a.half;
    const int64_t i = first ? c : c - a.half;
    const float other = head_channel<E>(a, t, head, first ? c + a.half : i) * factor;
    const float cosine = load(rope + 2 * i), sine = load(rope + (2 * i + 1));
    store(out + c, narrow_to<E>(fused(v, cosine, other * (first ? -sine : sine))));
  }
}

MR_KERNEL(qk_norm_rope_f32, kHeadThreads, QkNormRopeArgs a) { qk_norm_rope_head<float>(a); }
MR_KERNEL(qk_norm_rope_bf16, kHeadThreads, QkNormRopeArgs a) { qk_norm_rope_head<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
