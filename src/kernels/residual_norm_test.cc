// ResidualNorm: fails if a term of the merge, of RMSNorm or of their gradients is lost or changes
// sign, if a backend overwrites where it should add, or if a row's bits depend on the batch or the
// threads.
#include "kernels/residual_norm.h"

#include <gtest/gtest.h>

#include <functional>

#include "kernels/check_tensor.h"
#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct Case {
  int64_t T, D;
  DType dtype;
  bool merge, scale, later;  // r, the four vectors, dr_out are given
};

constexpr Case kCases[] = {
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

struct Data {
  ResidualNormForward forward;
  ResidualNormBackward backward;  // outputs hold numbers: those that are added to must keep them
};

ResidualScale vectors(Rig& rig, const Case& c, DType wide, uint64_t seed) {
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
Data make_data(Rig& rig, const Case& c) {
  const DType wide = wide_dtype(c.dtype);
  const auto rows = [&](bool present, DType dtype, uint64_t seed) {
    return present ? rig.normal({c.T, c.D}, dtype, seed) : Tensor();
  };
  Data data;
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

// Every output of both directions, through `f(tensor, its name)`; absent ones are left out.
template <class F>
void for_outputs(Data& data, const F& f) {
  const auto visit = [&](Tensor& t, const char* name) {
    if (!t.empty()) f(t, name);
  };
  visit(data.forward.r_out, "r_out");
  visit(data.forward.x, "x");
  visit(data.forward.rstd, "rstd");
  visit(data.backward.dh, "dh");
  visit(data.backward.dr, "dr");
  visit(data.backward.dnorm, "dnorm");
  visit(data.backward.dscale.h_scale, "dh_scale");
  visit(data.backward.dscale.h_bias, "dh_bias");
  visit(data.backward.dscale.r_scale, "dr_scale");
  visit(data.backward.dscale.r_bias, "dr_bias");
}

std::vector<Tensor> outputs(Data data) {
  std::vector<Tensor> all;
  for_outputs(data, [&](Tensor& t, const char*) { all.push_back(t); });
  return all;
}

Data run_copy(Rig& rig, Data data, Context& ctx) {
  for_outputs(data, [&](Tensor& t, const char*) { t = rig.copy(t); });
  residual_norm_forward(ctx, data.forward);
  residual_norm_backward(ctx, data.backward);
  return data;
}

TEST(ResidualNorm, EveryIsaMatchesTheReference) {
  for (const Case& c : kCases) {
    Rig rig, slow(Backend::kRef);
    const Data data = make_data(rig, c);
    const Data want = run_copy(rig, data, slow.ctx);
    const std::vector<Tensor> wanted = outputs(want);
    for_each_isa([&](Isa isa) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " T=" + std::to_string(c.T) +
                   " D=" + std::to_string(c.D));
      Data got = run_copy(rig, data, rig.ctx);
      size_t i = 0;
      for_outputs(got, [&](Tensor& t, const char* name) {
        expect_close(t, wanted[i++], tolerance(t.dtype, c.T + c.D), name);
      });
    });
  }
}

TEST(ResidualNorm, ThreadsDoNotChangeTheBits) {
  const Case c = {200, 72, DType::kBF16, true, true, true};
  Rig one(Backend::kCpu, 1), three(Backend::kCpu, 3);
  const Data data = make_data(one, c);
  const std::vector<Tensor> a = outputs(run_copy(one, data, one.ctx));
  const std::vector<Tensor> b = outputs(run_copy(one, data, three.ctx));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_SAME_BITS(b[i], a[i]);
}

TEST(ResidualNorm, RowsDoNotDependOnTheBatch) {
  const Case c = {70, 72, DType::kBF16, true, true, true};
  Rig rig;
  const Data data = make_data(rig, c);
  const Data all = run_copy(rig, data, rig.ctx);
  for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{69}}) {
    Data one = data;
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
  const Case c = {67, 40, DType::kBF16, true, true, true};
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    Rig rig(backend);
    const Data data = make_data(rig, c);
    const Data apart = run_copy(rig, data, rig.ctx);
    Data shared = data;
    shared.backward.dr = shared.backward.dr_out;
    residual_norm_backward(rig.ctx, shared.backward);
    EXPECT_SAME_BITS(shared.backward.dr, apart.backward.dr);
  }
}

double weighted(const Tensor& weight, const Tensor& value) {
  double sum = 0;
  for (int64_t i = 0; i < value.count() && !weight.empty(); ++i) {
    sum += ref::get(weight, i) * ref::get(value, i);
  }
  return sum;
}

TEST(ResidualNorm, ReferenceGradientsMatchFiniteDifferences) {
  for (Case c : kCases) {
    if (c.T == 0 || c.D > 100) continue;
    c.T = std::min<int64_t>(c.T, 7);
    c.dtype = DType::kF64;
    Rig rig(Backend::kRef);
    Data data = make_data(rig, c);
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
