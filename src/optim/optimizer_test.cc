// Fails if a parameter gets the wrong rule, a share differs from the whole, or plan and arena
// disagree.
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;
using Rule = ParameterSpec::Rule;

constexpr int64_t N = 3000;

std::vector<ParameterSpec> make_specs() {
  return {
      {.name = "embedding", .offset = 0, .count = 200, .rule = Rule::kAdamW, .weight_decay = true},
      {.name = "layers.0.o",
       .offset = 200,
       .count = 320,
       .rows = 16,
       .cols = 20,
       .rule = Rule::kMuon,
       .weight_decay = true},
      {.name = "layers.0.norm", .offset = 520, .count = 16, .rule = Rule::kAdamW},
      {.name = "layers.0.bias",
       .offset = 536,
       .count = 5,
       .rows = 1,
       .cols = 5,
       .rule = Rule::kBalance},
      {.name = "layers.0.experts",
       .offset = 541,
       .count = 4 * 96,
       .matrices = 4,
       .rows = 12,
       .cols = 8,
       .rule = Rule::kMuon,
       .weight_decay = true,
       .lr_scale = 0.5},
      {.name = "layers.1.norm", .offset = 925, .count = 16, .rule = Rule::kAdamW},
      {.name = "layers.1.bias",
       .offset = 941,
       .count = 5,
       .rows = 1,
       .cols = 5,
       .rule = Rule::kBalance},
      {.name = "frozen", .offset = 946, .count = 50, .rule = Rule::kFrozen},
      {.name = "head",
       .offset = 996,
       .count = 2000,
       .rule = Rule::kAdamW,
       .weight_decay = true,
       .lr_scale = 0.1},
  };
}

struct Fixture {
  Rig rig;
  Arena arena{Arena::Mode::kReal};
  std::vector<ParameterSpec> specs = make_specs();
  Tensor weights = rig.normal({N}, DType::kF32, 1, 0.1),
         gradients = rig.normal({N}, DType::kF32, 2);
  Tensor load = rig.int64s({10, 20, 30, 40, 0, 25, 25, 25, 25, 4}).reshaped({2, 5});
  Optimizer optimizer;
  explicit Fixture(const OptimizerShare& share = {}, int threads = 2)
      : rig(Backend::kCpu, threads), optimizer(specs, {}, threads, arena, share) {
    weights.as<float>()[540] = weights.as<float>()[945] = -1;
  }
  void step(int64_t t, double lr_scale = 1) {
    optimizer.step(rig.ctx, {.weights = weights,
                             .gradients = gradients,
                             .load = load,
                             .gradient_scale = 0.1,
                             .lr_scale = lr_scale,
                             .step = t});
  }
};

TEST(Optimizer, EveryParameterMovesByItsRule) {
  Fixture f;
  const Tensor before = f.rig.copy(f.weights);
  const auto moved = [&](int64_t i) {
    return std::abs(static_cast<double>(f.weights.as<float>()[i]) -
                    static_cast<double>(before.as<float>()[i]));
  };
  f.step(1);
  for (const ParameterSpec& s : f.specs) {
    double sum = 0;
    for (int64_t i = s.offset; i < s.offset + s.count; ++i) sum += moved(i) * moved(i);
    const double rms = std::sqrt(sum / static_cast<double>(s.count));
    // A first step of AdamW has the size of the rate, one of Muon 0.2 of it, plus a little decay.
    if (s.rule == Rule::kAdamW) {
      EXPECT_NEAR(rms, 2e-3 * s.lr_scale, 1e-4 * s.lr_scale) << s.name;
    }
    if (s.rule == Rule::kMuon) {
      EXPECT_NEAR(rms, 0.2 * 2e-3 * s.lr_scale, 1e-4 * s.lr_scale) << s.name;
    }
    if (s.rule == Rule::kFrozen) {
      EXPECT_EQ(rms, 0) << s.name;
    }
  }
  EXPECT_GT(f.weights.as<float>()[536], before.as<float>()[536]);  // 10 tokens of 100: rises
  EXPECT_LT(f.weights.as<float>()[539], before.as<float>()[539]);  // 40 of 100: falls
  EXPECT_EQ(f.weights.as<float>()[540], -1);                       // skip
  EXPECT_EQ(f.weights.as<float>()[941],
            before.as<float>()[941]);                         // layer 1 is balanced: load row 1
  for (int64_t i = 2996; i < N; ++i) EXPECT_EQ(moved(i), 0);  // belongs to nobody
}

