// ResidualNorm, device side: merge a row, add its squares, scale it.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/channel_or.h"
#include "kernels/gpu/residual_norm.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void residual_norm_row(const ResidualNormArgs& a) {
  const int64_t row = block_x() * a.D;
  const E* const h = static_cast<const E*>(a.h) + row;
  E* const x = static_cast<E*>(a.x) + row;
  float squares = 0;
  for (int64_t d = thread(); d < a.D; d += kNormThreads) {
    float v = (widen(load(h + d)) + channel_or(a.h_bias, d, 0)) * channel_or(a.h_scale, d, 1);
    if (a.r != nullptr) {
      v += (load(a.r + (row + d)) + channel_or(a.r_bias, d, 0)) * channel_or(a.r_scale, d, 1);
    }
    store(a.r_out + (row + d), v);
    squares = fused(v, v, squares);
  }
  const float mean = block_sum<kNormThreads>(squares) / static_cast<float>(a.D);
  const float rstd = 1.0f / root(mean + a.eps);
  for (int64_t d = thread(); d < a.D; d += kNormThreads) {
    const float v = load(static_cast<const float*>(a.r_out) + (row + d)) * rstd;
    store(x + d, narrow_to<E>(v * load(a.norm + d)));
  }
  if (thread() == 0) store(a.rstd + block_x(), rstd);
}

MR_KERNEL(residual_norm_f32, kNormThreads, ResidualNormArgs a) { residual_norm_row<float>(a); }
MR_KERNEL(residual_norm_bf16, kNormThreads, ResidualNormArgs a) { residual_norm_row<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
