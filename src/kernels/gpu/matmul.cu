// Matmul, device side.
#include "kernels/gpu/matmul.h"

#include "kernels/gpu/linear_blocks.h"
#include "kernels/gpu/product_block.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// A block of a product.
struct MatmulBlock {
  int64_t row, column;
};

// The element at (row, column) of the block, if it is inside; of a diagonal block of a symmetric one the upper half.
MR_DEVICE void store_element(const MatmulArgs& a, const MatmulBlock& b, int row, int column,
                             float sum) {
  const int64_t i = b.row + row, j = b.column + column;
  if (i >= a.m || j >= a.n || (a.symmetric && i > j)) return;
  const float product = a.alpha * sum;
  const float v = a.c0 == nullptr ? product : fused(a.beta, load(a.c0 + (i * a.n + j)), product);
  store(a.c + (i * a.n + j), v);
  if (a.symmetric) store(a.c + (j * a.n + i), v);
}

// A block that is whole and has no diagonal: what was there is on its way for a row of tiles before it is overwritten.
template <ProductShape S>
MR_DEVICE void store_whole(const MatmulArgs& a, const MatmulBlock& b, WaveSums<S>& sums) {
  const TileCell first = sums.first_cell();
  const int64_t row = b.row + first.row, column = b.column + first.column;
  float* const c = a.c + (row * a.n + column);
  float* const mirror = a.c + (column * a.n + row);
  const float* const c0 = a.c0 == nullptr ? nullptr : a.c0 + (row * a.n + column);
  MR_UNROLL for (int i = 0; i < sums.kDown; ++i) {
    sums.each_run_of(i, [&](float* v, int down, int across) {
      SumRun<float> before = {};
      if (c0 != nullptr) before = load_run(c0 + (down * a.n + across));
      MR_UNROLL for (int e = 0; e < kSumRun; ++e) {
        const float product = a.alpha * v[e];
        v[e] = c0 == nullptr ? product : fused(a.beta, before.v[e], product);
      }
    });
    sums.each_run_of(i, [&](const float* v, int down, int across) {
      store_run(c + (down * a.n + across), v);
      if (!a.symmetric) return;
      MR_UNROLL for (int e = 0; e < kSumRun; ++e) store(mirror + ((across + e) * a.n + down), v[e]);
    });
  }
}

MR_DEVICE bool is_mirrored(const MatmulArgs& a) { return a.symmetric && block_x() < block_y(); }

template <ProductShape S>
MR_DEVICE void matmul_tiles(const MatmulArgs& a) {
  static_assert(S.rows == S.columns, "blocks of a symmetric product are mirrored");
  if (is_mirrored(a)) return;
  const MatmulBlock b = {block_y() * S.rows, block_x() * S.columns};
  WaveSums<S> sums = {};
  add_product<S>(sums, RowsByLines<S>({static_cast<const BF16*>(a.a), b.row, a.m, a.k}),
                 ColumnsByLines<S>({static_cast<const BF16*>(a.b), b.column, a.n, a.k}),
                 {a.k, true}, [](Shared<Chunk>) {});
  const bool whole = b.row + S.rows <= a.m && b.column + S.columns <= a.n &&
                     !(a.symmetric && b.row == b.column) &&
                     lines_are_aligned<SumRun<float>>(a.c, a.n) &&
                     (a.c0 == nullptr || lines_are_aligned<SumRun<float>>(a.c0, a.n));
  if (whole) {
    store_whole<S>(a, b, sums);
  } else {
    sums.each([&](int row, int column, float v) { store_element(a, b, row, column, v); });
  }
}

MR_KERNEL(matmul_bf16, kProduct.waves() * kWave, MatmulArgs a) { matmul_tiles<kProduct>(a); }
MR_KERNEL(matmul_bf16_large, kLargeProduct.waves() * kWave, MatmulArgs a) {
  matmul_tiles<kLargeProduct>(a);
}

MR_KERNEL(matmul_f32, kLinearThreadsF32, MatmulArgs a) {
  if (is_mirrored(a)) return;
  const MatmulBlock b = {block_y() * kLinearRows, block_x() * kLinearOutputs};
  each_output_fused({static_cast<const float*>(a.a), b.row, a.m, a.k},
                    {static_cast<const float*>(a.b), b.column, a.n, a.k},
                    [&](int row, int column, float v) { store_element(a, b, row, column, v); });
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
