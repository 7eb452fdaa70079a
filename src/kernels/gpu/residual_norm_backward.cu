// ResidualNormBackward, device side: a row's share along r_out, a channel down a block of rows, a channel's sums.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/channel_or.h"
#include "kernels/gpu/residual_norm_backward.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

MR_KERNEL(residual_norm_along, kNormThreads, ResidualNormBackwardArgs a) {
  const int64_t row = block_x() * a.D;
  float dot = 0;
  for (int64_t d = thread(); d < a.D; d += kNormThreads) {
    dot = fused(load(a.dx + (row + d)) * load(a.norm + d), load(a.r_out + (row + d)), dot);
  }
  const float rstd = load(a.rstd + block_x());
  const float mean = block_sum<kNormThreads>(dot) * rstd / static_cast<float>(a.D);
  if (thread() == 0) store(a.along + block_x(), mean * rstd * rstd);
}

// A channel's numbers that all rows share; its sums over the rows so far.
struct NormChannel {
  float norm, h_scale, h_bias, r_scale, r_bias;
  float sums[kNormSums];
};

template <class E>
MR_DEVICE void add_row(const ResidualNormBackwardArgs& a, NormChannel& c, int64_t t, int64_t i) {
  const float scaled = load(a.dx + i) * load(a.rstd + t), r_out = load(a.r_out + i);
  float g = fused(-r_out, load(a.along + t), scaled * c.norm);
  if (a.dr_out != nullptr) g += load(a.dr_out + i);
  store(static_cast<E*>(a.dh) + i, narrow_to<E>(g * c.h_scale));
  c.sums[0] = fused(scaled, r_out, c.sums[0]);
  c.sums[1] += g;
  c.sums[2] = fused(g, widen(load(static_cast<const E*>(a.h) + i)) + c.h_bias, c.sums[2]);
  if (a.r == nullptr) return;
  store(a.dr + i, g * c.r_scale);
  c.sums[3] = fused(g, load(a.r + i) + c.r_bias, c.sums[3]);
}

template <class E>
MR_DEVICE void residual_norm_rows(const ResidualNormBackwardArgs& a) {
  const int64_t d = block_x() * kNormThreads + thread(), begin = block_y() * kNormSumRows;
  if (d >= a.D) return;
  NormChannel c = {load(a.norm + d),           channel_or(a.h_scale, d, 1),
                   channel_or(a.h_bias, d, 0), channel_or(a.r_scale, d, 1),
                   channel_or(a.r_bias, d, 0), {}};
  for (int64_t t = begin; t < begin + kNormSumRows && t < a.T; ++t)
    add_row<E>(a, c, t, t * a.D + d);
  MR_UNROLL for (int s = 0; s < kNormSums; ++s) {
    store(a.sums + ((block_y() * kNormSums + s) * a.D + d), c.sums[s]);
  }
}

MR_DEVICE void add_channel(float* to, int64_t d, float v) {
  if (to != nullptr) store(to + d, load(to + d) + v);
}

MR_KERNEL(residual_norm_sums, kNormThreads, ResidualNormBackwardArgs a) {
  const int64_t d = block_x() * kNormThreads + thread();
  if (d >= a.D) return;
  float total[kNormSums] = {};
  const int64_t blocks = (a.T + kNormSumRows - 1) / kNormSumRows;
  for (int64_t b = 0; b < blocks; ++b) {
    MR_UNROLL for (int s = 0; s < kNormSums; ++s) {
      total[s] += load(static_cast<const float*>(a.sums) + ((b * kNormSums + s) * a.D + d));
    }
  }
  add_channel(a.dnorm, d, total[0]);
  add_channel(a.dh_bias, d, total[1] * channel_or(a.h_scale, d, 1));
  add_channel(a.dh_scale, d, total[2]);
  add_channel(a.dr_bias, d, total[1] * channel_or(a.r_scale, d, 1));
  add_channel(a.dr_scale, d, total[3]);
}

MR_KERNEL(residual_norm_rows_f32, kNormThreads, ResidualNormBackwardArgs a) {
  residual_norm_rows<float>(a);
}
MR_KERNEL(residual_norm_rows_bf16, kNormThreads, ResidualNormBackwardArgs a) {
  residual_norm_rows<BF16>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
