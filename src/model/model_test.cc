// Model: parity with the public implementation (tests/golden, made by its PyTorch code), reference against
// finite differences, and one answer: cached, chunked, packed, recomputed and threaded runs give the same bits.
//
// Fails if any formula, weight name, mask, halo or border differs from the public code, or if a row's bits
// depend on its batch.
#include "model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/ref/element.h"
#include "model/test_golden_gradients.h"

namespace moraine {
namespace {

using namespace testing;

class Parity : public ::testing::TestWithParam<std::tuple<const char*, Backend>> {};

TEST_P(Parity, LogitsLossGradientsAndRouting) {
  const auto [name, backend] = GetParam();
  Golden g(name, backend, backend == Backend::kRef ? DType::kF64 : DType::kF32, /*training=*/true);
  const ModelConfig& c = g.directory.config();
  EXPECT_LE(relative_distance(g.logits(), g.want("logits")), kF32Logit);

  const Tensor load = g.rig.zeros({c.layers, c.classes()}, DType::kI64);
  const double loss =
      g.model->loss_and_gradients(g.rig.ctx, g.batch(), g.target, {g.gradients}, load);
  const double positions = static_cast<double>(g.targets());
  EXPECT_NEAR(loss / positions, ref::get(g.want("loss"), 0), 2e-6);

  const Tensor choice_entry = view(g.expected.get("router_choice"));
  const Tensor prob = g.want("router_prob");
  for (int64_t i = 0; i < c.layers; ++i) {
    for (int64_t t = 0; t < g.rows * g.length; ++t) {
      const int64_t at = i * g.rows * g.length + t;
      ASSERT_EQ(g.model->acts(i).expert.as<int32_t>()[t],
                static_cast<const int32_t*>(choice_entry.data)[at])
          << "layer " << i << " token " << t;
      EXPECT_NEAR(ref::get(g.model->acts(i).gate, t), ref::get(prob, at), 1e-5);
    }
    EXPECT_LE(
        relative_distance(g.model->boundary_above(i).r, g.want("hidden/" + std::to_string(i))),
        kF32Logit);
  }
  const Tensor gradients = g.rig.copy(g.gradients);
  Conditions conditions;
  if (backend == Backend::kCpu) conditions = conditions_of(g);
  expect_golden_gradients(g, g.model->table(), gradients, conditions);
}

INSTANTIATE_TEST_SUITE_P(Golden, Parity,
                         ::testing::Combine(::testing::Values("native-tiny", "native-swa"),
                                            ::testing::Values(Backend::kRef, Backend::kCpu)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           name[name.find('-')] = '_';
                           return name +
                                  (std::get<1>(info.param) == Backend::kRef ? "_ref" : "_cpu");
                         });

TEST(ModelParity, LegacyLayoutIsTheSameModel) {
  Golden g("legacy-tiny", Backend::kCpu, DType::kF32, false);
  EXPECT_EQ(g.directory.config().skip, SkipKind::kIdentity);
  EXPECT_LE(relative_distance(g.logits(), g.want("logits")), kF32Logit);
}

TEST(ModelParity, SkipSemanticsOfBothLayouts) {
  for (const char* name : {"native-tiny", "legacy-tiny"}) {
    Golden g(name, Backend::kCpu, DType::kF32, false);
    for (const Parameter& p : g.model->table().all) {
      if (p.kind == Parameter::Kind::kBalance) view(p, g.master).as<float>()[p.count() - 1] = 0.1f;
    }
    g.model->refresh(g.rig.ctx);
    EXPECT_LE(relative_distance(g.logits(), g.want("skip/logits")), kF32Logit) << name;
  }
}

TEST(ModelParity, Bf16) {
  // The public bf16 run is itself 3 % (of the logits' rms) from f32: ours may be as far on the other side.
  Golden g("native-tiny-bf16", Backend::kCpu, DType::kBF16, false);
  EXPECT_EQ(g.directory.stored_dtype(), DType::kBF16);
  EXPECT_LE(relative_distance(g.logits(), g.want("logits_f32")), 0.045);
  // A loss is a difference of two logit-sized numbers, each off by 0.05 rms; the mean is over 46 positions.
  const double positions = static_cast<double>(g.targets());
  EXPECT_NEAR(g.model->loss(g.rig.ctx, g.batch(), g.target) / positions,
              ref::get(g.want("loss_f32"), 0), 3 * 0.05 * std::sqrt(2 / positions));
}

TEST(ModelParity, GreedyContinuation) {
  for (const char* name : {"native-tiny", "native-swa", "legacy-tiny"}) {
    Golden g(name, Backend::kCpu, DType::kF32, false);
    Arena arena(Arena::Mode::kReal);
    Cache cache =
        make_cache(arena, g.directory.config(), DType::kF32, {.pages = 4, .page_rows = 16});
    const int32_t pages[] = {2, 0, 3, 1};
    const Tensor want = view(g.expected.get("greedy_ids"));
    for (int64_t r = 0; r < g.rows; ++r) {
      std::vector<int32_t> ids(g.token.as<int32_t>() + r * g.length,
                               g.token.as<int32_t>() + (r + 1) * g.length);
      int64_t at = 0;
      for (int64_t n = 0; n < 16; ++n) {
        const int64_t T = static_cast<int64_t>(ids.size());
        Batch b{.token = g.rig.int32s(ids),
                .position = g.rig.zeros({T}, DType::kI32),
                .segments = {{0, T, at, 0}}};
        for (int64_t t = 0; t < T; ++t) b.position.as<int32_t>()[t] = static_cast<int32_t>(at + t);
        const Tensor hidden = g.model->forward(g.rig.ctx, b, &cache, pages);
        at += T;
        const Tensor logits = g.model->logits(g.rig.ctx, hidden.rows(T - 1, T));
        const float* p = logits.as<float>();
        const int32_t best = static_cast<int32_t>(std::max_element(p, p + logits.dims[1]) - p);
        ASSERT_EQ(best, static_cast<const int64_t*>(want.data)[r * 16 + n])
            << name << " row " << r << " step " << n;
        ids = {best};
      }
    }
  }
}

// A small random model for bits and finite differences.
ModelConfig tiny_config(SkipKind skip) {
  ModelConfig c;
  c.vocab_size = 37, c.hidden = 12, c.layers = 3, c.heads = 4, c.kv_heads = 2, c.head_dim = 4,
  c.experts = 3;
  c.expert_hidden = 6, c.router_hidden = 5, c.skip = skip, c.sliding_window = 3,
  c.sliding_layers = {1};
  c.init_std = 0.3, c.max_positions = 64;
  return c;
}

struct Tiny {
  Tiny(const ModelConfig& config, Backend backend, DType compute,
       Recompute recompute = Recompute::kNone, int threads = 2)
      : rig(backend, threads), arena(Arena::Mode::kReal) {
    const DType wide = compute == DType::kF64 ? DType::kF64 : DType::kF32;
    const ParameterTable table = build_parameters(config);
    master = rig.zeros({table.total_count}, wide);
    initialize_parameters(table, config, 3, master);
    for (const Parameter& p : table.all) {  // far from initial values, so that no term hides
      const Tensor t = view(p, master), noise = rig.normal({t.count()}, DType::kF64,
                                                           static_cast<uint64_t>(p.offset), 0.2);
      const bool skip_entry = p.kind == Parameter::Kind::kBalance;
      for (int64_t i = 0; i < t.count(); ++i) ref::add(t, i, skip_entry ? 0 : ref::get(noise, i));
      if (skip_entry && config.has_skip()) ref::set(t, t.count() - 1, 0.15);  // skip is used
    }
    gradients = rig.zeros({table.total_count}, wide);
    model = std::make_unique<Model>(arena, config,
                                    ModelOptions{.compute = compute,
                                                 .tokens = kRows,
                                                 .positions = 64,
                                                 .training = true,
                                                 .recompute = recompute},
                                    master);
    model->refresh(rig.ctx);
    batch.token = rig.integers({kRows}, config.vocab_size, 5);
    batch.position = rig.zeros({kRows}, DType::kI32);
    set_documents(batch, {0, 1, 8, 9, 17});  // borders, one of them after a single token
    target = rig.integers({kRows}, config.vocab_size, 6);
    target.as<int32_t>()[3] = -1;
  }
  double loss() {
    model->refresh(rig.ctx);
    return model->loss(rig.ctx, batch, target);
  }
  static constexpr int64_t kRows = 24;
  Rig rig;
  Arena arena;
  Tensor master, gradients, target;
  Batch batch;
  std::unique_ptr<Model> model;
};

void expect_model_gradient(const ModelConfig& config) {
  Tiny t(config, Backend::kRef, DType::kF64);
  t.model->loss_and_gradients(t.rig.ctx, t.batch, t.target, {t.gradients}, {});
  for (const Parameter& p : t.model->table().all) {
    if (p.kind == Parameter::Kind::kBalance) continue;
    expect_gradient(
        view(p, t.master), view(p, t.gradients), [&] { return t.loss(); }, p.name.c_str(), 5, 1e-2);
  }
}

TEST(ModelGradient, MatchesFiniteDifferences) {
  expect_model_gradient(tiny_config(SkipKind::kIdentity));
  expect_model_gradient(tiny_config(SkipKind::kZero));
}

TEST(ModelGradient, BaselineBlocksMatchFiniteDifferences) {
  ModelConfig c = tiny_config(SkipKind::kNone);
  c.attention = AttentionKind::kGqa, c.router = RouterKind::kLinear,
  c.residual = ResidualKind::kPlain, c.experts_per_token = 2;
  expect_model_gradient(c);
  c = tiny_config(SkipKind::kIdentity);
  c.experts_per_token = 2;
  expect_model_gradient(c);
  c = tiny_config(SkipKind::kNone);
  c.experts = 0;
  expect_model_gradient(c);
}

// Whoever takes a layer's matrices when it is done has what the whole pass leaves there.
TEST(ModelGradient, ALayerIsDoneWithItsMatricesFromTheLastDown) {
  Tiny t(tiny_config(SkipKind::kIdentity), Backend::kCpu, DType::kF32);
  std::vector<int64_t> done;
  std::vector<float> taken(static_cast<size_t>(t.gradients.count()));
  const auto copy_layer = [&](int64_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (const Parameter& p : t.model->table().all) {
      const bool matrix = p.kind == Parameter::Kind::kMatrix || p.kind == Parameter::Kind::kExperts;
      if (!matrix || !p.name.starts_with(prefix)) continue;
      const float* from = t.gradients.as<float>() + p.offset;
      std::copy(from, from + p.count(), taken.begin() + p.offset);
    }
    done.push_back(layer);
  };
  t.model->loss_and_gradients(t.rig.ctx, t.batch, t.target, {t.gradients, copy_layer}, {});
  ASSERT_EQ(static_cast<int64_t>(done.size()), t.model->config().layers);
  EXPECT_TRUE(std::is_sorted(done.rbegin(), done.rend()));
  for (const Parameter& p : t.model->table().all) {
    if (p.kind != Parameter::Kind::kMatrix && p.kind != Parameter::Kind::kExperts) continue;
    const float* whole = t.gradients.as<float>() + p.offset;
    EXPECT_TRUE(std::equal(whole, whole + p.count(), taken.begin() + p.offset)) << p.name;
  }
}

TEST(ModelBits, RecomputationThreadsAndRowsChangeNothing) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Tiny plain(tiny_config(SkipKind::kIdentity), Backend::kCpu, compute);
    Tiny again(tiny_config(SkipKind::kIdentity), Backend::kCpu, compute, Recompute::kLayer, 1);
    const double loss = plain.model->loss_and_gradients(plain.rig.ctx, plain.batch, plain.target,
                                                        {plain.gradients}, {});
    EXPECT_EQ(loss, again.model->loss_and_gradients(again.rig.ctx, again.batch, again.target,
                                                    {again.gradients}, {}));
    EXPECT_SAME_BITS(again.gradients, plain.gradients);
  }
}

