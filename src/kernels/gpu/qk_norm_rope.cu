// QkNormRope, device side: the length of a head, then its channels turned.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/qk_norm_rope.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Channel c of head `head` before it is normalised.
template <class E>
MR_DEVICE float head_channel(const QkNormRopeArgs& a, int64_t t, int64_t head, int64_t c) {
  const E* const p = static_cast<const E*>(a.qkv) + (t * a.N + c);
  if (a.z == nullptr) return widen(load(p + head * a.d));
  const int64_t repeat = a.H / a.K, g = head < a.H ? head / repeat : head - a.H;
  const float key = widen(load(p + (a.H + g) * a.d));
  float mean;
  if (head < a.H) {
    mean = widen(load(p + head * a.d)) + key;
  } else {
    float queries = widen(load(p + g * repeat * a.d));
    for (int64_t h = 1; h < repeat; ++h) queries += widen(load(p + (g * repeat + h) * a.d));
    mean = fused(queries, 1.0f / static_cast<float>(repeat), key);
  }
  return fused(mean, 0.5f, widen(load(static_cast<const E*>(a.z) + ((head * a.T + t) * a.d + c))));
}

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
