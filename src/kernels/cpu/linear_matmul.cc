// The optimizer's product of two row-major matrices: pack one, run rows of the other.
#include <algorithm>

#include "kernels/cpu/linear_rows.h"
#include "kernels/linear.h"

namespace moraine::cpu {
namespace {

// c[j,i] = c[i,j] for j > i, in blocks that fit L1.
void mirror(Context& ctx, const Tensor& c) {
  constexpr int64_t kBlock = 32;
  const int64_t n = c.dims[0], blocks = (n + kBlock - 1) / kBlock;
  float* data = c.as<float>();
  ctx.pool->parallel_for(blocks, [&](int64_t block, int) {
    const int64_t j0 = block * kBlock, j1 = std::min(j0 + kBlock, n);
    for (int64_t i0 = 0; i0 < j1; i0 += kBlock) {
      for (int64_t j = j0; j < j1; ++j) {
        for (int64_t i = i0; i < std::min(i0 + kBlock, j); ++i) data[j * n + i] = data[i * n + j];
      }
    }
  });
}

}  // namespace

void matmul_nt(Context& ctx, const MatmulNT& a) {
  const int64_t m = a.a.dims[0], n = a.b.dims[0], k = a.a.dims[1];
  const PackedMatrix packed = {
      .data = a.scratch.data, .dtype = a.compute, .groups = 1, .n = n, .k = k};
  if (k > 0) cpu::pack_matrix(ctx, {.packed = packed, .w = a.b, .transpose = false});
  const int64_t rows[2] = {0, m};
  run_rows_product(ctx, {.y = a.c,
                         .x = a.a,
                         .w = packed,
                         .bias = nullptr,
                         .rows = rows,
                         .alpha = a.alpha,
                         .beta = a.beta,
                         .y0 = a.beta == 0 ? nullptr : a.c0.as<float>(),
                         .symmetric = a.symmetric});
  if (a.symmetric) mirror(ctx, a.c);
}

}  // namespace moraine::cpu
