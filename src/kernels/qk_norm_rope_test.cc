// QkNormRope: fails if the mean, the norm, the temperature or the rotation differs from the
// contract, if a vanishing head makes a NaN, or if a gradient is not that of the forward pass.
#include "kernels/qk_norm_rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/check_tensor.h"
#include "kernels/ref/element.h"
#include "testing/two_ways.h"

namespace moraine {
namespace {

using namespace testing;

struct RopeCase {
  int64_t T, H, K, d, rotary, others;  // others: columns after q and k
  DType dtype;
  bool plain;
};

// d >= 5: the gradient before the norm loses its part along the head. Of d = 2 one direction is
// left, whose size says nothing about that of the terms which cancel in it; of d = 1 nothing.
constexpr RopeCase kRopeCases[] = {
    {1, 1, 1, 5, 0, 0, DType::kF32, false},         // nothing to rotate
    {3, 4, 2, 7, 2, 3, DType::kF32, false},         // no vector width divides d
    {5, 6, 2, 34, 34, 4, DType::kBF16, false},      // all channels rotated
    {65, 3, 3, 16, 8, 16, DType::kBF16, false},     // one past a block of rows; no groups
    {130, 8, 2, 64, 32, 128, DType::kBF16, false},  // a small model
    {9, 8, 2, 128, 64, 256, DType::kBF16, false},   // the widths of the model
    {67, 4, 2, 24, 12, 5, DType::kF32, true},       // plain
    {7, 4, 1, 64, 32, 64, DType::kBF16, true},
    {0, 4, 2, 64, 32, 128, DType::kBF16, false},  // no rows
};
constexpr int64_t kPositions = 500;

struct RopeData {
  QkNormRopeForward forward;
  QkNormRopeBackward backward;
};

RopeData make_data(Rig& rig, const RopeCase& c) {
  const DType wide = wide_dtype(c.dtype);
  const int64_t N = (c.H + c.K) * c.d + c.others;
  const auto unless_plain = [&](std::initializer_list<int64_t> dims, DType dtype, uint64_t seed) {
    return c.plain ? Tensor() : rig.normal(dims, dtype, seed);
  };
  const Tensor rope = rig.zeros({kPositions, c.rotary / 2, 2}, wide);
  ref::rope_table({.table = rope, .theta = 1e4});
  RopeData data;
  data.forward = {.q = rig.normal({c.T, c.H, c.d}, c.dtype, 1),
                  .k = rig.normal({c.T, c.K, c.d}, c.dtype, 2),
                  .nq = unless_plain({c.T, c.H}, wide, 3),
                  .nk = unless_plain({c.T, c.K}, wide, 4),
                  .qkv = rig.normal({c.T, N}, c.dtype, 5),
                  .z = unless_plain({c.H + c.K, c.T, c.d}, c.dtype, 6),
                  .temp = unless_plain({c.K}, wide, 7),
                  .position = rig.integers({c.T}, kPositions, 8),
                  .rope = rope};
  QkNormRopeForward truth = data.forward;
  truth.q = rig.copy(truth.q);
  truth.k = rig.copy(truth.k);
  if (!c.plain) truth.nq = rig.copy(truth.nq);
  if (!c.plain) truth.nk = rig.copy(truth.nk);
  ref::qk_norm_rope_forward(truth);
  data.backward = {.dqkv = rig.normal({c.T, N}, c.dtype, 9),
                   .dz = unless_plain({c.H + c.K, c.T, c.d}, c.dtype, 10),
                   .dtemp = unless_plain({c.K}, wide, 11),
                   .dq = rig.normal({c.T, c.H, c.d}, c.dtype, 12),
                   .dk = rig.normal({c.T, c.K, c.d}, c.dtype, 13),
                   .nq = truth.nq,
                   .nk = truth.nk,
                   .qkv = data.forward.qkv,
                   .z = data.forward.z,
                   .temp = data.forward.temp,
                   .position = data.forward.position,
                   .rope = rope};
  return data;
}

std::vector<Output> outputs(RopeData& data) {
  auto& [forward, backward] = data;
  return present({{&forward.q, "q"},
                  {&forward.k, "k"},
                  {&forward.nq, "nq"},
                  {&forward.nk, "nk"},
                  {&backward.dqkv, "dqkv"},
                  {&backward.dz, "dz"},
                  {&backward.dtemp, "dtemp"}});
}

void run(Context& ctx, RopeData& data) {
  qk_norm_rope_forward(ctx, data.forward);
  qk_norm_rope_backward(ctx, data.backward);
}

TEST(QkNormRope, EveryIsaMatchesTheReference) {
  for (const RopeCase& c : kRopeCases) {
    Rig rig, slow(Backend::kRef);
    const RopeData data = make_data(rig, c);
    const RopeData want = run_copy(rig, data, slow.ctx);
    const int64_t C = (c.H + c.K) * c.d, N = C + c.others;
    for_each_isa([&](Isa isa) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " T=" + std::to_string(c.T) +
                   " d=" + std::to_string(c.d));
      const RopeData got = run_copy(rig, data, rig.ctx);
      expect_close_outputs(got, want, c.T + c.d);
      for (int64_t t = 0; t < c.T; ++t) {  // the columns of the values stay
        for (int64_t j = t * N + C; j < (t + 1) * N; ++j) {
          ASSERT_EQ(ref::get(got.backward.dqkv, j), ref::get(data.backward.dqkv, j));
        }
      }
    });
  }
}

