// Linear, device side: find the block's rows, write what they sum to.
#include "kernels/gpu/linear_blocks.h"
#include "kernels/gpu/linear_outputs.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// The block's rows of x, and its outputs of its group's weight.
template <class E>
MR_DEVICE LinearRows<E> block_rows(const LinearArgs& a, const LinearBlock& b) {
  return {static_cast<const E*>(a.x), b.row_begin, b.row_end, a.k};
}
template <class E>
MR_DEVICE LinearRows<E> block_outputs(const LinearArgs& a, const LinearBlock& b) {
  return {static_cast<const E*>(a.w) + b.group * a.n * a.k, b.output_begin, a.n, a.k};
}

template <class Y>
MR_DEVICE void linear_tiles(const LinearArgs& a) {
  const LinearBlock b = find_block(a);
  if (b.group < 0) return;
  each_output_by_tiles(
      block_rows<BF16>(a, b), block_outputs<BF16>(a, b),
      [&](int row, int output, float v) { store_output<Y>(a, b, row, output, v); });
}

MR_DEVICE void linear_fused(const LinearArgs& a) {
  const LinearBlock b = find_block(a);
  if (b.group < 0) return;
  each_output_fused(
      block_rows<float>(a, b), block_outputs<float>(a, b),
      [&](int row, int output, float v) { store_output<float>(a, b, row, output, v); });
}

MR_KERNEL(linear_bf16, kLinearWaves* kWave, LinearArgs a) { linear_tiles<BF16>(a); }
MR_KERNEL(linear_bf16_to_f32, kLinearWaves* kWave, LinearArgs a) { linear_tiles<float>(a); }
MR_KERNEL(linear_f32, kLinearThreadsF32, LinearArgs a) { linear_fused(a); }

template <class E>
MR_DEVICE void pack_element(const PackArgs& a) {
  const int64_t i = block_x() * kPackThreads + thread();
  if (i >= a.groups * a.n * a.k) return;
  const int64_t g = i / (a.n * a.k), j = i / a.k % a.n, k = i % a.k;
  const int64_t from = a.transpose ? (g * a.k + k) * a.n + j : i;
  store(static_cast<E*>(a.packed) + i, narrow_to<E>(load(a.w + from)));
}

MR_KERNEL(pack_f32, kPackThreads, PackArgs a) { pack_element<float>(a); }
MR_KERNEL(pack_bf16, kPackThreads, PackArgs a) { pack_element<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
