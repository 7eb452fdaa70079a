// Gradients of Linear on an emulated GPU: fails if a product is off, if a gradient is overwritten where it is added to,
// if a group's rows reach another's weight, if a group's bits depend on its company, or if a generation has more than
// one result.
#include <gtest/gtest.h>

#include "kernels/gpu/linear.h"
#include "kernels/gpu/linear_weight.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/linear.h"

namespace moraine::gpu {
namespace {

using namespace testing;

struct LinearBackwardCase {
  std::vector<int64_t> rows;  // of each group
  int64_t n, k;
  DType dtype;
  bool bias;
};

struct LinearBackwardData {
  Tensor dw, dbias, dx, dy, x, w;  // w: [G*k, n], as the transposed pack has it
  std::vector<int64_t> rows;
};

LinearBackwardData make_data(Rig& rig, const LinearBackwardCase& c) {
  LinearBackwardData data;
  data.rows = {0};
  for (const int64_t rows : c.rows) data.rows.push_back(data.rows.back() + rows);
  const int64_t T = data.rows.back() + 3,
                G = static_cast<int64_t>(c.rows.size());  // three rows of no group
  data.dw = rig.normal({G, c.n, c.k}, DType::kF32, 1);
  if (c.bias) data.dbias = rig.normal({G, c.n}, DType::kF32, 2);
  data.dx = rig.normal({T, c.k}, c.dtype, 3);
  data.dy = rig.normal({T, c.n}, c.dtype, 4);
  data.x = rig.normal({T, c.k}, c.dtype, 5);
  data.w = rig.normal({G * c.k, c.n}, c.dtype, 6);
  return data;
}

GroupedLinearBackwardWeight weight_call(const LinearBackwardData& d) {
  return {.dw = d.dw, .dbias = d.dbias, .dy = d.dy, .x = d.x, .rows = d.rows};
}
GroupedLinearBackwardInput input_call(const LinearBackwardData& d) {
  return {.dx = d.dx,
          .dy = d.dy,
          .w = {.data = d.w.data,
                .dtype = d.w.dtype,
                .groups = d.dw.dims[0],
                .n = d.dw.dims[2],
                .k = d.dw.dims[1]},
          .rows = d.rows};
}

LinearBackwardData run(GpuRig& rig, LinearBackwardData d) {
  for (Tensor* t : {&d.dw, &d.dbias, &d.dx, &d.dy, &d.x, &d.w}) *t = rig.put(*t);
  moraine::grouped_linear_backward_weight(rig.ctx, weight_call(d));
  moraine::grouped_linear_backward_input(rig.ctx, input_call(d));
  return d;
}

LinearBackwardData reference(Rig& rig, LinearBackwardData d) {
  for (Tensor* t : {&d.dw, &d.dbias, &d.dx}) *t = t->empty() ? Tensor() : rig.copy(*t);
  ref::grouped_linear_backward_weight(weight_call(d));
  ref::grouped_linear_backward_input(input_call(d));
  return d;
}

const std::vector<LinearBackwardCase>& linear_backward_cases() {
  static const std::vector<LinearBackwardCase> all = {
      {{1}, 1, 1, DType::kBF16, true},  // smallest
      {{1}, 1, 1, DType::kF32, true},
      {{70}, 40, 65, DType::kBF16, true},   // one past a block of inputs; rows end within a step
      {{33}, 70, 37, DType::kF32, true},    // one past a step; one past a block of outputs
      {{32}, 64, 64, DType::kBF16, false},  // everything is a multiple
      {{3, 0, 66, 1}, 20, 50, DType::kBF16, true},  // groups, one of them empty
      {{0, 5, 0, 40}, 66, 20, DType::kF32, true},   // two blocks of outputs for each
  };
  return all;
}

TEST(GpuLinearBackward, MatchesTheReferenceInEveryWaveAndOrder) {
  for (const LinearBackwardCase& c : linear_backward_cases()) {
    Rig host;
    const LinearBackwardData data = make_data(host, c), want = reference(host, data);
    for (const Emulation& e : all_emulations()) {
      SCOPED_TRACE(emulation_text(e) + " n=" + std::to_string(c.n) + " k=" + std::to_string(c.k));
      GpuRig rig(e);
      const LinearBackwardData got = run(rig, data);
      const int64_t T = data.rows.back();
      EXPECT_CLOSE(rig.get(host, got.dw), want.dw, tolerance(DType::kF32, T));
      if (c.bias) EXPECT_CLOSE(rig.get(host, got.dbias), want.dbias, tolerance(DType::kF32, T));
      EXPECT_CLOSE(rig.get(host, got.dx), want.dx, tolerance(c.dtype, c.n));
      // Rows of no group keep what they held.
      EXPECT_SAME_BITS(rig.get(host, got.dx).rows(T, T + 3), data.dx.rows(T, T + 3));
    }
  }
}

TEST(GpuLinearBackward, LargeBlocksHaveTheSameBits) {
  for (const LinearBackwardCase& c : {LinearBackwardCase{{70, 0, 33}, 136, 144, DType::kBF16, true},
                                      LinearBackwardCase{{40}, 130, 35, DType::kBF16, true}}) {
    for (const MatrixRule rule : {MatrixRule::kSm90, MatrixRule::kCdna3}) {
      Rig host;
      const LinearBackwardData data = make_data(host, c);
      const auto run_sized = [&](GpuRig& rig, ProductSize size, const Tensor& dbias) {
        LinearBackwardData d = data;
        for (Tensor* t : {&d.dw, &d.dy, &d.x}) *t = rig.put(*t);
        d.dbias = dbias;
        grouped_linear_backward_weight(*rig.gpu, weight_call(d), size);
        return d.dw;
      };
      expect_one_result(orders_of(rule), [&](GpuRig& r) {
        return run_sized(r, ProductSize::kLarge, r.put(data.dbias));
      });
      GpuRig rig(orders_of(rule).front());
      const Tensor bias = rig.put(data.dbias), large_bias = rig.put(data.dbias);
      const Tensor middle = rig.get(host, run_sized(rig, ProductSize::kMiddle, bias));
      EXPECT_SAME_BITS(rig.get(host, run_sized(rig, ProductSize::kLarge, large_bias)), middle);
      EXPECT_SAME_BITS(rig.get(host, large_bias), rig.get(host, bias));
    }
  }
}

TEST(GpuLinearBackward, OneGroupIsThePlainProduct) {
  Rig host;
  const LinearBackwardData data = make_data(host, {{40}, 20, 35, DType::kBF16, true});
  GpuRig rig({.wave = 64});
  const LinearBackwardData grouped = run(rig, data);
  const Tensor dw = rig.put(data.dw.reshaped({20, 35})), dbias = rig.put(data.dbias.reshaped({20})),
               dx = rig.put(data.dx.rows(0, 40));
  moraine::linear_backward_weight(
      rig.ctx,
      {.dw = dw, .dbias = dbias, .dy = grouped.dy.rows(0, 40), .x = grouped.x.rows(0, 40)});
  moraine::linear_backward_input(
      rig.ctx, {.dx = dx, .dy = grouped.dy.rows(0, 40), .w = input_call(grouped).w});
  EXPECT_SAME_BITS(rig.get(host, dw), rig.get(host, grouped.dw).reshaped({20, 35}));
  EXPECT_SAME_BITS(rig.get(host, dbias), rig.get(host, grouped.dbias).reshaped({20}));
  EXPECT_SAME_BITS(rig.get(host, dx), rig.get(host, grouped.dx).rows(0, 40));
}

TEST(GpuLinearBackward, RowsMayBeCountedOnTheGpu) {
  Rig host;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const LinearBackwardData data = make_data(host, {{3, 0, 41}, 20, 35, dtype, true});
    GpuRig rig({.wave = 64});
    const LinearBackwardData want = run(rig, data);
    const Tensor rows = host.zeros({4}, DType::kI64);
    for (size_t g = 0; g < 4; ++g) rows.as<int64_t>()[g] = data.rows[g];
    const std::span<const int64_t> there(rig.put(rows).as<int64_t>(), 4);
    LinearBackwardData got = data;
    for (Tensor* t : {&got.dw, &got.dbias, &got.dx, &got.dy, &got.x, &got.w}) *t = rig.put(*t);
    GroupedLinearBackwardWeight weight = weight_call(got);
    GroupedLinearBackwardInput input = input_call(got);
    weight.rows = input.rows = there;
    moraine::grouped_linear_backward_weight(rig.ctx, weight);
    moraine::grouped_linear_backward_input(rig.ctx, input);
    EXPECT_SAME_BITS(rig.get(host, got.dw), rig.get(host, want.dw));
    EXPECT_SAME_BITS(rig.get(host, got.dbias), rig.get(host, want.dbias));
    EXPECT_SAME_BITS(rig.get(host, got.dx), rig.get(host, want.dx));
  }
}

// Of the gradient below: one for each generation, no two the same.
constexpr StatedHashes kLinearBackwardHashes = {
    "5c248f4b692400a79819f22fd3ec07db", "a6fd59cb104a648caf60c914860de7bb",
    "e8b7c3b71625d18ef7202b9902b170d3", "8621619ecd6b0a86282c6cf154b2f36e",
    "db7ad899a7a749fce65f0eb36579ad31"};

// Matrix units of NVIDIA cut off: up to one ulp of the largest sum each step, always the same way.
TEST(GpuLinearBackward, EveryGenerationIsNearTheReferenceAndHasOneResult) {
  Rig host;
  const LinearBackwardData data = make_data(host, {{80}, 40, 30, DType::kBF16, true});
  const LinearBackwardData want = reference(host, data);
  Tensor bias;  // the same in all of them: it is added up without tiles
  for (const MatrixRule rule : kMatrixRules) {
    expect_one_result(orders_of(rule), [&](GpuRig& r) { return run(r, data).dw; });
    GpuRig rig(orders_of(rule).front());
    const LinearBackwardData ran = run(rig, data);
    const Tensor got = rig.get(host, ran.dw), dbias = rig.get(host, ran.dbias);
    Tolerance allowed = tolerance(DType::kF32, 80);
    allowed.relative += 80.0 / 8 * 0x1p-23;
    expect_close(got, want.dw, allowed, matrix_rule_name(rule));
    expect_stated_hash(got, kLinearBackwardHashes, rule);
    if (bias.empty()) bias = dbias;
    EXPECT_SAME_BITS(dbias, bias);
  }
}

TEST(GpuLinearBackward, F32HasOneResultInAllWaves) {
  Rig host;
  const LinearBackwardData data = make_data(host, {{3, 40}, 20, 33, DType::kF32, true});
  expect_one_result(all_emulations(), [&](GpuRig& r) { return run(r, data).dw; });
  expect_one_result(all_emulations(), [&](GpuRig& r) { return run(r, data).dbias; });
}

TEST(GpuLinearBackward, AGroupAloneIsTheGroupInCompany) {
  for (const MatrixRule rule : kMatrixRules) {
    Rig host;
    const int64_t n = 20, k = 30;
    const LinearBackwardData all = make_data(host, {{5, 66, 20}, n, k, DType::kBF16, true});
    GpuRig rig(orders_of(rule).front());
    const LinearBackwardData together = run(rig, all);
    LinearBackwardData one = all;
    one.dw = all.dw.rows(1, 2);
    one.dbias = all.dbias.rows(1, 2);
    one.w = all.w.rows(k, 2 * k);
    for (Tensor* t : {&one.dx, &one.dy, &one.x}) *t = t->rows(5, 71);
    one.rows = {0, 66};
    const LinearBackwardData alone = run(rig, one);
    EXPECT_SAME_BITS(rig.get(host, alone.dw), rig.get(host, together.dw).rows(1, 2));
    EXPECT_SAME_BITS(rig.get(host, alone.dbias), rig.get(host, together.dbias).rows(1, 2));
    EXPECT_SAME_BITS(rig.get(host, alone.dx), rig.get(host, together.dx).rows(5, 71));
  }
}

}  // namespace
}  // namespace moraine::gpu