TEST(Optimizer, LearningRateScaleOfZeroMovesOnlyTheBalance) {
  Fixture f;
  const Tensor before = f.rig.copy(f.weights);
  f.step(1, 0);
  for (int64_t i = 0; i < N; ++i) {
    const bool balance = i >= 536 && i < 540;
    EXPECT_EQ(f.weights.as<float>()[i] != before.as<float>()[i], balance) << i;
  }
}

TEST(Optimizer, SharesTogetherAreTheWholeBitForBit) {
  Fixture whole({}, 1);
  OptimizerShare first, second;
  first.everything = second.everything = false;
  first.matrices = {0, 2, 3};
  second.matrices = {1, 4};
  first.adamw_begin = 0, first.adamw_end = 207;  // through the middle of a norm
  second.adamw_begin = 207, second.adamw_end = 2232;
  Fixture a(first), b(second);
  EXPECT_LT(a.arena.bytes() + b.arena.bytes(), whole.arena.bytes() * 3);
  for (int64_t t = 1; t <= 3; ++t) {
    for (Fixture* f : {&whole, &a, &b}) f->step(t);
    const OptimizerLayout layout = optimizer_layout(whole.specs);
    // What an all-gather will do: each takes the other's part.
    const auto take = [&](Fixture& to, const Fixture& from, const OptimizerShare& share) {
      const auto copy = [&](int64_t begin, int64_t count) {
        std::memcpy(to.weights.as<float>() + begin, from.weights.as<float>() + begin,
                    static_cast<size_t>(count) * 4);
      };
      for (const int64_t i : share.matrices) {
        const MuonMatrix& m = layout.matrices[static_cast<size_t>(i)];
        copy(m.offset, m.rows * m.cols);
      }
      for (const AdamWRange& r : layout.ranges) {
        const int64_t begin = std::max(r.state_offset, share.adamw_begin),
                      end = std::min(r.state_offset + r.count, share.adamw_end);
        if (begin < end) copy(r.offset + begin - r.state_offset, end - begin);
      }
    };
    take(a, b, second);
    take(b, a, first);
    EXPECT_SAME_BITS(a.weights, whole.weights);
    EXPECT_SAME_BITS(b.weights, whole.weights);
  }
  // The parts of the state, put together by element, are the whole state.
  std::map<std::string, std::vector<float>> pieces;
  for (const Fixture* f : {&a, &b}) {
    for (const OptimizerTensor& t : f->optimizer.state()) {
      std::vector<float>& all = pieces[t.name];
      all.resize(static_cast<size_t>(t.elements_all));
      std::memcpy(all.data() + t.element_begin, t.tensor.data,
                  static_cast<size_t>(t.tensor.bytes()));
    }
  }
  for (const OptimizerTensor& t : whole.optimizer.state()) {
    const std::vector<float>& all = pieces.at(t.name);
    ASSERT_EQ(static_cast<int64_t>(all.size()), t.tensor.count()) << t.name;
    EXPECT_EQ(std::memcmp(all.data(), t.tensor.data, static_cast<size_t>(t.tensor.bytes())), 0)
        << t.name;
  }
  EXPECT_EQ(pieces.size(), whole.optimizer.state().size());
}

