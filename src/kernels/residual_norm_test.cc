// ResidualNorm: fails if a term of the merge, of RMSNorm or of their gradients is lost or changes
// sign, if a backend overwrites where it should add, or if a row's bits depend on the batch or the
// threads.
#include "kernels/residual_norm.h"

#include <gtest/gtest.h>

#include <functional>

#include "kernels/check_tensor.h"
#include "kernels/ref/element.h"
#include "kernels/test_backends.h"
#include "testing/two_ways.h"

namespace moraine {
namespace {

using namespace testing;

struct NormCase {
  int64_t T, D;
  DType dtype;
  bool merge, scale, later;  // r, the four vectors, dr_out are given
};

constexpr NormCase kNormCases[] = {
    {1, 1, DType::kF32, true, true, true},      // smallest
    {3, 127, DType::kF32, true, true, true},    // no vector width divides D
    {7, 33, DType::kBF16, true, true, false},   // the last layer: no gradient by the residual path
    {65, 64, DType::kBF16, true, true, true},   // one past a block of rows
    {130, 16, DType::kF32, true, false, true},  // plain residual
    {130, 31, DType::kBF16, true, false, false},
    {67, 48, DType::kBF16, false, true, true},  // embedding merge
    {5, 17, DType::kF32, false, true, false},
    {66, 40, DType::kF32, false, false, true},  // RMSNorm alone
    {4, 19, DType::kBF16, false, false, false},
    {9, 2048, DType::kBF16, true, true, true},  // the width of the model
    {0, 64, DType::kBF16, true, true, true},    // no rows
};

struct NormData {
  ResidualNormForward forward;
  ResidualNormBackward backward;  // outputs hold numbers: those that are added to must keep them
};

ResidualScale vectors(Rig& rig, const NormCase& c, DType wide, uint64_t seed) {
  ResidualScale s;
  if (!c.scale) return s;
  s.h_scale = rig.normal({c.D}, wide, seed);
  s.h_bias = rig.normal({c.D}, wide, seed + 1);
  if (!c.merge) return s;
  s.r_scale = rig.normal({c.D}, wide, seed + 2);
  s.r_bias = rig.normal({c.D}, wide, seed + 3);
  return s;
}

// The backward half reads the forward outputs of the reference.
NormData make_data(Rig& rig, const NormCase& c) {
  const DType wide = wide_dtype(c.dtype);
  const auto rows = [&](bool present, DType dtype, uint64_t seed) {
    return present ? rig.normal({c.T, c.D}, dtype, seed) : Tensor();
  };
  NormData data;
  data.forward = {.r_out = rows(true, wide, 1),
                  .x = rows(true, c.dtype, 2),
                  .rstd = rig.normal({c.T}, wide, 3),
                  .h = rows(true, c.dtype, 4),
                  .r = rows(c.merge, wide, 5),
                  .scale = vectors(rig, c, wide, 6),
                  .norm = rig.normal({c.D}, wide, 10),
                  .eps = 1e-2f};  // large, so that leaving it out shows
  ResidualNormForward truth = data.forward;
  truth.r_out = rig.copy(truth.r_out);
  truth.x = rig.copy(truth.x);
  truth.rstd = rig.copy(truth.rstd);
  ref::residual_norm_forward(truth);
  data.backward = {.dh = rows(true, c.dtype, 11),
                   .dr = rows(c.merge, wide, 12),
                   .dscale = vectors(rig, c, wide, 13),
                   .dnorm = rig.normal({c.D}, wide, 17),
                   .dx = rows(true, wide, 18),
                   .dr_out = rows(c.later, wide, 19),
                   .r_out = truth.r_out,
                   .rstd = truth.rstd,
                   .h = data.forward.h,
                   .r = data.forward.r,
                   .scale = data.forward.scale,
                   .norm = data.forward.norm};
  return data;
}

std::vector<Output> outputs(NormData& data) {
  auto& [forward, backward] = data;
  return present({{&forward.r_out, "r_out"},
                  {&forward.x, "x"},
                  {&forward.rstd, "rstd"},
                  {&backward.dh, "dh"},
                  {&backward.dr, "dr"},
                  {&backward.dnorm, "dnorm"},
                  {&backward.dscale.h_scale, "dh_scale"},
                  {&backward.dscale.h_bias, "dh_bias"},
                  {&backward.dscale.r_scale, "dr_scale"},
                  {&backward.dscale.r_bias, "dr_bias"}});
}

void run(Context& ctx, NormData& data) {
  residual_norm_forward(ctx, data.forward);
  residual_norm_backward(ctx, data.backward);
}

TEST(ResidualNorm, EveryIsaMatchesTheReference) {
  for (const NormCase& c : kNormCases) {
    Rig rig, slow(Backend::kRef);
    const NormData data = make_data(rig, c);
    const NormData want = run_copy(rig, data, slow.ctx);
    for_each_isa([&](Isa isa) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " T=" + std::to_string(c.T) +
                   " D=" + std::to_string(c.D));
      expect_close_outputs(run_copy(rig, data, rig.ctx), want, c.T + c.D);
    });
  }
}

