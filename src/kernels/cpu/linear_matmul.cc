// The optimizer's product of two row-major matrices: pack one, run rows of the other.
#include "kernels/cpu/linear_rows.h"
#include "kernels/linear.h"

namespace moraine::cpu {
void matmul_nt(Context& ctx, const MatmulNT& a) {
  const int64_t m = a.c.dims[0], n = a.c.dims[1], k = a.a.dims[1];
  const PackedMatrix packed = {
      .data = a.scratch.data, .dtype = a.compute, .groups = 1, .n = n, .k = k};
  if (k > 0) cpu::pack_matrix(ctx, {.packed = packed, .w = a.b, .transpose = a.b_is_kn});
  const int64_t rows[2] = {0, m};
  run_rows_product(ctx,
                   {.y = a.c,
                    .x = a.a,
                    .w = packed,
                    .rows = rows,
                    .alpha = a.alpha,
                    .beta = a.beta,
                    .y0 = a.beta == 0 ? nullptr : a.c0.as<float>(),
                    .symmetric = a.symmetric},
                   linear_engine(a.compute));
  if (a.symmetric) mirror(ctx, a.c);
}

}  // namespace moraine::cpu