TEST(ModelBits, CachedChunkedAndPackedAreTheSameAnswer) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Tiny t(tiny_config(SkipKind::kIdentity), Backend::kCpu, compute);
    const Tensor all = t.rig.copy(t.model->forward(t.rig.ctx, t.batch));
    Arena arena(Arena::Mode::kReal);
    Cache cache = make_cache(arena, t.model->config(), compute, {.pages = 5, .page_rows = 16});
    for (const Segment& s : t.batch.segments) {
      for (int64_t chunk = 1; chunk <= s.rows; ++chunk) {  // every split point
        const int32_t here = chunk % 2 == 0 ? 1 : 4, next = chunk % 3 == 0 ? 0 : 3;
        const int32_t pages[] = {here, next};
        for (int64_t done = 0; done < s.rows; done += chunk) {
          const int64_t rows = std::min(chunk, s.rows - done), row = s.row_begin + done;
          Batch part{.token = t.batch.token.rows(row, row + rows),
                     .position = t.batch.position.rows(row, row + rows),
                     .segments = {{0, rows, done, 0}}};
          const Tensor got = t.model->forward(t.rig.ctx, part, &cache, pages);
          EXPECT_SAME_BITS(got, all.rows(row, row + rows));
        }
      }
    }
  }
}

TEST(ModelBits, TwoSequencesDecodedTogetherEqualEachAlone) {
  Tiny t(tiny_config(SkipKind::kIdentity), Backend::kCpu, DType::kBF16);
  const Tensor all = t.rig.copy(t.model->forward(t.rig.ctx, t.batch));
  Arena arena(Arena::Mode::kReal);
  Cache cache = make_cache(arena, t.model->config(), DType::kBF16,
                           {.pages = 2, .segments = 2, .page_rows = 16});
  const Segment a = t.batch.segments[1], b = t.batch.segments[4];  // 7 rows each
  ASSERT_EQ(a.rows, b.rows);
  const int32_t pages[] = {1, 0};
  for (int64_t i = 0; i < a.rows; ++i) {
    Batch step{.token = t.rig.int32s({t.batch.token.as<int32_t>()[a.row_begin + i],
                                      t.batch.token.as<int32_t>()[b.row_begin + i]}),
               .position = t.rig.int32s({static_cast<int32_t>(i), static_cast<int32_t>(i)}),
               .segments = {{0, 1, i, 0}, {1, 1, i, 1}}};
    const Tensor got = t.model->forward(t.rig.ctx, step, &cache, pages);
    EXPECT_SAME_BITS(got.rows(0, 1), all.rows(a.row_begin + i, a.row_begin + i + 1));
    EXPECT_SAME_BITS(got.rows(1, 2), all.rows(b.row_begin + i, b.row_begin + i + 1));
  }
}

