// RouterState, device side: average with the layer below, add squares, scale.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/router_state.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void router_state_row(const RouterStateArgs& a) {
  const int64_t row = block_x() * a.R;
  float squares = 0;
  for (int64_t r = thread(); r < a.R; r += kStateThreads) {
    float v = load(a.y + (row + r));
    if (a.s_prev != nullptr) v = fused(load(a.gamma + r), load(a.s_prev + (row + r)), v);
    store(a.s + (row + r), v);
    squares = fused(v, v, squares);
  }
  const float mean = block_sum<kStateThreads>(squares) / static_cast<float>(a.R);
  const float rstd = 1.0f / root(mean + a.eps);
  for (int64_t r = thread(); r < a.R; r += kStateThreads) {
    const float v = load(static_cast<const float*>(a.s) + (row + r)) * rstd;
    store(static_cast<E*>(a.x) + (row + r), narrow_to<E>(v * load(a.norm + r)));
  }
  if (thread() == 0) store(a.rstd + block_x(), rstd);
}

MR_KERNEL(router_state_f32, kStateThreads, RouterStateArgs a) { router_state_row<float>(a); }
MR_KERNEL(router_state_bf16, kStateThreads, RouterStateArgs a) { router_state_row<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
