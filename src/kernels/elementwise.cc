// Argument checks and backend choice for Elementwise. No arithmetic here.
#include "kernels/elementwise.h"

#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/squares.h"

namespace moraine {
namespace {

void check_counts(const Tensor& y, const Tensor& x) {
  MR_CHECK(y.count() == x.count(), "y is %s, x is %s", shape_text(y).c_str(),
           shape_text(x).c_str());
}

}  // namespace

void zero(Context& ctx, const Tensor& y) {
  const OpTimer timer(ctx.profile, "zero", 0, double(y.bytes()));
  if (y.count() == 0) return;
  if (ctx.backend == Backend::kGpu) return gpu::zero(*ctx.gpu, y);
  ctx.backend == Backend::kRef ? ref::zero(y) : cpu::zero(ctx, y);
}

void add_into(Context& ctx, const Tensor& y, const Tensor& x) {
  check_activation(x, "x");
  check_dtype(y, "y", wide_dtype(x.dtype));
  check_counts(y, x);
  const OpTimer timer(ctx.profile, "add_into", double(y.count()),
                      double(2 * y.bytes() + x.bytes()));
  if (y.count() == 0) return;
  if (ctx.backend == Backend::kGpu) return gpu::add_into(*ctx.gpu, y, x);
  ctx.backend == Backend::kRef ? ref::add_into(y, x) : cpu::add_into(ctx, y, x);
}

void scale(Context& ctx, const Tensor& y, float factor) {
  check_activation(y, "y");
  const OpTimer timer(ctx.profile, "scale", double(y.count()), 2.0 * double(y.bytes()));
  if (y.count() == 0) return;
  if (ctx.backend == Backend::kGpu) return gpu::scale(*ctx.gpu, y, factor);
  ctx.backend == Backend::kRef ? ref::scale(y, factor) : cpu::scale(ctx, y, factor);
}

void round_copy(Context& ctx, const Tensor& y, const Tensor& x, DType precision) {
  check_activation(y, "y");
  check_activation(x, "x");
  check_counts(y, x);
  MR_CHECK(precision == DType::kF32 || precision == DType::kBF16, "precision %s",
           dtype_name(precision));
  MR_CHECK(y.data != x.data || y.dtype == x.dtype, "x is y, but %s is not %s", dtype_name(x.dtype),
           dtype_name(y.dtype));
  const OpTimer timer(ctx.profile, "round_copy", 0, double(y.bytes() + x.bytes()));
  if (y.count() == 0) return;
  if (ctx.backend == Backend::kGpu) return gpu::round_copy(*ctx.gpu, y, x, precision);
  ctx.backend == Backend::kRef ? ref::round_copy(y, x, precision)
                               : cpu::round_copy(ctx, y, x, precision);
}

void squares_of_ranges(Context& ctx, const SquaresOfRanges& a) {
  check_activation(a.x, "x");
  MR_CHECK(a.sums.size() == a.ranges.size(), "%zu sums of %zu ranges", a.sums.size(),
           a.ranges.size());
  int64_t elements = 0;
  for (const ElementRange& r : a.ranges) {
    MR_CHECK(0 <= r.begin && r.begin <= r.end && r.end <= a.x.count(), "[%ld, %ld) of %ld",
             long(r.begin), long(r.end), long(a.x.count()));
    elements += r.end - r.begin;
  }
  const OpTimer timer(ctx.profile, "squares_of_ranges", 2.0 * double(elements),
                      double(elements * dtype_bytes(a.x.dtype)));
  if (a.ranges.empty()) return;
  dispatch(ctx, "squares_of_ranges", a,
           {ref::squares_of_ranges, cpu::squares_of_ranges, gpu::squares_of_ranges});
}

bool all_finite(Context& ctx, const Tensor& x) {
  check_activation(x, "x");
  const OpTimer timer(ctx.profile, "all_finite", 0, double(x.bytes()));
  if (x.count() == 0) return true;
  if (ctx.backend == Backend::kGpu) return gpu::all_finite(*ctx.gpu, x);
  return ctx.backend == Backend::kRef ? ref::all_finite(x) : cpu::all_finite(ctx, x);
}

}  // namespace moraine
