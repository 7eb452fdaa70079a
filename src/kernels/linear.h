// Linear: dense products with a packed weight, for all rows or for rows grouped by expert.
//
//   forward          y[t,n]   = sum_k x[t,k] * w[n,k] + bias[n]          (bias optional)
//   backward input   dx[t,k]  = sum_n dy[t,n] * w[n,k]                   (a forward with the transposed pack)
//   backward weight  dw[n,k] += sum_t dy[t,n] * x[t,k] ; dbias[n] += sum_t dy[t,n]   (dbias optional)
//   grouped          the same for each group g on rows [rows[g], rows[g+1]) with weight g
//   some panels      a forward that computes 32 columns here and 32 there, and leaves the others as they are
//
// A weight is packed once after it changed (pack_matrix) and then streamed by every product.
//
// Shapes:   T rows, n outputs, k inputs, G groups. Any sizes, also 0 rows; of quantised packs one input at least.
// Types:    x, dy: f32 or bf16 and the same as the pack's. y, dx: that type or f32. dw, dbias, bias: f32.
//           Sums in f32. The ref backend takes f64 everywhere as well.
// Aliasing: outputs overlap nothing.
// Order:    y[t,n] depends on row t of x and on w only: the same bits for any T, any position of the row,
//           any thread count, alone or grouped, all panels or some. Sums run over k ascending in an order that
//           is a function of k's extent only. dw sums over t ascending from the group's first row, in an order
//           that is a function of the group's row count only. Padding a sum with zero products is allowed.
// Errors:   wrong shapes or types are the caller's bug (MR_CHECK).
// Cost:     2*T*n*k flops; (T*k + n*k) inputs + T*n outputs.
// Source:   blocking after Goto and van de Geijn 2008.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

constexpr int64_t kPackPanel = 32;  // columns of a pack that stand together
constexpr int64_t packed_panels(int64_t n) { return (n + kPackPanel - 1) / kPackPanel; }

// What the bytes of a pack are. kQ8, kQ6, kQ4: blocks of integers with a scale each (kernels/quantised.h).
enum class WeightFormat : uint8_t {
  kPlain,
  kQ8,
  kQ6,
  kQ4
};  // kPlain: elements of PackedMatrix::dtype

// G weights of n x k in the order the kernels stream them. `data` holds packed_bytes(...) bytes.
struct PackedMatrix {
  void* data = nullptr;
  DType dtype = DType::kF32;  // of the rows that it multiplies
  int64_t groups = 1, n = 0, k = 0;
  WeightFormat format = WeightFormat::kPlain;
};

// Bytes of a pack, the same on every Isa. f64 packs (ref) are plain row-major copies.
int64_t packed_bytes(DType dtype, int64_t groups, int64_t n, int64_t k);
// The same for any format; `data` need not be there.
int64_t packed_bytes(const PackedMatrix& shape);
// One group's part of a pack: where it begins, and how long each is. 0 bytes without groups.
int64_t packed_group_bytes(const PackedMatrix& pack);
std::byte* packed_group(const PackedMatrix& pack, int64_t group);

// Takes an empty pack of this shape from the arena.
PackedMatrix take_packed(Arena& arena, const std::string& name, const PackedMatrix& shape);

struct PackMatrix {
  PackedMatrix packed;  // out: logical [G, n, k]
  Tensor w;  // [G*n, k], or [G*k, n] if transpose; f32 (ref: f64 too), rounded to packed.dtype
  bool transpose;  // pack the transpose of each group's matrix; plain packs only
  // [G*n, ceil(k / 128)] f32 or empty: the scales of blocks, as bf16 holds them, which are else chosen; for q6 and q4.
  Tensor scales = {};
  // out: [G, k, n], the transposes, by the same reads; no data: not made. Both together are for later, and large ones
  // pass the caches by.
  PackedMatrix transposed = {};
};
void pack_matrix(Context& ctx, const PackMatrix& a);

struct LinearForward {
  Tensor y;        // [T, n] out
  Tensor x;        // [T, k] in
  PackedMatrix w;  // n x k, one group
  Tensor bias;     // [n] in, or empty
};