TEST(Optimizer, SavedStateContinuesBitForBit) {
  Fixture straight, first;
  for (int64_t t = 1; t <= 4; ++t) straight.step(t);
  for (int64_t t = 1; t <= 2; ++t) first.step(t);
  Fixture second;
  std::memcpy(second.weights.data, first.weights.data, static_cast<size_t>(first.weights.bytes()));
  const std::vector<OptimizerTensor> from = first.optimizer.state(), to = second.optimizer.state();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].name, to[i].name);
    std::memcpy(to[i].tensor.data, from[i].tensor.data,
                static_cast<size_t>(from[i].tensor.bytes()));
  }
  for (int64_t t = 3; t <= 4; ++t) second.step(t);
  EXPECT_SAME_BITS(second.weights, straight.weights);
}

TEST(Optimizer, StateNamesAndShapes) {
  Fixture f;
  std::string text;
  for (const OptimizerTensor& t : f.optimizer.state())
    text += t.name + " " + shape_text(t.tensor) + "\n";
  EXPECT_EQ(text,
            "layers.0.o.momentum [16, 20]\nlayers.0.experts.momentum [4, 12, 8]\n"
            "embedding.m [200]\nembedding.v [200]\nlayers.0.norm.m [16]\nlayers.0.norm.v [16]\n"
            "layers.1.norm.m [16]\nlayers.1.norm.v [16]\nhead.m [2000]\nhead.v [2000]\n"
            "layers.0.bias.m [1, 5]\nlayers.0.bias.v [1, 5]\nlayers.1.bias.m [1, "
            "5]\nlayers.1.bias.v [1, 5]\n");
}

TEST(Optimizer, DryArenaPlansTheSameBytes) {
  Arena dry(Arena::Mode::kDry);
  const Optimizer planned(make_specs(), {}, 2, dry);
  EXPECT_EQ(dry.bytes(), Fixture().arena.bytes());
  EXPECT_EQ(planned.state().size(), Fixture().optimizer.state().size());
  EXPECT_GT(planned.flops(), 0);
}

TEST(Optimizer, TableFoldsLayers) {
  const std::string table = optimizer_table(make_specs(), {});
  EXPECT_NE(table.find("layers.*.norm     adamw          2             32      0.002      -"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("layers.*.experts  muon           1            384      0.001    0.1"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("frozen            frozen         1             50          -      -"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("total                            9           2996"), std::string::npos)
      << table;
}

TEST(Optimizer, BadOptionsAreErrors) {
  const auto rejects = [](auto change) {
    OptimizerOptions options;
    change(options);
    try {
      check_options(options);
      return false;
    } catch (const Error& e) {
      return e.code() == Code::kInvalidArgument;
    }
  };
  EXPECT_NO_THROW(check_options({}));
  EXPECT_TRUE(rejects([](OptimizerOptions& o) { o.muon.lr = -1; }));
  EXPECT_TRUE(rejects([](OptimizerOptions& o) { o.muon.momentum = 1; }));
  EXPECT_TRUE(rejects([](OptimizerOptions& o) { o.muon.ns_steps = 0; }));
  EXPECT_TRUE(rejects([](OptimizerOptions& o) { o.muon.ns_dtype = DType::kI32; }));
  EXPECT_TRUE(rejects([](OptimizerOptions& o) { o.adamw.beta2 = std::nan(""); }));
  EXPECT_TRUE(rejects([](OptimizerOptions& o) { o.adamw.eps = 0; }));
  EXPECT_TRUE(rejects([](OptimizerOptions& o) { o.balance.beta1 = 1.5; }));
}

TEST(OptimizerDeathTest, OverlapsAndWrongShapesStop) {
  std::vector<ParameterSpec> overlap = make_specs();
  overlap[2].offset -= 1;
  EXPECT_DEATH(optimizer_layout(overlap), "overlap");
  std::vector<ParameterSpec> shape = make_specs();
  shape[1].rows = 17;
  EXPECT_DEATH(optimizer_layout(shape), "layers.0.o");
}

}  // namespace
}  // namespace moraine