TEST(ResidualNorm, ThreadsDoNotChangeTheBits) {
  const NormCase c = {200, 72, DType::kBF16, true, true, true};
  expect_threads_change_nothing([&](Rig& rig) { return make_data(rig, c); });
}

TEST(ResidualNorm, RowsDoNotDependOnTheBatch) {
  const NormCase c = {70, 72, DType::kBF16, true, true, true};
  Rig rig;
  const NormData data = make_data(rig, c);
  const NormData all = run_copy(rig, data, rig.ctx);
  for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{69}}) {
    NormData one = data;
    for (Tensor* tensor :
         {&one.forward.r_out, &one.forward.x, &one.forward.rstd, &one.forward.h, &one.forward.r,
          &one.backward.dh, &one.backward.dr, &one.backward.dx, &one.backward.dr_out,
          &one.backward.r_out, &one.backward.rstd, &one.backward.h, &one.backward.r}) {
      *tensor = tensor->rows(t, t + 1);
    }
    one = run_copy(rig, one, rig.ctx);
    EXPECT_SAME_BITS(one.forward.x, all.forward.x.rows(t, t + 1));
    EXPECT_SAME_BITS(one.forward.r_out, all.forward.r_out.rows(t, t + 1));
    EXPECT_SAME_BITS(one.backward.dh, all.backward.dh.rows(t, t + 1));
    EXPECT_SAME_BITS(one.backward.dr, all.backward.dr.rows(t, t + 1));
  }
}

TEST(ResidualNorm, TheResidualGradientMayBeInPlace) {
  const NormCase c = {67, 40, DType::kBF16, true, true, true};
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    Rig rig(backend);
    const NormData data = make_data(rig, c);
    const NormData apart = run_copy(rig, data, rig.ctx);
    NormData shared = data;
    shared.backward.dr = shared.backward.dr_out;
    residual_norm_backward(rig.ctx, shared.backward);
    EXPECT_SAME_BITS(shared.backward.dr, apart.backward.dr);
  }
}

TEST(ResidualNorm, ReferenceGradientsMatchFiniteDifferences) {
  for (NormCase c : kNormCases) {
    if (c.T == 0 || c.D > 100) continue;
    c.T = std::min<int64_t>(c.T, 7);
    c.dtype = DType::kF64;
    Rig rig(Backend::kRef);
    NormData data = make_data(rig, c);
    ResidualNormBackward& b = data.backward;
    const ResidualScale& s = b.dscale;
    for (const Tensor& t : {b.dnorm, s.h_scale, s.h_bias, s.r_scale, s.r_bias}) {
      for (int64_t i = 0; i < t.count() && !t.empty(); ++i) ref::set(t, i, 0);
    }
    residual_norm_backward(rig.ctx, b);
    const auto loss = [&] {
      residual_norm_forward(rig.ctx, data.forward);
      return weighted(b.dx, data.forward.x) + weighted(b.dr_out, data.forward.r_out);
    };
    expect_gradient(data.forward.h, b.dh, loss, "h");
    expect_gradient(data.forward.norm, b.dnorm, loss, "norm");
    if (c.merge) expect_gradient(data.forward.r, b.dr, loss, "r");
    if (!c.scale) continue;
    expect_gradient(data.forward.scale.h_scale, s.h_scale, loss, "h_scale");
    expect_gradient(data.forward.scale.h_bias, s.h_bias, loss, "h_bias");
    if (!c.merge) continue;
    expect_gradient(data.forward.scale.r_scale, s.r_scale, loss, "r_scale");
    expect_gradient(data.forward.scale.r_bias, s.r_bias, loss, "r_bias");
  }
}

}  // namespace
}  // namespace moraine
