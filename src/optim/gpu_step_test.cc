// The optimizers on an emulated GPU: fails if a term of AdamW, of momentum or of decay is off, if Newton-Schulz is
// another than the CPU's, if a neighbour is touched, or if a bit depends on the wave or on how ranges are split.
#include "optim/gpu_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/gpu/gpu_arena_memory.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/host_copy.h"
#include "optim/optimizer.h"
#include "optim/test_adamw.h"

namespace moraine::gpu {
namespace {

using namespace testing;

// ------------------------------------------------------------------------------------ AdamW

const AdamWOptions kOptions = {.lr = 0, .weight_decay = 0.1};

// Three steps of `ranges`; the buffers afterwards, on the host.
AdamWBuffers run(GpuRig& rig, Rig& host, AdamWBuffers b, std::span<const AdamWRange> ranges) {
  for (Tensor* t : {&b.w, &b.m, &b.v, &b.g}) *t = rig.put(*t);
  for (int64_t step = 1; step <= 3; ++step) {
    adamw_step(*rig.gpu, {.weights = b.w,
                          .m = b.m,
                          .v = b.v,
                          .gradients = b.g,
                          .ranges = ranges,
                          .gradient_scale = 0.5,
                          .lr = 0.01,
                          .step = step,
                          .options = kOptions});
  }
  for (Tensor* t : {&b.w, &b.m, &b.v}) *t = rig.get(host, *t);
  return b;
}

TEST(GpuAdamW, MatchesTheFormulasOverStepsWithOneResult) {
  const std::vector<AdamWRange> ranges = {
      {.offset = 3, .state_offset = 0, .count = 1, .weight_decay = true},
      {.offset = 5, .state_offset = 1, .count = 97, .lr_scale = 0.1, .weight_decay = false},
      {.offset = 110, .state_offset = 98, .count = 0},
      {.offset = 120, .state_offset = 98, .count = 401, .weight_decay = true}};
  Rig host;
  const AdamWBuffers start = adamw_buffers(host, 530, 510);
  const AdamWBuffers want = in_double(host, start);
  for (int step = 1; step <= 3; ++step) {
    for (const AdamWRange& range : ranges) adamw_formulas(want, range, step, kOptions, 0.01);
  }
  AdamWBuffers first;
  for (const Emulation& e : all_emulations()) {
    SCOPED_TRACE(emulation_text(e));
    GpuRig rig(e);
    const AdamWBuffers got = run(rig, host, start, ranges);
    // Three steps of about ten roundings each.
    EXPECT_CLOSE(got.m, want.m, tolerance(DType::kF32, 30));
    EXPECT_CLOSE(got.v, want.v, tolerance(DType::kF32, 30));
    EXPECT_CLOSE(got.w, want.w, tolerance(DType::kF32, 30));
    if (first.w.empty()) first = got;
    EXPECT_SAME_BITS(got.w, first.w);
    EXPECT_SAME_BITS(got.m, first.m);
    EXPECT_SAME_BITS(got.v, first.v);
  }
  for (const int64_t gap : {0, 2, 4, 102, 119, 521, 529}) {
    EXPECT_EQ(first.w.as<float>()[gap], start.w.as<float>()[gap]) << gap;
  }
}

TEST(GpuAdamW, SplitsDoNotChangeABit) {
  Rig host;
  const int64_t N = 600;
  const AdamWBuffers start = adamw_buffers(host, N, N);
  const std::vector<AdamWRange> whole = {
      {.offset = 0, .state_offset = 0, .count = N, .weight_decay = true}};
  std::vector<AdamWRange> parts;
  for (int64_t at = 0; at < N;) {
    const int64_t n = std::min<int64_t>(N - at, 1 + 37 * static_cast<int64_t>(parts.size()) % 101);
    parts.push_back({.offset = at, .state_offset = at, .count = n, .weight_decay = true});
    at += n;
  }
  GpuRig rig({.wave = 64});
  const AdamWBuffers one = run(rig, host, start, whole), many = run(rig, host, start, parts);
  EXPECT_SAME_BITS(many.w, one.w);
  EXPECT_SAME_BITS(many.m, one.m);
  EXPECT_SAME_BITS(many.v, one.v);
}

// ------------------------------------------------------------------------------------ Newton-Schulz, Muon

double norm_of(int64_t count, const std::function<double(int64_t)>& element) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += element(i) * element(i);
  return std::sqrt(sum);
}
double at(const Tensor& t, int64_t i) { return static_cast<double>(t.as<float>()[i]); }

// Of |X|: how far two right results may be apart. As newton_schulz_test.cc has it for one: a rounding made early grows
// by the gain of a small singular value; fifteen products round sqrt(n) times; bf16 operands tip over to a neighbour.
double apart(int64_t n, NewtonSchulzKind kind, DType compute) {
  const double gain =
      kind == NewtonSchulzKind::kClassic
          ? std::pow(3.4445, 5)
          : 8.156554524902461 * 4.042929935166739 * 3.8916678022926607 * 3.285753657755655 * 2.3466;
  const double f32_error = 15 * 0x1p-24 * std::sqrt(static_cast<double>(n)) * gain;
  return 2 * (f32_error + (compute == DType::kBF16 ? 0x1p-8 * std::sqrt(0x1p-12) * gain : 0));
}

NewtonSchulz newton_schulz_data(Rig& rig, int64_t m, int64_t n, NewtonSchulzKind kind,
                                DType compute) {
  return {.x = rig.normal({m, n}, DType::kF32, 3, 0.02),
          .scratch = rig.zeros({newton_schulz_scratch_bytes(m, n, compute)}, DType::kU8),
          .kind = kind,
          .steps = 5,
          .compute = compute};
}

Tensor run(GpuRig& rig, NewtonSchulz a) {
  a.x = rig.put(a.x);
  a.scratch = rig.put(a.scratch);
  newton_schulz(*rig.gpu, a);
  return a.x;
}

TEST(GpuNewtonSchulz, IsTheCpusWithinRounding) {
  for (const auto kind : {NewtonSchulzKind::kClassic, NewtonSchulzKind::kPolarExpress}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 9}, {37, 70}}) {
        Rig host;
        const NewtonSchulz data = newton_schulz_data(host, m, n, kind, compute);
        NewtonSchulz want = data;
        want.x = host.copy(data.x);
        newton_schulz(host.ctx, want);
        GpuRig rig({.wave = compute == DType::kF32 ? 64 : 32});
        const Tensor got = rig.get(host, run(rig, data));
        const double size = norm_of(m * n, [&](int64_t i) { return at(want.x, i); }),
                     difference =
                         norm_of(m * n, [&](int64_t i) { return at(got, i) - at(want.x, i); });
        EXPECT_LE(difference, apart(n, kind, compute) * size)
            << m << " x " << n << " " << newton_schulz_name(kind) << " " << dtype_name(compute);
      }
    }
  }
}

