// Matmul, device side.
#include "kernels/gpu/linear_blocks.h"
#include "kernels/gpu/matmul.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// The element at (row, column) of the block, if it is inside; of a diagonal block of a symmetric one the upper half.
MR_DEVICE void store_element(const MatmulArgs& a, int row, int column, float sum) {
  const int64_t i = block_y() * kLinearRows + row, j = block_x() * kLinearOutputs + column;
  if (i >= a.m || j >= a.n || (a.symmetric && i > j)) return;
  const float product = a.alpha * sum;
  const float v = a.c0 == nullptr ? product : fused(a.beta, load(a.c0 + (i * a.n + j)), product);
  store(a.c + (i * a.n + j), v);
  if (a.symmetric) store(a.c + (j * a.n + i), v);
}

MR_DEVICE bool is_mirrored(const MatmulArgs& a) { return a.symmetric && block_x() < block_y(); }

template <class E>
MR_DEVICE LinearRows<E> matmul_columns(const MatmulArgs& a) {
  return {static_cast<const E*>(a.b), block_x() * kLinearOutputs, a.n, a.k};
}

MR_KERNEL(matmul_bf16, kLinearWaves* kWave, MatmulArgs a) {
  if (is_mirrored(a)) return;
  const LinearRows<float> rows = {a.a, block_y() * kLinearRows, a.m, a.k};
  each_output_by_tiles(rows, matmul_columns<BF16>(a),
                       [&](int row, int column, float v) { store_element(a, row, column, v); });
}

MR_KERNEL(matmul_f32, kLinearThreadsF32, MatmulArgs a) {
  if (is_mirrored(a)) return;
  const LinearRows<float> rows = {a.a, block_y() * kLinearRows, a.m, a.k};
  each_output_fused(rows, matmul_columns<float>(a),
                    [&](int row, int column, float v) { store_element(a, row, column, v); });
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