// One element at a time from the contract, for one head: the reference itself against a second
// writing.
TEST(QkNormRope, TheFormulasByHand) {
  const RopeCase c = {1, 2, 1, 4, 2, 0, DType::kF64, false};
  Rig rig(Backend::kRef);
  const RopeData data = make_data(rig, c);
  qk_norm_rope_forward(rig.ctx, data.forward);
  const double *p = data.forward.qkv.as<double>(), *z = data.forward.z.as<double>();
  const double angle = data.forward.position.as<int32_t>()[0];  // i = 0: theta^0
  for (int64_t head = 0; head < 3; ++head) {
    double a[4], square = 0;
    for (int64_t j = 0; j < 4; ++j) {
      const double mean =
          head < 2 ? (p[head * 4 + j] + p[8 + j]) / 2 : ((p[j] + p[4 + j]) / 2 + p[8 + j]) / 2;
      a[j] = z[head * 4 + j] + mean;
      square += a[j] * a[j];
    }
    const double n = 2 / std::sqrt(square) * (head < 2 ? 1 : data.forward.temp.as<double>()[0]);
    const double want[4] = {n * (a[0] * std::cos(angle) - a[1] * std::sin(angle)),
                            n * (a[1] * std::cos(angle) + a[0] * std::sin(angle)), n * a[2],
                            n * a[3]};
    const double* got =
        head < 2 ? data.forward.q.as<double>() + head * 4 : data.forward.k.as<double>();
    for (int64_t j = 0; j < 4; ++j) EXPECT_NEAR(got[j], want[j], 1e-12);
  }
}

TEST(QkNormRope, TheTableIsComputedInDouble) {
  const int64_t P = 3001, half = 5;
  Rig rig(Backend::kCpu, 3);
  const Tensor cpu = rig.zeros({P, half, 2}, DType::kF32),
               want = rig.zeros({P, half, 2}, DType::kF32);
  rope_table(rig.ctx, {.table = cpu, .theta = 5e6});
  ref::rope_table({.table = want, .theta = 5e6});
  EXPECT_SAME_BITS(cpu, want);
  for (const int64_t p : {int64_t{0}, int64_t{1}, int64_t{3000}}) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::exp(-std::log(5e6) * 0.2 * static_cast<double>(i));
      const float* pair = cpu.as<float>() + (p * half + i) * 2;
      EXPECT_NEAR(pair[0], std::cos(angle), 0x1p-24);
      EXPECT_NEAR(pair[1], std::sin(angle), 0x1p-24);
    }
  }
}