TEST(GpuNewtonSchulz, F32HasOneResultInAllWavesAndZeroStaysZero) {
  Rig host;
  NewtonSchulz data = newton_schulz_data(host, 20, 30, NewtonSchulzKind::kClassic, DType::kF32);
  data.steps = 2;
  expect_one_result(all_emulations(), [&](GpuRig& rig) { return run(rig, data); });
  data.x = host.zeros({20, 30}, DType::kF32);
  GpuRig rig({.wave = 64});
  EXPECT_SAME_BITS(rig.get(host, run(rig, data)), data.x);
}

struct MuonBuffers {
  Tensor weights, momentum;
};

// Two steps with new gradients; `step` runs one.
MuonBuffers two_steps(Rig& host, const MuonOptions& options,
                      const std::function<void(const MuonBuffers&, const Tensor&)>& step) {
  const MuonBuffers b = {host.normal({1300}, DType::kF32, 1, 0.02),
                         host.normal({1300}, options.momentum_dtype, 2)};
  for (const uint64_t seed : {3, 4}) step(b, host.normal({1300}, DType::kF32, seed));
  return b;
}

MuonStep muon_call(const MuonBuffers& b, const Tensor& gradients, const Tensor& scratch,
                   std::span<const MuonMatrix> matrices, const MuonOptions& options) {
  return {.weights = b.weights,
          .momentum = b.momentum,
          .scratch = scratch,
          .gradients = gradients,
          .matrices = matrices,
          .gradient_scale = 0.5,
          .lr = options.lr,
          .options = options};
}

