// Matmul, host side: pack b, then multiply.
#include "kernels/gpu/matmul.h"

#include "base/check.h"
#include "kernels/gpu/linear.h"
#include "kernels/gpu/runtime.h"
#include "kernels/linear.h"

namespace moraine::gpu {

void matmul_nt(Gpu& gpu, const MatmulNT& a) {
  const int64_t m = a.c.dims[0], n = a.c.dims[1], k = a.a.dims[1];
  if (m == 0 || n == 0) return;
  const int64_t bytes = n * k * dtype_bytes(a.compute);
  MR_CHECK(a.scratch.bytes() >= bytes, "scratch has %ld bytes, wants %ld",
           static_cast<long>(a.scratch.bytes()), static_cast<long>(bytes));
  pack_matrix(gpu,
              {.packed = {.data = a.scratch.data, .dtype = a.compute, .groups = 1, .n = n, .k = k},
               .w = a.b,
               .transpose = a.b_is_kn});
  const MatmulArgs args = {.c = a.c.as<float>(),
                           .c0 = a.beta == 0 ? nullptr : a.c0.as<float>(),
                           .a = a.a.as<float>(),
                           .b = a.scratch.data,
                           .m = m,
                           .n = n,
                           .k = k,
                           .alpha = a.alpha,
                           .beta = a.beta,
                           .symmetric = a.symmetric};
  const bool tiles = a.compute == DType::kBF16;
  gpu.launch(tiles ? "matmul_bf16" : "matmul_f32",
             {.blocks_x = (n + kLinearOutputs - 1) / kLinearOutputs,
              .blocks_y = (m + kLinearRows - 1) / kLinearRows,
              .threads = tiles ? kLinearWaves * gpu.wave() : kLinearThreadsF32},
             &args);
}

}  // namespace moraine::gpu
