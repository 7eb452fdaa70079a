// ResidualNorm, Swiglu and packs on an emulated GPU: fails if a backend formula is off, if a row's bits depend on the
// batch, or if a bit depends on the wave or on the order of threads.
#include <gtest/gtest.h>

#include "kernels/check_tensor.h"
#include "kernels/gpu/linear.h"
#include "kernels/gpu/residual_norm.h"
#include "kernels/gpu/swiglu.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "kernels/swiglu.h"

namespace moraine::gpu {
namespace {

using namespace testing;

struct ForwardNormCase {
  int64_t T, D;
  DType dtype;
  bool merge, scale;
};

constexpr ForwardNormCase kForwardNormCases[] = {
    {1, 1, DType::kF32, true, true},      // smallest
    {3, 127, DType::kF32, true, true},    // fewer than a block's threads
    {2, 257, DType::kBF16, true, true},   // one more
    {3, 64, DType::kBF16, true, false},   // plain residual
    {2, 300, DType::kF32, false, true},   // embedding merge
    {2, 40, DType::kBF16, false, false},  // RMSNorm alone
    {1, 2048, DType::kBF16, true, true},  // the width of the model
};

ResidualNormForward norm_forward_data(Rig& rig, const ForwardNormCase& c) {
  const auto channels = [&](bool present, uint64_t seed) {
    return present ? rig.normal({c.D}, DType::kF32, seed) : Tensor();
  };
  return {.r_out = rig.zeros({c.T, c.D}, DType::kF32),
          .x = rig.zeros({c.T, c.D}, c.dtype),
          .rstd = rig.zeros({c.T}, DType::kF32),
          .h = rig.normal({c.T, c.D}, c.dtype, 1),
          .r = c.merge ? rig.normal({c.T, c.D}, DType::kF32, 2) : Tensor(),
          .scale = {.h_scale = channels(c.scale, 3),
                    .h_bias = channels(c.scale, 4),
                    .r_scale = channels(c.scale && c.merge, 5),
                    .r_bias = channels(c.scale && c.merge, 6)},
          .norm = channels(true, 7),
          .eps = 1e-2f};  // large, so that leaving it out shows
}

ResidualNormForward run(GpuRig& rig, const ResidualNormForward& a) {
  const ResidualNormForward d = {.r_out = rig.put(a.r_out),
                                 .x = rig.put(a.x),
                                 .rstd = rig.put(a.rstd),
                                 .h = rig.put(a.h),
                                 .r = rig.put(a.r),
                                 .scale = {.h_scale = rig.put(a.scale.h_scale),
                                           .h_bias = rig.put(a.scale.h_bias),
                                           .r_scale = rig.put(a.scale.r_scale),
                                           .r_bias = rig.put(a.scale.r_bias)},
                                 .norm = rig.put(a.norm),
                                 .eps = a.eps};
  residual_norm_forward(*rig.gpu, d);
  return d;
}

TEST(GpuResidualNorm, MatchesTheReferenceWithOneResult) {
  for (const ForwardNormCase& c : kForwardNormCases) {
    SCOPED_TRACE("T=" + std::to_string(c.T) + " D=" + std::to_string(c.D));
    Rig host;
    const ResidualNormForward want = norm_forward_data(host, c);
    ref::residual_norm_forward(want);
    GpuRig rig({.wave = 64});
    const ResidualNormForward got = run(rig, want);
    EXPECT_CLOSE(rig.get(host, got.r_out), want.r_out, tolerance(DType::kF32, 4));
    EXPECT_CLOSE(rig.get(host, got.x), want.x, tolerance(c.dtype, c.D));
    EXPECT_CLOSE(rig.get(host, got.rstd), want.rstd, tolerance(DType::kF32, c.D));
    expect_one_result(all_emulations(), [&](GpuRig& r) { return run(r, want).x; });
  }
}

TEST(GpuResidualNorm, ARowAloneIsTheRowInCompany) {
  Rig host;
  const ResidualNormForward all = norm_forward_data(host, {5, 130, DType::kBF16, true, true});
  GpuRig rig({.wave = 32});
  const Tensor together = rig.get(host, run(rig, all).x);
  for (const int64_t t : {0, 3, 4}) {
    ResidualNormForward one = all;
    for (Tensor* tensor : {&one.r_out, &one.x, &one.rstd, &one.h, &one.r}) {
      *tensor = tensor->rows(t, t + 1);
    }
    EXPECT_SAME_BITS(rig.get(host, run(rig, one).x), together.rows(t, t + 1));
  }
}

TEST(GpuSwiglu, MatchesTheReferenceWithOneResult) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig host;
    const int64_t T = 5, F = 97, rows = 4;
    SwigluForward a = {.y = host.normal({T, F}, dtype, 1),
                       .gate_up = host.normal({T, 2 * F}, dtype, 2, 20),
                       .rows = rows};
    const auto on = [&](GpuRig& rig) {
      const SwigluForward d = {.y = rig.put(a.y), .gate_up = rig.put(a.gate_up), .rows = rows};
      swiglu_forward(*rig.gpu, d);
      return d.y;
    };
    const Tensor untouched = host.copy(a.y);
    GpuRig rig({.wave = 32});
    const Tensor got = rig.get(host, on(rig));
    expect_one_result(all_emulations(), on);
    ref::swiglu_forward(a);
    EXPECT_CLOSE(got, a.y, tolerance(dtype, 4));
    EXPECT_SAME_BITS(got.rows(rows, T), untouched.rows(rows, T));
  }
}

