// Fails if momentum, scaling or decay is wrong, or a bit depends on how matrices are spread over
// threads.
#include "optim/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct Buffers {
  Tensor weights, momentum, gradients;
};

Buffers make_buffers(Rig& rig, int64_t N, DType momentum = DType::kF32) {
  return {rig.normal({N}, DType::kF32, 1, 0.02), rig.zeros({N}, momentum),
          rig.normal({N}, DType::kF32, 2)};
}

constexpr double kGradientScale = 0.5;

void step(Rig& rig, const Buffers& r, std::span<const MuonMatrix> matrices, const MuonOptions& o,
          double gradient_scale = kGradientScale) {
  const int64_t bytes = muon_scratch_bytes(matrices, o.ns_dtype, rig.ctx.pool->threads());
  muon_step(rig.ctx, {.weights = r.weights,
                      .momentum = r.momentum,
                      .scratch = rig.zeros({bytes}, DType::kU8),
                      .gradients = r.gradients,
                      .matrices = matrices,
                      .gradient_scale = gradient_scale,
                      .lr = o.lr,
                      .options = o});
}

// `n` matrices of rows x cols, one after another.
std::vector<MuonMatrix> stack(int64_t n, int64_t rows, int64_t cols, int64_t offset = 0) {
  std::vector<MuonMatrix> all;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = offset + i * rows * cols;
    all.push_back({.offset = at, .momentum_offset = at, .rows = rows, .cols = cols});
  }
  return all;
}

// What one step must do to one matrix, given the orthogonal direction of its own Newton-Schulz run.
void expect_update(Rig& rig, const Buffers& before, const Buffers& after, const MuonMatrix& m,
                   const MuonOptions& o) {
  const bool tall = m.rows > m.cols;
  const int64_t small = std::min(m.rows, m.cols), large = std::max(m.rows, m.cols);
  const Tensor x = rig.zeros({small, large}, DType::kF32);
  const auto place = [&](int64_t r, int64_t c) { return tall ? c * large + r : r * large + c; };
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.cols; ++c) {
      const int64_t i = r * m.cols + c;
      const double g =
          kGradientScale * static_cast<double>(before.gradients.as<float>()[m.offset + i]);
      const double buffer =
          o.momentum * static_cast<double>(before.momentum.as<float>()[m.momentum_offset + i]) + g;
      EXPECT_NEAR(after.momentum.as<float>()[m.momentum_offset + i], buffer, 1e-6);
      x.as<float>()[place(r, c)] =
          static_cast<float>(o.nesterov ? g + o.momentum * buffer : buffer);
    }
  }
  newton_schulz(rig.ctx, {.x = x,
                          .scratch = rig.zeros(
                              {newton_schulz_scratch_bytes(small, large, o.ns_dtype)}, DType::kU8),
                          .kind = o.coefficients,
                          .steps = o.ns_steps,
                          .compute = o.ns_dtype});
  const double lr = o.lr * m.lr_scale;
  const double keep = 1 - lr * (m.weight_decay ? o.weight_decay : 0);
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.cols; ++c) {
      const int64_t i = m.offset + r * m.cols + c;
      const double move = lr * 0.2 * std::sqrt(static_cast<double>(large)) *
                          static_cast<double>(x.as<float>()[place(r, c)]);
      // The momentum above is rounded from double: its last bit, grown by the gain of 485, may
      // differ.
      EXPECT_NEAR(after.weights.as<float>()[i],
                  keep * static_cast<double>(before.weights.as<float>()[i]) - move,
                  1e-7 + 2e-4 * lr);
    }
  }
}

TEST(Muon, FollowsTheFormulas) {
  for (const bool nesterov : {true, false}) {
    Rig rig;
    const MuonOptions o = {
        .lr = 0.03, .nesterov = nesterov, .ns_dtype = DType::kF32, .weight_decay = 0.2};
    std::vector<MuonMatrix> matrices = stack(1, 24, 40);  // wide
    matrices.push_back(
        {.offset = 960, .momentum_offset = 960, .rows = 40, .cols = 9, .lr_scale = 0.5});  // tall
    matrices.push_back(
        {.offset = 1320, .momentum_offset = 1320, .rows = 16, .cols = 16, .weight_decay = false});
    Buffers run = make_buffers(rig, 1600);
    for (int t = 0; t < 3; ++t) {
      // New directions.
      run.gradients = rig.normal({1600}, DType::kF32, 10 + static_cast<uint64_t>(t));
      const Buffers before = {rig.copy(run.weights), rig.copy(run.momentum), run.gradients};
      step(rig, run, matrices, o);
      for (const MuonMatrix& m : matrices) expect_update(rig, before, run, m, o);
      for (int64_t i = 1576; i < 1600; ++i) {  // after the last matrix
        EXPECT_EQ(run.weights.as<float>()[i], before.weights.as<float>()[i]);
      }
    }
  }
}

