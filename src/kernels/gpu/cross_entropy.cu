// CrossEntropy, device side: the largest logit, the sum, the loss, the gradient.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/cross_entropy.h"
#include "kernels/gpu/exp.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// log v of a normal v > 0, -inf of 0, else v: v = 2^n m, sqrt(1/2) <= m < sqrt 2; s = (m - 1) / (m + 1),
// log m = 2 (s + s^3/3 + ... + s^17/17).
MR_DEVICE double log_wide(float v) {
  if (!(v > 0)) return v == 0 ? from_bits(0xff800000u) : v;
  constexpr uint32_t kRootHalf = 0x3f3504f3u;
  const int n = static_cast<int>(bits_of(v) - kRootHalf) >> 23;
  const double m = from_bits(bits_of(v) - (static_cast<uint32_t>(n) << 23));
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double sum = 0;
  for (int k = 17; k > 0; k -= 2) sum = sum * s2 + 1.0 / k;
  return n * 0.69314718055994530942 + 2 * s * sum;
}

// dlogits = e^(logit - top) / sum, less 1 at the target; 0 where there is none.
template <class E>
MR_DEVICE void gradient_row(const CrossEntropyArgs& a, float top, float sum, int64_t target) {
  const float factor = 1.0f / sum;
  for (int64_t v = thread(); v < a.V; v += kEntropyThreads) {
    const int64_t i = block_x() * a.V + v;
    const float p = exp_nonpositive(load(a.logits + i) - top) * factor;
    store(static_cast<E*>(a.dlogits) + i,
          narrow_to<E>(target < 0 ? 0.0f : p - (v == target ? 1.0f : 0.0f)));
  }
}

template <class E>
MR_DEVICE void cross_entropy_row(const CrossEntropyArgs& a) {
  const float* const x = a.logits + block_x() * a.V;
  float top = from_bits(0xff7fffffu), sum = 0;  // the lowest number: a row of -inf has no NaN
  for (int64_t v = thread(); v < a.V; v += kEntropyThreads) {
    const float logit = load(x + v);
    top = logit > top ? logit : top;
  }
  top = block_max<kEntropyThreads>(top);
  for (int64_t v = thread(); v < a.V; v += kEntropyThreads)
    sum += exp_nonpositive(load(x + v) - top);
  sum = block_sum<kEntropyThreads>(sum);
  const int64_t target = load(a.target + block_x());
  if (thread() == 0) {
    const double lse = top + log_wide(sum);
    if (a.lse != nullptr) store(a.lse + block_x(), lse);
    store(a.loss + block_x(), target < 0 ? 0.0f : static_cast<float>(lse - load(x + target)));
  }
  if (a.dlogits != nullptr) gradient_row<E>(a, top, sum, target);
}

MR_KERNEL(cross_entropy_f32, kEntropyThreads, CrossEntropyArgs a) { cross_entropy_row<float>(a); }
MR_KERNEL(cross_entropy_bf16, kEntropyThreads, CrossEntropyArgs a) { cross_entropy_row<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