// Pages are all that a prefix leaves behind: a second sequence goes on from the first one's, at a page's end
// in the same page, elsewhere in a copy.
TEST(ModelBits, ASequenceGoesOnFromAnothersPages) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Tiny t(tiny_config(SkipKind::kIdentity), Backend::kCpu, compute);
    set_documents(t.batch, {0});
    const Tensor all = t.rig.copy(t.model->forward(t.rig.ctx, t.batch));
    Arena arena(Arena::Mode::kReal);
    Cache cache = make_cache(arena, t.model->config(), compute, {.pages = 4, .page_rows = 16});
    const auto run = [&](int64_t begin, int64_t end, std::span<const int32_t> pages) {
      Batch part{.token = t.batch.token.rows(begin, end),
                 .position = t.batch.position.rows(begin, end),
                 .segments = {{0, end - begin, begin, 0}}};
      EXPECT_SAME_BITS(t.model->forward(t.rig.ctx, part, &cache, pages), all.rows(begin, end));
    };
    for (int64_t prefix = 1; prefix < Tiny::kRows; ++prefix) {
      const int32_t first[] = {3, 0};
      run(0, prefix, first);
      const int32_t second[] = {prefix < 16 ? 1 : 3, prefix < 16 ? 2 : 1};  // full ones are shared
      if (prefix % 16 != 0) copy_page(t.rig.ctx, cache, first[prefix / 16], 1);
      run(prefix, Tiny::kRows, second);
    }
  }
}

TEST(ModelPlan, DryArenaPlansWhatTheRealOneTakes) {
  const ModelConfig c = tiny_config(SkipKind::kIdentity);
  const ParameterTable table = build_parameters(c);
  Arena dry(Arena::Mode::kDry), real(Arena::Mode::kReal);
  for (Arena* arena : {&dry, &real}) {
    const Tensor master =
        arena->take("weights.master", "weights", DType::kF32, {table.total_count});
    Model model(*arena, c,
                {.compute = DType::kBF16, .tokens = 16, .positions = 32, .training = true}, master);
  }
  EXPECT_EQ(dry.bytes(), real.bytes());
  EXPECT_GT(dry.bytes(), 0);
}

}  // namespace
}  // namespace moraine