TEST(Muon, UpdateHasTheRmsOfAdamW) {
  Rig rig;
  const MuonOptions o = {
      .lr = 1, .coefficients = NewtonSchulzKind::kPolarExpress, .weight_decay = 0};
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{64, 64}, {32, 128}, {128, 32}}) {
    const Buffers run = make_buffers(rig, rows * cols);
    const Tensor before = rig.copy(run.weights);
    step(rig, run, stack(1, rows, cols), o);
    double sum = 0;
    for (int64_t i = 0; i < rows * cols; ++i) {
      sum += std::pow(static_cast<double>(run.weights.as<float>()[i]) -
                          static_cast<double>(before.as<float>()[i]),
                      2);
    }
    EXPECT_NEAR(std::sqrt(sum / static_cast<double>(rows * cols)), 0.2, 0.03);
  }
}

TEST(Muon, ThreadsAndOtherMatricesDoNotChangeABit) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const MuonOptions o = {.lr = 0.02, .ns_dtype = compute};
    Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2), three(Backend::kCpu, 3),
        alone(Backend::kCpu, 2);
    std::vector<MuonMatrix> all = stack(9, 48, 33);
    for (const MuonMatrix& m : stack(3, 20, 150, 9 * 48 * 33)) all.push_back(m);
    const int64_t N = 9 * 48 * 33 + 3 * 3000;
    const Buffers a = make_buffers(one, N), b = make_buffers(two, N), c = make_buffers(three, N),
                  d = make_buffers(alone, N);
    for (int t = 0; t < 2; ++t) {
      step(one, a, all, o);
      step(two, b, all, o);  // one matrix per task
      step(three, c, all, o);
      for (const MuonMatrix& m : all) step(alone, d, {&m, 1}, o);  // each on both threads
    }
    for (const Buffers& other : {b, c, d}) {
      EXPECT_SAME_BITS(other.weights, a.weights);
      EXPECT_SAME_BITS(other.momentum, a.momentum);
    }
  }
}

TEST(Muon, LargeMatricesBesideSmallOnes) {
  const MuonOptions o = {.lr = 0.02, .ns_steps = 1};
  Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2);
  std::vector<MuonMatrix> all = stack(1, 64, 16400);  // above the border for one task
  for (const MuonMatrix& m : stack(5, 16, 16, 64 * 16400)) all.push_back(m);
  const int64_t N = 64 * 16400 + 5 * 256;
  const Buffers a = make_buffers(one, N), b = make_buffers(two, N);
  step(one, a, all, o);
  step(two, b, all, o);
  EXPECT_SAME_BITS(b.weights, a.weights);
}

TEST(Muon, TransposedMatrixGetsTheTransposedUpdate) {
  Rig rig;
  const MuonOptions o = {.lr = 0.1};
  const int64_t rows = 50, cols = 18;
  const Buffers tall = make_buffers(rig, rows * cols), wide = make_buffers(rig, rows * cols);
  transpose(rig.ctx, wide.weights.reshaped({cols, rows}), tall.weights.reshaped({rows, cols}));
  transpose(rig.ctx, wide.gradients.reshaped({cols, rows}), tall.gradients.reshaped({rows, cols}));
  step(rig, tall, stack(1, rows, cols), o);
  step(rig, wide, stack(1, cols, rows), o);
  const Tensor back = rig.zeros({rows, cols}, DType::kF32);
  transpose(rig.ctx, back, wide.weights.reshaped({cols, rows}));
  EXPECT_SAME_BITS(back.reshaped({rows * cols}), tall.weights);
}

TEST(Muon, Bf16MomentumRoundsTheBufferOnly) {
  Rig rig;
  const MuonOptions o = {.lr = 0.1, .ns_dtype = DType::kF32, .momentum_dtype = DType::kBF16};
  const Buffers wide = make_buffers(rig, 600), narrow = make_buffers(rig, 600, DType::kBF16);
  step(rig, wide, stack(1, 20, 30), o);
  step(rig, narrow, stack(1, 20, 30), o);
  EXPECT_SAME_BITS(narrow.weights,
                   wide.weights);  // the first step has not read a rounded number yet
  EXPECT_SAME_BITS(narrow.momentum, rig.copy_as(wide.momentum, DType::kBF16));
  step(rig, narrow, stack(1, 20, 30), o);
  for (int i = 0; i < 600; ++i) {
    EXPECT_NEAR(to_float(narrow.momentum.as<BF16>()[i]), 1.95 * 0.5 * wide.gradients.as<float>()[i],
                0.04);
  }
}

TEST(Muon, ZeroGradientOnlyDecays) {
  Rig rig;
  const MuonOptions o = {.lr = 0.1, .weight_decay = 0.5};
  const Buffers run = make_buffers(rig, 600);
  const Tensor before = rig.copy(run.weights);
  step(rig, run, stack(1, 20, 30), o, 0.0);
  for (int i = 0; i < 600; ++i)
    EXPECT_FLOAT_EQ(run.weights.as<float>()[i], 0.95f * before.as<float>()[i]);
  step(rig, run, {}, o);  // no matrices: nothing happens
}

}  // namespace
}  // namespace moraine