// z = -mean: a is zero or nearly so. The length is then `tiny`, a constant.
TEST(QkNormRope, AVanishingHeadIsNotANan) {
  const RopeCase c = {3, 4, 2, 16, 8, 0, DType::kF32, false};
  Rig rig, slow(Backend::kRef);
  const RopeData data = make_data(rig, c);
  for (int64_t i = 0; i < data.forward.qkv.count(); ++i) ref::set(data.forward.qkv, i, 0);
  for (int64_t i = 0; i < data.forward.z.count(); ++i) {
    ref::set(data.forward.z, i, i % 3 == 0 ? 1e-14 : 0);
  }
  ref::qk_norm_rope_forward({.q = rig.copy(data.forward.q),
                             .k = rig.copy(data.forward.k),
                             .nq = data.backward.nq,
                             .nk = data.backward.nk,
                             .qkv = data.forward.qkv,
                             .z = data.forward.z,
                             .temp = data.forward.temp,
                             .position = data.forward.position,
                             .rope = data.forward.rope});
  const RopeData want = run_copy(rig, data, slow.ctx);
  expect_finite_outputs(want);
  for_each_isa([&](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const RopeData got = run_copy(rig, data, rig.ctx);
    expect_finite_outputs(got);
    expect_close_outputs(got, want, c.T + c.d);
  });
}

TEST(QkNormRope, ThreadsDoNotChangeTheBits) {
  for (const bool plain : {false, true}) {
    const RopeCase c = {200, 4, 2, 24, 12, 5, DType::kBF16, plain};
    expect_threads_change_nothing([&](Rig& rig) { return make_data(rig, c); });
  }
}

TEST(QkNormRope, RowsDoNotDependOnTheBatch) {
  Rig rig;
  const RopeCase c = {70, 4, 2, 24, 12, 5, DType::kBF16, false};
  const RopeData data = make_data(rig, c);
  const RopeData all = run_copy(rig, data, rig.ctx);
  const auto heads = [&](const Tensor& t, int64_t row) {  // one row of [G, T, d]
    const Tensor part = rig.zeros({t.dims[0], 1, t.dims[2]}, t.dtype);
    for (int64_t i = 0; i < part.count(); ++i) {
      ref::set(part, i, ref::get(t, (i / c.d * c.T + row) * c.d + i % c.d));
    }
    return part;
  };
  for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{64}, int64_t{69}}) {
    RopeData one = data;
    for (Tensor* tensor :
         {&one.forward.q, &one.forward.k, &one.forward.nq, &one.forward.nk, &one.forward.qkv,
          &one.forward.position, &one.backward.dqkv, &one.backward.dq, &one.backward.dk,
          &one.backward.nq, &one.backward.nk, &one.backward.qkv, &one.backward.position}) {
      *tensor = tensor->rows(t, t + 1);
    }
    one.forward.z = one.backward.z = heads(data.forward.z, t);
    one.backward.dz = heads(data.backward.dz, t);
    one = run_copy(rig, one, rig.ctx);
    EXPECT_SAME_BITS(one.forward.q, all.forward.q.rows(t, t + 1));
    EXPECT_SAME_BITS(one.forward.k, all.forward.k.rows(t, t + 1));
    EXPECT_SAME_BITS(one.backward.dqkv, all.backward.dqkv.rows(t, t + 1));
    EXPECT_SAME_BITS(one.backward.dz, heads(all.backward.dz, t));
  }
}

TEST(QkNormRope, ReferenceGradientsMatchFiniteDifferences) {
  for (const bool plain : {false, true}) {
    Rig rig(Backend::kRef);
    const RopeCase c = {5, 6, 2, 6, 4, 3, DType::kF64, plain};
    RopeData data = make_data(rig, c);
    QkNormRopeBackward& b = data.backward;
    b.dqkv = rig.zeros({c.T, (c.H + c.K) * c.d + c.others}, DType::kF64);
    if (!plain) b.dtemp = rig.zeros({c.K}, DType::kF64);
    qk_norm_rope_backward(rig.ctx, b);
    const auto loss = [&] {
      qk_norm_rope_forward(rig.ctx, data.forward);
      double sum = 0;
      for (int64_t i = 0; i < b.dq.count(); ++i)
        sum += ref::get(b.dq, i) * ref::get(data.forward.q, i);
      for (int64_t i = 0; i < b.dk.count(); ++i)
        sum += ref::get(b.dk, i) * ref::get(data.forward.k, i);
      return sum;
    };
    expect_gradient(data.forward.qkv, b.dqkv, loss, "qkv", 60);
    if (plain) continue;
    expect_gradient(data.forward.z, b.dz, loss, "z", 60);
    expect_gradient(data.forward.temp, b.dtemp, loss, "temp");
  }
}

}  // namespace
}  // namespace moraine
