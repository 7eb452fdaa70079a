// NewtonSchulz: three products per step; the third packs X by its columns.
#include "optim/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include "kernels/check_tensor.h"
#include "kernels/linear.h"
#include "optim/flat_math.h"

namespace moraine {
namespace {

struct Coefficients {
  double a, b, c;
};

constexpr Coefficients kClassic = {3.4445, -4.7750, 2.0315};

// For five steps, safety 0.02, cushion 2.
constexpr std::array<Coefficients, 5> kPolarExpress = {{
    {8.156554524902461, -22.48329292557795, 15.878769915207462},
    {4.042929935166739, -2.808917465908714, 0.5000178451051316},
    {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
    {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
}};

constexpr int64_t kTransposeRows = 64;  // rows moved by one task

Coefficients coefficients(NewtonSchulzKind kind, int step) {
  if (kind == NewtonSchulzKind::kClassic) return kClassic;
  return kPolarExpress[static_cast<size_t>(std::min(step, 4))];
}

int64_t num_blocks(int64_t count, int64_t block) { return (count + block - 1) / block; }
int64_t padded_bytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The pieces of the scratch buffer.
struct ScratchPieces {
  int64_t gram_bytes, partial_bytes, product_bytes;
  ScratchPieces(int64_t m, int64_t n, DType compute)
      : gram_bytes(padded_bytes(m * m * 4)),
        partial_bytes(padded_bytes(num_blocks(m * n, kNormBlock) * 8)),
        product_bytes(padded_bytes(
            std::max({matmul_scratch_bytes(m, n, compute), matmul_scratch_bytes(m, m, compute),
                      matmul_scratch_bytes(n, m, compute)}))) {}
  int64_t bytes() const { return 2 * gram_bytes + partial_bytes + product_bytes; }
};

void normalise(Context& ctx, const Tensor& x, double* partial, NewtonSchulzKind kind) {
  const int64_t count = x.count(), blocks = num_blocks(count, kNormBlock);
  float* data = x.as<float>();
  ctx.pool->parallel_for(blocks, [&](int64_t block, int) {
    const int64_t begin = block * kNormBlock;
    partial[block] = sum_of_squares_block(data + begin, std::min(kNormBlock, count - begin));
  });
  double sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += partial[block];
  const NewtonSchulzNorm norm = newton_schulz_norm(kind);
  const double divisor = norm.gain * std::sqrt(sum) + norm.eps;
  const float factor = static_cast<float>(1 / divisor);
  ctx.pool->parallel_for(blocks, [&](int64_t block, int) {
    const int64_t begin = block * kNormBlock;
    scale_block(data + begin, std::min(kNormBlock, count - begin), factor);
  });
}

}  // namespace

const char* newton_schulz_name(NewtonSchulzKind kind) {
  return kind == NewtonSchulzKind::kClassic ? "classic" : "polar_express";
}

int64_t newton_schulz_scratch_bytes(int64_t m, int64_t n, DType compute) {
  return ScratchPieces(m, n, compute).bytes();
}

double newton_schulz_flops(int64_t m, int64_t n, int steps) {
  const double dm = static_cast<double>(m), dn = static_cast<double>(n);
  return steps * (3 * dm * dm * dn + dm * dm * dm);
}

void transpose(Context& ctx, const Tensor& out, const Tensor& in) {
  const int64_t rows = in.dims[0], cols = in.dims[1];
  check_tensor(out, "out", DType::kF32, {cols, rows});
  float* to = out.as<float>();
  const float* from = in.as<float>();
  ctx.pool->parallel_for(num_blocks(rows, kTransposeRows), [&](int64_t block, int) {
    const int64_t begin = block * kTransposeRows;
    transpose_block({.out = to,
                     .in = from,
                     .rows = rows,
                     .cols = cols,
                     .row_begin = begin,
                     .row_end = std::min(begin + kTransposeRows, rows)});
  });
}

NewtonSchulzNorm newton_schulz_norm(NewtonSchulzKind kind) {
  if (kind == NewtonSchulzKind::kClassic) return {.gain = 1, .eps = 1e-7};
  return {.gain = 1.02, .eps = 1e-6};
}

NewtonSchulzRooms newton_schulz_rooms(const NewtonSchulz& a) {
  const int64_t m = a.x.dims[0], n = a.x.dims[1];
  check_tensor(a.x, "x", DType::kF32, {m, n});
  MR_CHECK(m >= 1 && m <= n, "m=%ld n=%ld", long(m), long(n));
  const ScratchPieces layout(m, n, a.compute);
  MR_CHECK(a.scratch.bytes() >= layout.bytes(), "scratch has %ld bytes, wants %ld",
           long(a.scratch.bytes()), long(layout.bytes()));
  uint8_t* memory = a.scratch.as<uint8_t>();
  uint8_t* const sums = memory + 2 * layout.gram_bytes;
  return {.gram = make_tensor(memory, DType::kF32, {m, m}),
          .poly = make_tensor(memory + layout.gram_bytes, DType::kF32, {m, m}),
          .sums = reinterpret_cast<double*>(sums),
          .pack = sums + layout.partial_bytes};
}

void newton_schulz_products(const NewtonSchulz& a,
                            const std::function<void(const MatmulNT&)>& multiply) {
  const int64_t m = a.x.dims[0], n = a.x.dims[1];
  const NewtonSchulzRooms rooms = newton_schulz_rooms(a);
  const auto product = [&](int64_t rows,
                           int64_t terms) {  // scratch of a product with b [rows, terms]
    return make_tensor(rooms.pack, DType::kU8, {matmul_scratch_bytes(rows, terms, a.compute)});
  };
  for (int step = 0; step < a.steps; ++step) {
    const Coefficients k = coefficients(a.kind, step);
    const float ka = static_cast<float>(k.a), kb = static_cast<float>(k.b),
                kc = static_cast<float>(k.c);
    multiply({.c = rooms.gram,
              .c0 = {},
              .a = a.x,
              .b = a.x,
              .alpha = 1,
              .beta = 0,
              .symmetric = true,
              .compute = a.compute,
              .scratch = product(m, n)});
    multiply({.c = rooms.poly,
              .c0 = rooms.gram,
              .a = rooms.gram,
              .b = rooms.gram,
              .alpha = kc,
              .beta = kb,
              .symmetric = true,
              .compute = a.compute,
              .b_is_kn = true,  // its own transpose, bit by bit; columns are packed faster
              .scratch = product(m, m)});
    multiply(
        {.c = a.x,
         .c0 = a.x,
         .a = rooms.poly,
         .b = a.x,
         .alpha = 1,
         .beta = ka,
         .symmetric = false,
         .compute = a.compute,
         .b_is_kn = true,
         .scratch = product(n, m),
         .rounded_a = make_tensor(rooms.gram.data, DType::kU8, {2 * m * m})});  // gram is done with
  }
}

void newton_schulz(Context& ctx, const NewtonSchulz& a) {
  normalise(ctx, a.x, newton_schulz_rooms(a).sums, a.kind);
  newton_schulz_products(a, [&](const MatmulNT& product) { matmul_nt(ctx, product); });
}

}  // namespace moraine
