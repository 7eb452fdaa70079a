// Matmul, host side: pack b, round a, then multiply.
#include "kernels/gpu/matmul.h"

#include "base/check.h"
#include "kernels/ceil_div.h"
#include "kernels/gpu/linear.h"
#include "kernels/gpu/runtime.h"
#include "kernels/linear.h"

namespace moraine::gpu {
namespace {

// `to` has room for a matrix [rows, k] of a's type.
void* packed_into(Gpu& gpu, const Tensor& to, const PackMatrix& pack) {
  const PackedMatrix& p = pack.packed;
  const int64_t bytes = p.n * p.k * dtype_bytes(p.dtype);
  MR_CHECK(to.bytes() >= bytes, "scratch has %ld bytes, wants %ld", static_cast<long>(to.bytes()),
           static_cast<long>(bytes));
  PackMatrix whole = pack;
  whole.packed.data = to.data;
  pack_matrix(gpu, whole);
  return to.data;
}

}  // namespace

void matmul_nt(Gpu& gpu, const MatmulNT& a) {
  const int64_t n = a.c.dims[1];
  if (a.c.count() == 0) return;
  matmul_nt(gpu, a, product_size(1, a.c.dims[0], a.symmetric ? n / 2 : n));
}

void matmul_nt(Gpu& gpu, const MatmulNT& a, ProductSize size) {
  const int64_t m = a.c.dims[0], n = a.c.dims[1], k = a.a.dims[1];
  const bool tiles = a.compute == DType::kBF16;
  const bool same = a.a.data == a.b.data && (!a.b_is_kn || a.symmetric);
  const PackedMatrix pack_b = {.data = nullptr, .dtype = a.compute, .groups = 1, .n = n, .k = k};
  const void* const b =
      packed_into(gpu, a.scratch, {.packed = pack_b, .w = a.b, .transpose = a.b_is_kn && !same});
  const void* rows = a.a.data;
  if (tiles && same) rows = b;
  if (tiles && !same) {
    const PackedMatrix pack_a = {.data = nullptr, .dtype = a.compute, .groups = 1, .n = m, .k = k};
    rows = packed_into(gpu, a.rounded_a, {.packed = pack_a, .w = a.a, .transpose = false});
  }
  const MatmulArgs args = {.c = a.c.as<float>(),
                           .c0 = a.beta == 0 ? nullptr : a.c0.as<float>(),
                           .a = rows,
                           .b = b,
                           .m = m,
                           .n = n,
                           .k = k,
                           .alpha = a.alpha,
                           .beta = a.beta,
                           .symmetric = a.symmetric};
  const bool large = size == ProductSize::kLarge;
  const ProductShape shape = large ? kLargeProduct : kProduct;
  const int side = tiles ? shape.rows : kLinearRows;
  gpu.launch(tiles ? (large ? "matmul_bf16_large" : "matmul_bf16") : "matmul_f32",
             {.blocks_x = ceil_div(n, side),
              .blocks_y = ceil_div(m, side),
              .threads = tiles ? shape.waves() * gpu.wave() : kLinearThreadsF32},
             &args);
}

}  // namespace moraine::gpu
