// Argument checks, costs and backend choice for dense products. No arithmetic here.
#include "kernels/linear.h"

#include "kernels/ceil_div.h"
#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/linear.h"
#include "kernels/gpu/linear_weight.h"
#include "kernels/gpu/runtime.h"
#include "kernels/quantised.h"

namespace moraine {
namespace {

void check_packed(const PackedMatrix& w, DType dtype, int64_t groups, int64_t n, int64_t k) {
  MR_CHECK(w.dtype == dtype, "pack is %s, rows are %s", dtype_name(w.dtype), dtype_name(dtype));
  MR_CHECK(w.groups == groups, "pack has %ld groups, rows have %ld", static_cast<long>(w.groups),
           static_cast<long>(groups));
  MR_CHECK(w.n == n && w.k == k, "pack is %ld x %ld, tensors say %ld x %ld", static_cast<long>(w.n),
           static_cast<long>(w.k), static_cast<long>(n), static_cast<long>(k));
  MR_CHECK(k > 0 || w.format == WeightFormat::kPlain, "integers of no inputs");
}

int64_t groups_of(std::span<const int64_t> rows) { return static_cast<int64_t>(rows.size()) - 1; }

// G, with rows[0] == 0, ascending, rows[G] <= T.
int64_t check_rows(std::span<const int64_t> rows, int64_t T) {
  MR_CHECK(rows.size() >= 2, "%zu row bounds", rows.size());
  MR_CHECK(rows.front() == 0);
  for (size_t g = 1; g < rows.size(); ++g) MR_CHECK(rows[g - 1] <= rows[g], "rows[%zu]", g);
  MR_CHECK(rows.back() <= T, "rows end at %ld of %ld", static_cast<long>(rows.back()),
           static_cast<long>(T));
  return groups_of(rows);
}

void check_output(const Tensor& y, const char* name, DType activation) {
  MR_CHECK(y.dtype == activation || y.dtype == wide_dtype(activation), "%s is %s", name,
           dtype_name(y.dtype));
}

double flops(int64_t rows, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
}

// Of the packs, those of `groups` groups.
double forward_bytes(int64_t rows, int64_t groups, const Tensor& y, const Tensor& x,
                     const PackedMatrix& w) {
  const int64_t moved = rows * w.k * dtype_bytes(x.dtype) + rows * w.n * dtype_bytes(y.dtype) +
                        groups * packed_group_bytes(w);
  return static_cast<double>(moved);
}

// Those whose pack is read.
int64_t groups_with_rows(std::span<const int64_t> rows) {
  int64_t groups = 0;
  for (size_t g = 1; g < rows.size(); ++g) groups += rows[g] > rows[g - 1] ? 1 : 0;
  return groups;
}

// Whether the row bounds are in the GPU's memory, where a kernel reads them.
bool bounds_there(const Context& ctx, std::span<const int64_t> rows) {
  return ctx.backend == Backend::kGpu && ctx.gpu->holds(rows.data());
}

// Checks and runs; `name` is the operation's name in the profile.
void forward(Context& ctx, const GroupedLinearForward& a, const char* name) {
  MR_CHECK(a.x.rank == 2 && a.y.rank == 2, "x has rank %d, y has rank %d", a.x.rank, a.y.rank);
  check_activation(a.x, "x");
  const bool there = bounds_there(ctx, a.rows);
  const int64_t T = a.x.dims[0], n = a.w.n;
  const int64_t G = there ? groups_of(a.rows) : check_rows(a.rows, T);
  check_shape(a.y, "y", {T, n});
  check_output(a.y, "y", a.x.dtype);
  check_packed(a.w, a.x.dtype, G, n, a.x.dims[1]);
  check_tensor(a.bias, "bias", wide_dtype(a.x.dtype), {G, n}, true);
  const int64_t rows = there ? T : a.rows.back();
  if (rows == 0 || n == 0) return;
  OpTimer timer(ctx.profile, name, flops(rows, n, a.w.k),
                forward_bytes(rows, there ? G : groups_with_rows(a.rows), a.y, a.x, a.w),
                a.w.format != WeightFormat::kPlain);
  dispatch(ctx, name, a,
           {ref::grouped_linear_forward, cpu::grouped_linear_forward, gpu::grouped_linear_forward});
}

void backward_input(Context& ctx, const GroupedLinearBackwardInput& a, const char* name) {
  MR_CHECK(a.dy.rank == 2 && a.dx.rank == 2, "dy has rank %d, dx has rank %d", a.dy.rank,
           a.dx.rank);
  check_activation(a.dy, "dy");
  const bool there = bounds_there(ctx, a.rows);
  const int64_t T = a.dy.dims[0], G = there ? groups_of(a.rows) : check_rows(a.rows, T), k = a.w.n;
  MR_CHECK(a.w.format == WeightFormat::kPlain, "quantised packs are for forward products");
  check_shape(a.dx, "dx", {T, k});
  check_output(a.dx, "dx", a.dy.dtype);
  check_packed(a.w, a.dy.dtype, G, k, a.dy.dims[1]);
  const int64_t rows = there ? T : a.rows.back();
  if (rows == 0 || k == 0) return;
  OpTimer timer(ctx.profile, name, flops(rows, k, a.w.k),
                forward_bytes(rows, there ? G : groups_with_rows(a.rows), a.dx, a.dy, a.w));
  dispatch(ctx, name, a,
           {ref::grouped_linear_backward_input, cpu::grouped_linear_backward_input,
            gpu::grouped_linear_backward_input});
}

void backward_weight(Context& ctx, const GroupedLinearBackwardWeight& a, const char* name) {
  MR_CHECK(a.dy.rank == 2 && a.x.rank == 2, "dy has rank %d, x has rank %d", a.dy.rank, a.x.rank);
  check_activation(a.x, "x");
  const bool there = bounds_there(ctx, a.rows);
  const int64_t T = a.x.dims[0], G = there ? groups_of(a.rows) : check_rows(a.rows, T),
                n = a.dy.dims[1], k = a.x.dims[1];
  check_tensor(a.dy, "dy", a.x.dtype, {T, n});
  check_tensor(a.dw, "dw", wide_dtype(a.x.dtype), {G, n, k});
  check_tensor(a.dbias, "dbias", wide_dtype(a.x.dtype), {G, n}, true);
  const int64_t rows = there ? T : a.rows.back();
  if (rows == 0) return;
  const int64_t moved = rows * (n + k) * dtype_bytes(a.x.dtype) + 2 * a.dw.bytes();
  OpTimer timer(ctx.profile, name, flops(rows, n, k), static_cast<double>(moved));
  dispatch(ctx, name, a,
           {ref::grouped_linear_backward_weight, cpu::grouped_linear_backward_weight,
            gpu::grouped_linear_backward_weight});
}

Tensor one_group(const Tensor& bias) {
  return bias.empty() ? bias : bias.reshaped({1, bias.count()});
}

}  // namespace

int64_t packed_bytes(DType dtype, int64_t groups, int64_t n, int64_t k) {
  if (dtype == DType::kF64) return groups * n * k * dtype_bytes(dtype);
  const int64_t padded_n = packed_panels(n) * kPackPanel;
  const int64_t padded_k = dtype == DType::kBF16 ? (k + 1) / 2 * 2 : k;
  return groups * padded_n * padded_k * dtype_bytes(dtype);
}

int64_t packed_bytes(const PackedMatrix& shape) {
  if (shape.format != WeightFormat::kPlain)
    return quantised_bytes(shape.format, shape.groups, shape.n, shape.k);
  return packed_bytes(shape.dtype, shape.groups, shape.n, shape.k);
}

int64_t packed_group_bytes(const PackedMatrix& pack) {
  return pack.groups == 0 ? 0 : packed_bytes(pack) / pack.groups;
}

std::byte* packed_group(const PackedMatrix& pack, int64_t group) {
  return static_cast<std::byte*>(pack.data) + group * packed_group_bytes(pack);
}

PackedMatrix take_packed(Arena& arena, const std::string& name, const PackedMatrix& shape) {
  PackedMatrix packed = shape;
  packed.data = arena.take_bytes(name, "copy", packed_bytes(shape));
  return packed;
}

namespace {

void pack_quantised(Context& ctx, const PackMatrix& a) {
  const PackedMatrix& p = a.packed;
  if (ctx.backend == Backend::kGpu) refuse_gpu("pack_matrix of quantised weights");
  MR_CHECK(p.data != nullptr, "a pack has no memory");
  MR_CHECK(!a.transpose, "quantised packs are for forward products");
  MR_CHECK(a.scales.empty() || has_few_bits(p.format), "q8 chooses its scales");
  check_dtype(a.w, "w", DType::kF32);
  check_tensor(a.scales, "scales", DType::kF32, {p.groups * p.n, ceil_div(p.k, kQuantisedBlock)},
               true);
  OpTimer timer(ctx.profile, "pack_matrix", 0, static_cast<double>(a.w.bytes() + packed_bytes(p)));
  const int64_t panels = packed_panels(p.n);
  ctx.pool->parallel_for(p.groups * panels, [&](int64_t task, int) {
    quantise_panel(a, task / panels, task % panels);
  });
}

}  // namespace

void pack_matrix(Context& ctx, const PackMatrix& a) {
  const PackedMatrix& p = a.packed;
  MR_CHECK(p.dtype == DType::kF32 || p.dtype == DType::kBF16 || p.dtype == DType::kF64,
           "pack is %s", dtype_name(p.dtype));
  const int64_t inner = a.transpose ? p.n : p.k, outer = a.transpose ? p.k : p.n;
  check_shape(a.w, "w", {p.groups * outer, inner});
  if (ctx.backend != Backend::kRef) check_dtype(a.w, "w", DType::kF32);
  const int64_t count = p.groups * p.n * p.k;
  if (count == 0) return;
  const PackedMatrix& t = a.transposed;
  const bool both = t.data != nullptr;
  if (both) {
    MR_CHECK(t.dtype == p.dtype && t.groups == p.groups && t.n == p.k && t.k == p.n);
    MR_CHECK(p.format == WeightFormat::kPlain && t.format == WeightFormat::kPlain);
  }
  if (p.format != WeightFormat::kPlain) return pack_quantised(ctx, a);
  MR_CHECK(p.data != nullptr, "a pack has no memory");
  if (both && ctx.backend != Backend::kCpu) {
    pack_matrix(ctx, {.packed = p, .w = a.w, .transpose = a.transpose});
    return pack_matrix(ctx, {.packed = t, .w = a.w, .transpose = !a.transpose});
  }
  OpTimer timer(ctx.profile, "pack_matrix", 0,
                static_cast<double>(a.w.bytes() + (both ? 2 : 1) * count * dtype_bytes(p.dtype)));
  dispatch(ctx, "pack_matrix", a, {ref::pack_matrix, cpu::pack_matrix, gpu::pack_matrix});
}

void linear_forward(Context& ctx, const LinearForward& a) {
  const int64_t rows[2] = {0, a.x.dims[0]};
  forward(ctx, {.y = a.y, .x = a.x, .w = a.w, .bias = one_group(a.bias), .rows = rows},
          "linear_forward");
}

void linear_forward_panels(Context& ctx, const LinearForwardPanels& a) {
  MR_CHECK(a.x.rank == 2, "x has rank %d", a.x.rank);
  check_activation(a.x, "x");
  const int64_t T = a.x.dims[0], n = a.w.n, panels = packed_panels(n);
  check_shape(a.y, "y", {T, n});
  check_output(a.y, "y", a.x.dtype);
  check_packed(a.w, a.x.dtype, 1, n, a.x.dims[1]);
  for (size_t i = 0; i < a.panels.size(); ++i) {
    MR_CHECK(a.panels[i] > (i == 0 ? -1 : a.panels[i - 1]) && a.panels[i] < panels,
             "panel %d of %ld", a.panels[i], static_cast<long>(panels));
  }
  if (T == 0 || a.panels.empty()) return;
  const double part = static_cast<double>(a.panels.size()) / static_cast<double>(panels);
  OpTimer timer(ctx.profile, "linear_forward_panels", part * flops(T, n, a.w.k),
                part * forward_bytes(T, 1, a.y, a.x, a.w), a.w.format != WeightFormat::kPlain);
  dispatch(ctx, "linear_forward_panels", a,
           {ref::linear_forward_panels, cpu::linear_forward_panels});
}

void linear_backward_input(Context& ctx, const LinearBackwardInput& a) {
  const int64_t rows[2] = {0, a.dy.dims[0]};
  backward_input(ctx, {.dx = a.dx, .dy = a.dy, .w = a.w, .rows = rows}, "linear_backward_input");
}

void linear_backward_weight(Context& ctx, const LinearBackwardWeight& a) {
  MR_CHECK(a.dw.rank == 2, "dw has rank %d", a.dw.rank);
  const int64_t rows[2] = {0, a.x.dims[0]};
  backward_weight(ctx,
                  {.dw = a.dw.reshaped({1, a.dw.dims[0], a.dw.dims[1]}),
                   .dbias = one_group(a.dbias),
                   .dy = a.dy,
                   .x = a.x,
                   .rows = rows},
                  "linear_backward_weight");
}

void grouped_linear_forward(Context& ctx, const GroupedLinearForward& a) {
  forward(ctx, a, "grouped_linear_forward");
}

void grouped_linear_backward_input(Context& ctx, const GroupedLinearBackwardInput& a) {
  backward_input(ctx, a, "grouped_linear_backward_input");
}

void grouped_linear_backward_weight(Context& ctx, const GroupedLinearBackwardWeight& a) {
  backward_weight(ctx, a, "grouped_linear_backward_weight");
}

int64_t matmul_scratch_bytes(int64_t n, int64_t k, DType compute) {
  return packed_bytes(compute, 1, n, k);
}

void matmul_nt(Context& ctx, const MatmulNT& a) {
  MR_CHECK(a.a.rank == 2 && a.b.rank == 2, "a has rank %d, b has rank %d", a.a.rank, a.b.rank);
  const int64_t m = a.a.dims[0], n = a.b.dims[a.b_is_kn ? 1 : 0], k = a.a.dims[1];
  const DType dtype = a.a.dtype;
  check_activation(a.a, "a");
  MR_CHECK(dtype != DType::kBF16, "operands of matmul_nt are f32");
  MR_CHECK(a.compute == DType::kF32 || a.compute == DType::kBF16, "compute is %s",
           dtype_name(a.compute));
  check_shape(a.b, "b", {a.b_is_kn ? k : n, a.b_is_kn ? n : k});
  check_dtype(a.b, "b", dtype);
  check_tensor(a.c, "c", dtype, {m, n});
  if (a.beta != 0) check_tensor(a.c0, "c0", dtype, {m, n});
  if (a.symmetric) MR_CHECK(m == n, "m=%ld n=%ld", static_cast<long>(m), static_cast<long>(n));
  if (m == 0 || n == 0) return;
  if (ctx.backend == Backend::kGpu) refuse_gpu("matmul_nt");
  OpTimer timer(ctx.profile, "matmul_nt", flops(m, n, k) / (a.symmetric ? 2 : 1),
                static_cast<double>(a.a.bytes() + a.b.bytes() + a.c.bytes()));
  if (ctx.backend == Backend::kRef) {
    ref::matmul_nt(a);
    return;
  }
  check_dtype(a.a, "a", DType::kF32);
  check_tensor(a.scratch, "scratch", DType::kU8, {matmul_scratch_bytes(n, k, a.compute)});
  cpu::matmul_nt(ctx, a);
}

}  // namespace moraine
