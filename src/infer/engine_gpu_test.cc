// An engine whose model is on an emulated GPU: fails if chunks, company, prefix hits, preemption or cancellation change
// a bit of an answer, if log-probabilities are not the scorer's, or if a step moves more than ids, places and logits
// between host and device.
#include <gtest/gtest.h>

#include "infer/test_engine.h"
#include "model/test_gpu_model.h"

namespace moraine {
namespace {

using namespace testing;
using gpu::Emulation;
using gpu::MatrixRule;

constexpr Emulation kSm90 = {.wave = 32, .rule = MatrixRule::kSm90},
                    kCdna3 = {.wave = 64, .rule = MatrixRule::kCdna3};

ModelConfig tiny_config(int64_t layers) {
  ModelConfig c;
  c.vocab_size = 320, c.hidden = 16, c.layers = layers, c.heads = 2, c.kv_heads = 1;
  c.head_dim = 8, c.experts = 2, c.expert_hidden = 8, c.router_hidden = 8;
  c.init_std = 0.2, c.max_positions = 128;
  return c;
}

struct InitialWeights {
  explicit InitialWeights(const ModelConfig& config) {
    const ParameterTable table = build_parameters(config);
    values = rig.zeros({table.total_count}, DType::kF32);
    initialize_parameters(table, config, 7, values);
  }
  Rig rig;
  Tensor values;
};

// The smallest model that has every part, and its cache.
struct Tiny : GpuModel {
  Tiny(const Emulation& e, DType compute, int64_t rows, const CacheOptions& o, int64_t layers = 2)
      : GpuModel(tiny_config(layers), InitialWeights(tiny_config(layers)).values, e,
                 {.compute = compute, .tokens = rows, .positions = 128}),
        cache(make_cache(arena, model->config(), compute, o)) {}
  Cache cache;
};

Request request_of(uint64_t seed, size_t tokens, int64_t max_tokens) {
  Request r = make_request(seed);
  r.prompt.resize(tokens, static_cast<int32_t>(5 + seed));
  r.max_tokens = max_tokens;
  r.salt = "";
  r.logprobs = true;
  r.prompt_logprobs = false;
  return r;
}

// Nine rows a step and five pages for three that run: prompts come in chunks, and somebody has to give up pages.
TEST(EngineOnAGpu, NothingButTheRequestIsInItsAnswer) {
  Tiny on(kCdna3, DType::kBF16, 9, {.pages = 5, .segments = 3, .page_rows = 16}, 1),
      quiet(kCdna3, DType::kBF16, 64, {.pages = 8, .page_rows = 16}, 1);
  Engine engine(on.ctx, *on.model, on.cache, nullptr, {.sequences = 3});
  std::vector<Request> asked = {request_of(1, 20, 8), request_of(2, 30, 6), request_of(3, 27, 9),
                                request_of(4, 3, 4), request_of(5, 26, 40)};
  asked[3].prompt_logprobs = true;
  std::vector<Heard> heard(asked.size() + 1);
  for (size_t i = 0; i < asked.size(); ++i) {
    heard[i].id = engine.submit(asked[i], listen(heard[i]));
    engine.step();
  }
  while (heard[4].tokens.empty()) engine.step();
  engine.cancel(heard[4].id);
  while (engine.step()) continue;
  asked.push_back(asked[1]);  // again, and a token more: the prefix is known
  asked.back().prompt.push_back(9);
  engine.submit(asked.back(), listen(heard.back()));
  while (engine.step()) continue;
  EXPECT_EQ(heard[4].finish, "cancelled");
  EXPECT_GT(heard.back().cached, 0);
  EXPECT_GT(engine.stats().preemptions, 0);
  expect_idle(engine);
  for (const size_t i : {0, 1, 2, 3, 5}) {
    SCOPED_TRACE(i);
    expect_same(heard[i], alone(quiet.ctx, *quiet.model, quiet.cache, asked[i]));
  }
}

TEST(EngineOnAGpu, LogprobsAreTheScorersToTheBit) {
  Tiny on(kSm90, DType::kF32, 6, {.pages = 4, .page_rows = 16}), whole(kSm90, DType::kF32, 16, {});
  Request r = request_of(8, 9, 5);
  r.prompt_logprobs = true;
  r.top_logprobs = 0;
  const Heard heard = alone(on.ctx, *on.model, on.cache, r);
  std::vector<int32_t> ids = r.prompt;
  ids.insert(ids.end(), heard.tokens.begin(), heard.tokens.end());
  std::vector<double> got = heard.prompt;
  got.insert(got.end(), heard.logprobs.begin(), heard.logprobs.end());
  EXPECT_EQ(got, scores_of(whole.ctx, *whole.model, ids));
}

// What goes in and comes out of one step of two answers is the same for one layer and for three.
TEST(EngineOnAGpu, AStepMovesIdsPlacesAndLogits) {
  std::vector<int> ins, outs;
  for (const int64_t layers : {1, 3}) {
    Tiny on(kSm90, DType::kBF16, 16, {.pages = 4, .segments = 2, .page_rows = 16}, layers);
    Engine engine(on.ctx, *on.model, on.cache, nullptr, {.sequences = 2});
    std::vector<Heard> heard(2);
    for (size_t i = 0; i < heard.size(); ++i) {
      Request r = request_of(i, 4, 6);
      r.logprobs = false;
      r.top_logprobs = 0;
      engine.submit(r, listen(heard[i]));
    }
    engine.step();
    engine.step();
    const int in = on.gpu.copies_in, out = on.gpu.copies_out, takes = on.gpu.takes;
    engine.step();
    ins.push_back(on.gpu.copies_in - in);
    outs.push_back(on.gpu.copies_out - out);
    EXPECT_EQ(on.gpu.takes, takes);
    EXPECT_EQ(heard[1].tokens.size(), 3u);
  }
  EXPECT_EQ(outs, (std::vector<int>{1, 1}));  // logits of both rows, and no hidden row
  EXPECT_EQ(ins[0], ins[1]);
}

}  // namespace
}  // namespace moraine
