// RouterStateBackward, device side: a row's share along s, then a channel down a block of rows.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/router_state_backward.h"
#include "kernels/gpu/row_sums.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void router_state_along(const RouterStateBackwardArgs& a) {
  const int64_t row = block_x() * a.R;
  float dot = 0;
  for (int64_t r = thread(); r < a.R; r += kStateThreads) {
    const float dx = widen(load(static_cast<const E*>(a.dx) + (row + r)));
    dot = fused(dx * load(a.norm + r), load(a.s + (row + r)), dot);
  }
  const float rstd = load(a.rstd + block_x());
  const float mean = block_sum<kStateThreads>(dot) * rstd / static_cast<float>(a.R);
  if (thread() == 0) store(a.along + block_x(), mean * rstd * rstd);
}

MR_KERNEL(router_state_along_f32, kStateThreads, RouterStateBackwardArgs a) {
  router_state_along<float>(a);
}
MR_KERNEL(router_state_along_bf16, kStateThreads, RouterStateBackwardArgs a) {
  router_state_along<BF16>(a);
}

template <class E>
MR_DEVICE void router_state_rows(const RouterStateBackwardArgs& a) {
  const int64_t r = block_x() * kStateThreads + thread(), begin = block_y() * kSumRows;
  if (r >= a.R) return;
  const float norm = load(a.norm + r), gamma = a.gamma == nullptr ? 0.0f : load(a.gamma + r);
  float dnorm = 0, dgamma = 0;
  for (int64_t t = begin; t < begin + kSumRows && t < a.T; ++t) {
    const int64_t i = t * a.R + r;
    const float scaled = widen(load(static_cast<const E*>(a.dx) + i)) * load(a.rstd + t);
    const float s = load(a.s + i);
    float g = fused(-s, load(static_cast<const float*>(a.along) + t), scaled * norm);
    if (a.ds != nullptr) g += load(a.ds + i);
    store(static_cast<E*>(a.dy) + i, narrow_to<E>(g));
    dnorm = fused(scaled, s, dnorm);
    if (a.s_prev == nullptr) continue;
    dgamma = fused(g, load(a.s_prev + i), dgamma);
    store(a.ds_prev + i, g * gamma);
  }
  store(a.sums + (block_y() * 2 * a.R + r), dnorm);
  store(a.sums + ((block_y() * 2 + 1) * a.R + r), dgamma);
}

MR_KERNEL(router_state_rows_f32, kStateThreads, RouterStateBackwardArgs a) {
  router_state_rows<float>(a);
}
MR_KERNEL(router_state_rows_bf16, kStateThreads, RouterStateBackwardArgs a) {
  router_state_rows<BF16>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
