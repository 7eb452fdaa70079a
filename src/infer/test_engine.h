// TestEngine: what an engine's listener heard, requests of every kind, one request alone, and what a scorer says of it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "infer/engine.h"

namespace moraine::testing {

// What an answer was.
struct Heard {
  int64_t id = -1, cached = -1;
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;  // of tokens, then of the most likely beside each
  std::vector<double> prompt;
  std::string finish, error, stop;
  int64_t ends = 0;
};

inline Listener listen(Heard& heard) {
  Listener l;
  l.on_prompt = [&heard](const PromptDone& done) {
    heard.cached = done.cached_tokens;
    for (const TokenScore& score : done.scores) heard.prompt.push_back(score.chosen.logprob);
  };
  l.on_token = [&heard](const TokenPiece& piece) {
    heard.tokens.push_back(piece.score.chosen.token);
    const double logprob = piece.score.chosen.logprob;
    heard.logprobs.push_back(std::isnan(logprob) ? 1 : logprob);  // 1: nobody asked
    for (const TokenLogprob& other : piece.score.top) heard.logprobs.push_back(other.logprob);
  };
  l.on_finish = [&heard](const Ended& ended) {
    heard.finish = finish_name(ended.finish);
    heard.error = ended.error;
    heard.stop = ended.stop;
    ++heard.ends;
  };
  return l;
}

inline Request make_request(uint64_t seed) {
  const auto draw = [&](uint64_t n, uint64_t index) {
    return static_cast<int64_t>(random_below(n, 1, Stream::kTest, seed, index));
  };
  Request r;
  const int64_t length = 1 + draw(70, 0), family = draw(3, 1);  // families share beginnings
  for (int64_t i = 0; i < length; ++i)
    r.prompt.push_back(static_cast<int32_t>(3 + (i * 29 + family * 7) % 300));
  if (draw(2, 2) == 0) r.prompt.back() = static_cast<int32_t>(3 + draw(300, 3));
  r.max_tokens = 1 + draw(40, 4);
  r.sampling.temperature = draw(2, 5) == 0 ? 0 : 0.9;
  r.sampling.seed = static_cast<uint64_t>(draw(4, 6));
  r.sampling.choice = draw(3, 7);
  if (draw(3, 8) == 0) r.sampling.top_p = 0.8;
  if (draw(3, 9) == 0) r.sampling.presence_penalty = 1.5;
  r.top_logprobs = draw(3, 10);
  r.logprobs = draw(4, 13) != 0;
  r.prompt_logprobs = draw(5, 11) == 0;
  r.salt = draw(4, 12) == 0 ? "a" : "b";
  return r;
}

inline Heard alone(Context& ctx, Model& model, Cache& cache, const Request& request,
                   const Tokenizer* tokenizer = nullptr) {
  Engine engine(ctx, model, cache, tokenizer, {});
  Heard heard;
  engine.submit(request, listen(heard));
  while (engine.step()) continue;
  return heard;
}

// The log-probabilities of ids[1..] by one whole forward pass, as the trainer makes it.
inline std::vector<double> scores_of(Context& ctx, Model& model, std::vector<int32_t> ids) {
  const auto T = static_cast<int64_t>(ids.size()) - 1;
  std::vector<int32_t> position(static_cast<size_t>(T)), target(ids.begin() + 1, ids.end());
  Batch batch{.token = make_tensor(ids.data(), DType::kI32, {T}),
              .position = make_tensor(position.data(), DType::kI32, {T}),
              .segments = {}};
  set_documents(batch, {0});
  Tensor losses;
  model.loss(ctx, batch, make_tensor(target.data(), DType::kI32, {T}), &losses);
  std::vector<double> scores;
  for (int64_t t = 0; t < T; ++t) scores.push_back(-static_cast<double>(losses.as<float>()[t]));
  return scores;
}

inline void expect_same(const Heard& got, const Heard& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.prompt, want.prompt);
  EXPECT_EQ(got.finish, want.finish);
  EXPECT_EQ(got.ends, 1);
}

// All pages are free or kept again, and everybody has heard the end.
inline void expect_idle(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.pages_available, stats.pages);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.waiting_tokens, 0);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.finished[0] + stats.finished[1] + stats.finished[2] + stats.finished[3],
            stats.requests);
}

}  // namespace moraine::testing