TEST(GpuMuon, MovesWeightsAsTheCpuWithinRounding) {
  const std::vector<MuonMatrix> matrices = {
      {.offset = 0, .momentum_offset = 0, .rows = 24, .cols = 40},
      {.offset = 960, .momentum_offset = 960, .rows = 30, .cols = 9, .lr_scale = 0.5},  // tall
      {.offset = 1230, .momentum_offset = 1230, .rows = 8, .cols = 8, .weight_decay = false}};
  for (const bool nesterov : {true, false}) {
    const MuonOptions o = {.lr = 0.03,
                           .nesterov = nesterov,
                           .ns_dtype = DType::kF32,
                           .momentum_dtype = nesterov ? DType::kF32 : DType::kBF16,
                           .weight_decay = 0.2};
    Rig host;
    const auto scratch_for = [&](int matrices_at_once) {
      return host.zeros({muon_scratch_bytes(matrices, o.ns_dtype, matrices_at_once)}, DType::kU8);
    };
    const Tensor scratch = scratch_for(host.ctx.pool->threads());
    const Tensor start = host.normal({1300}, DType::kF32, 1, 0.02);
    const MuonBuffers want = two_steps(host, o, [&](const MuonBuffers& b, const Tensor& g) {
      muon_step(host.ctx, muon_call(b, g, scratch, matrices, o));
    });
    GpuRig rig({.wave = 32});
    const MuonBuffers got = two_steps(host, o, [&](const MuonBuffers& b, const Tensor& g) {
      const MuonBuffers device = {rig.put(b.weights), rig.put(b.momentum)};
      muon_step(rig.ctx, muon_call(device, rig.put(g), rig.put(scratch_for(1)), matrices, o));
      rig.gpu->copy_out(b.weights.data, device.weights.data, b.weights.bytes());
      rig.gpu->copy_out(b.momentum.data, device.momentum.data, b.momentum.bytes());
    });
    EXPECT_CLOSE(got.momentum, want.momentum, tolerance(o.momentum_dtype, 4));
    for (const MuonMatrix& m : matrices) {
      const int64_t count = m.rows * m.cols;
      const auto size = [&](const Tensor& a, const Tensor& b) {
        return norm_of(count, [&](int64_t i) { return at(a, m.offset + i) - at(b, m.offset + i); });
      };
      const double moved = size(want.weights, start),
                   rounding = 4 * 0x1p-24 * size(want.weights, host.zeros({1300}, DType::kF32));
      EXPECT_LE(size(got.weights, want.weights),
                apart(std::max(m.rows, m.cols), o.coefficients, o.ns_dtype) * moved + rounding)
          << m.rows << " x " << m.cols;
    }
    for (int64_t i = 1294; i < 1300; ++i) {  // after the last matrix
      EXPECT_EQ(got.weights.as<float>()[i], start.as<float>()[i]);
    }
  }
}

// ------------------------------------------------------------------------------------ all rules

using Rule = ParameterSpec::Rule;

constexpr int64_t kElements = 620;
const OptimizerOptions kRules = {.muon = {.ns_dtype = DType::kF32}, .adamw = {}, .balance = {}};