struct LinearForwardPanels {
  Tensor y;                         // [T, n] out: columns [32 p, 32 p + 32) of each panel p
  Tensor x;                         // [T, k] in
  PackedMatrix w;                   // n x k, one group
  std::span<const int32_t> panels;  // ascending, each 0 .. ceil(n / 32) - 1
};

struct LinearBackwardInput {
  Tensor dx;       // [T, k] out
  Tensor dy;       // [T, n] in
  PackedMatrix w;  // packed with transpose: logical k x n (w.n == k of the forward)
};

struct LinearBackwardWeight {
  Tensor dw;     // [n, k] added to
  Tensor dbias;  // [n] added to, or empty
  Tensor dy;     // [T, n] in
  Tensor x;      // [T, k] in
};

void linear_forward(Context& ctx, const LinearForward& a);
void linear_forward_panels(Context& ctx, const LinearForwardPanels& a);
void linear_backward_input(Context& ctx, const LinearBackwardInput& a);
void linear_backward_weight(Context& ctx, const LinearBackwardWeight& a);

struct GroupedLinearForward {
  Tensor y;        // [T, n] out
  Tensor x;        // [T, k] in
  PackedMatrix w;  // G groups of n x k
  Tensor bias;     // [G, n] in, or empty
  std::span<const int64_t>
      rows;  // [G+1] ascending, rows[0] == 0, rows[G] <= T; rows beyond are untouched
};

struct GroupedLinearBackwardInput {
  Tensor dx;                      // [T, k] out
  Tensor dy;                      // [T, n] in
  PackedMatrix w;                 // G groups, packed with transpose
  std::span<const int64_t> rows;  // [G+1]
};

struct GroupedLinearBackwardWeight {
  Tensor dw;                      // [G, n, k] added to
  Tensor dbias;                   // [G, n] added to, or empty
  Tensor dy;                      // [T, n] in
  Tensor x;                       // [T, k] in
  std::span<const int64_t> rows;  // [G+1]
};

void grouped_linear_forward(Context& ctx, const GroupedLinearForward& a);
void grouped_linear_backward_input(Context& ctx, const GroupedLinearBackwardInput& a);
void grouped_linear_backward_weight(Context& ctx, const GroupedLinearBackwardWeight& a);

// Dense product of two row-major matrices, for the optimizer: c = alpha * a b^T + beta * c0.
//   a [m, k], b [n, k], c and c0 [m, n], all f32 (ref: f64). c may be c0; c0 is unused if beta == 0.
//   If `b_is_kn`, b is [k, n], and may be c or c0: c = alpha * a b + beta * c0. The same bits.
//   If `symmetric` (a b^T is known to be symmetric, m == n), only blocks on and above the diagonal are
//   computed and mirrored: half the flops. Operands are rounded to `compute` (f32 or bf16) when packed.
struct MatmulNT {
  Tensor c;
  Tensor c0;
  Tensor a;
  Tensor b;
  float alpha;
  float beta;
  bool symmetric;
  DType compute;
  bool b_is_kn = false;
  Tensor scratch;         // [matmul_scratch_bytes(n, k, compute)] u8
  Tensor rounded_a = {};  // [2 m k] u8: of a GPU with bf16 and an `a` that is not b; else unused
};
int64_t matmul_scratch_bytes(int64_t n, int64_t k, DType compute);
void matmul_nt(Context& ctx, const MatmulNT& a);

namespace ref {
void pack_matrix(const PackMatrix& a);
void grouped_linear_forward(const GroupedLinearForward& a);
void linear_forward_panels(const LinearForwardPanels& a);
void grouped_linear_backward_input(const GroupedLinearBackwardInput& a);
void grouped_linear_backward_weight(const GroupedLinearBackwardWeight& a);
void matmul_nt(const MatmulNT& a);
}  // namespace ref

namespace cpu {
void pack_matrix(Context& ctx, const PackMatrix& a);
void grouped_linear_forward(Context& ctx, const GroupedLinearForward& a);
void linear_forward_panels(Context& ctx, const LinearForwardPanels& a);
void grouped_linear_backward_input(Context& ctx, const GroupedLinearBackwardInput& a);
void grouped_linear_backward_weight(Context& ctx, const GroupedLinearBackwardWeight& a);
void matmul_nt(Context& ctx, const MatmulNT& a);
}  // namespace cpu

}  // namespace moraine