TEST(GpuSwiglu, RowsMayBeCountedByBoundsOfTheGpuOrOfTheHost) {
  Rig host;
  GpuRig rig({.wave = 32});
  const Tensor bounds = host.zeros({3}, DType::kI64),
               gate_up = host.normal({5, 20}, DType::kF32, 1),
               before = host.normal({5, 10}, DType::kF32, 2),
               dbefore = host.normal({5, 20}, DType::kF32, 3);
  bounds.as<int64_t>()[2] = 3;
  const Tensor there = rig.put(bounds);
  const auto on = [&](RowCount rows) {
    const Tensor y = rig.put(before);
    moraine::swiglu_forward(rig.ctx, {.y = y, .gate_up = rig.put(gate_up), .rows = rows});
    return rig.get(host, y);
  };
  const Tensor want = on(3);
  EXPECT_SAME_BITS(want.rows(3, 5), before.rows(3, 5));
  EXPECT_SAME_BITS(on(RowCount::last_of({there.as<int64_t>(), 3})), want);
  EXPECT_SAME_BITS(on(RowCount::last_of({bounds.as<int64_t>(), 3})), want);
  const auto gradient_on = [&](RowCount rows) {
    const Tensor dgate_up = rig.put(dbefore);
    moraine::swiglu_backward(
        rig.ctx,
        {.dgate_up = dgate_up, .dy = rig.put(before), .gate_up = rig.put(gate_up), .rows = rows});
    return rig.get(host, dgate_up);
  };
  const Tensor gradient = gradient_on(3);
  EXPECT_SAME_BITS(gradient.rows(3, 5), dbefore.rows(3, 5));
  EXPECT_SAME_BITS(gradient_on(RowCount::last_of({there.as<int64_t>(), 3})), gradient);
  EXPECT_SAME_BITS(gradient_on(RowCount::last_of({bounds.as<int64_t>(), 3})), gradient);
}

TEST(GpuPack, IsTheReferencesRowMajorCopy) {
  for (const bool transpose : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Rig host;
      const int64_t G = 2, n = 7, k = 50;
      PackMatrix a = {
          .packed = {.dtype = dtype, .groups = G, .n = n, .k = k},
          .w = host.normal({G * (transpose ? k : n), transpose ? n : k}, DType::kF32, 1),
          .transpose = transpose};
      const Tensor want = host.zeros({G * n, k}, dtype);
      GpuRig rig({.wave = 64});
      PackMatrix d = a;
      const Tensor packed = rig.put(want);
      d.packed.data = packed.data;
      d.w = rig.put(a.w);
      pack_matrix(*rig.gpu, d);
      a.packed.data = want.data;
      ref::pack_matrix(a);
      EXPECT_SAME_BITS(rig.get(host, packed), want);
    }
  }
}

}  // namespace
}  // namespace moraine::gpu