std::vector<ParameterSpec> some_specs() {
  return {
      {.name = "embedding", .offset = 0, .count = 200, .rule = Rule::kAdamW, .weight_decay = true},
      {.name = "experts",
       .offset = 200,
       .count = 384,
       .matrices = 2,
       .rows = 16,
       .cols = 12,
       .rule = Rule::kMuon,
       .weight_decay = true},
      {.name = "0.bias", .offset = 590, .count = 5, .rows = 1, .cols = 5, .rule = Rule::kBalance},
      {.name = "1.bias", .offset = 600, .count = 5, .rows = 1, .cols = 5, .rule = Rule::kBalance},
      {.name = "norm", .offset = 605, .count = 11, .rule = Rule::kAdamW}};
}

// Where an optimizer works, with what it moves.
struct Place {
  Place(Rig& host, Arena& taken, const Context& where)
      : arena(taken), ctx(where), optimizer(some_specs(), kRules, /*threads=*/2, arena) {
    weights = arena.take("w", "weights", DType::kF32, {kElements});
    gradients = arena.take("g", "gradients", DType::kF32, {kElements});
    copy_in(ctx, weights, host.normal({kElements}, DType::kF32, 1, 0.1));
    copy_in(ctx, gradients, host.normal({kElements}, DType::kF32, 2));
  }
  void step(Rig& host, int64_t t) {
    optimizer.step(ctx,
                   {.weights = weights,
                    .gradients = gradients,
                    .load = host.int64s({10, 20, 30, 40, 0, 25, 5, 45, 25, 4}).reshaped({2, 5}),
                    .gradient_scale = 0.1,
                    .lr_scale = 1,
                    .step = t});
  }
  Tensor read(Rig& host, const Tensor& there) {
    Tensor t = there;
    t.data = host.zeros({there.count()}, there.dtype).data;
    copy_out(ctx, t, there);
    return t;
  }

  Arena& arena;
  Context ctx;
  Optimizer optimizer;
  Tensor weights, gradients;
};

TEST(GpuOptimizer, EveryParameterAndItsStateMoveAsOnTheCpu) {
  Rig host;
  Arena here(Arena::Mode::kReal);
  const std::unique_ptr<Gpu> gpu = emulate_gpu({.wave = 64});
  GpuArenaMemory memory(*gpu);
  Arena device(Arena::Mode::kReal, &memory);
  Pool pool(1);
  Place cpu(host, here, host.ctx), there(host, device, make_context(*gpu, pool));
  const Tensor start = host.copy(cpu.weights);
  for (int64_t t = 1; t <= 2; ++t) cpu.step(host, t), there.step(host, t);
  const Tensor got = there.read(host, there.weights), want = cpu.weights;
  const std::vector<OptimizerTensor> mine = there.optimizer.state(), its = cpu.optimizer.state();
  ASSERT_EQ(mine.size(), its.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].name, its[i].name);
    const Tensor state = there.read(host, mine[i].tensor);
    EXPECT_CLOSE(state, its[i].tensor, tolerance(DType::kF32, 30));
  }
  for (const ParameterSpec& s : some_specs()) {
    const Tensor a = got.rows(s.offset, s.offset + s.count),
                 b = want.rows(s.offset, s.offset + s.count);
    EXPECT_GT(relative_distance(b, start.rows(s.offset, s.offset + s.count)), 0) << s.name;
    if (s.rule == Rule::kBalance) EXPECT_SAME_BITS(a, b);
    if (s.rule == Rule::kAdamW) EXPECT_CLOSE(a, b, tolerance(DType::kF32, 30));
    if (s.rule != Rule::kMuon) continue;
    const auto size = [&](const Tensor& x, const Tensor& y) {
      return norm_of(s.count, [&](int64_t i) { return at(x, i) - at(y, i); });
    };
    const Tensor before = start.rows(s.offset, s.offset + s.count);
    EXPECT_LE(size(a, b), apart(16, kRules.muon.coefficients, DType::kF32) * size(b, before) +
                              4 * 0x1p-24 * norm_of(s.count, [&](int64_t i) { return at(b, i); }));
  }
  for (const int64_t gap : {584, 595, 616}) EXPECT_EQ(at(got, gap), at(start, gap)) << gap;
}

}  // namespace
}  // namespace moraine::gpu
