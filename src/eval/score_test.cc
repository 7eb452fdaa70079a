// Fails if a token is scored twice or not at all, with other context than promised, or if the grouping of windows
// into batches changes a bit.
#include "eval/score.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "comm/thread_ranks.h"
#include "eval/test_model.h"

namespace moraine {
namespace {

using testing::make_ids;

std::unique_ptr<LoadedModel> load(const std::string& dtype, int64_t tokens, int64_t threads = 1,
                                  const ModelRanks& ranks = {}) {
  return testing::load_tiny(dtype, tokens, 128, threads, ranks);
}

class Score : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, Score, ::testing::Values("f32", "bf16"));

TEST_P(Score, TokensOfAPrefixScoreTheSame) {
  const auto m = load(GetParam(), 100), two = load(GetParam(), 100, 2);
  const std::vector<int32_t> ids = make_ids(101);
  const std::vector<double> all = score_tokens({m->ctx(), m->model()}, ids);
  ASSERT_EQ(all.size(), 101u);
  EXPECT_TRUE(std::isnan(all[0]));
  for (const int64_t n : {1, 2, 3, 50, 100}) {
    const std::vector<double> part = score_tokens(
        {m->ctx(), m->model()}, std::span<const int32_t>(ids).first(static_cast<size_t>(n)));
    for (size_t i = 1; i < static_cast<size_t>(n); ++i) EXPECT_EQ(part[i], all[i]) << n << " " << i;
  }
  const std::vector<double> threaded = score_tokens({two->ctx(), two->model()}, ids);
  for (size_t i = 1; i < ids.size(); ++i) {
    EXPECT_EQ(threaded[i], all[i]);
    EXPECT_LT(all[i], 0);
  }
}

TEST_P(Score, ProbabilitiesOfAllNextTokensAreOne) {
  const auto m = load(GetParam(), 16);
  std::vector<int32_t> ids = make_ids(9);
  double sum = 0;
  for (int32_t next = 0; next < 320; ++next) {
    ids.back() = next;
    sum += std::exp(score_tokens({m->ctx(), m->model()}, ids).back());
  }
  EXPECT_NEAR(sum, 1, 1e-4);
}

TEST_P(Score, Refusals) {
  const auto m = load(GetParam(), 16);
  EXPECT_TRUE(score_tokens({m->ctx(), m->model()}, {}).empty());
  EXPECT_EQ(score_tokens({m->ctx(), m->model()}, make_ids(17)).size(), 17u);
  const auto refused = [&](const std::vector<int32_t>& ids, const char* piece) {
    try {
      score_tokens({m->ctx(), m->model()}, ids);
      ADD_FAILURE() << piece;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  };
  refused(make_ids(18), "18 tokens are more than 17");
  refused({1, 320}, "token 320 is not in the vocabulary of 320");
  refused({-1}, "token -1 is not in the vocabulary");
  EXPECT_THROW(document_perplexity({m->ctx(), m->model()}, std::vector<int32_t>{5, 400}, 2,
                                   {.context = 8, .stride = 8, .progress = {}}),
               Error);
}

// Window by window, token by token.
double brute_force(LoadedModel& m, const std::vector<int32_t>& ids, int64_t context,
                   int64_t stride) {
  const int64_t n = static_cast<int64_t>(ids.size());
  if (n == 0) return 0;
  double nll = std::log(320.0);
  int64_t scored = 1;
  for (int64_t end = std::min(n - 1, context); scored < n; end = std::min(n - 1, end + stride)) {
    const int64_t begin = std::max<int64_t>(0, end - context);
    const std::vector<double> logprobs =
        score_tokens({m.ctx(), m.model()},
                     std::span<const int32_t>(ids).subspan(static_cast<size_t>(begin),
                                                           static_cast<size_t>(end - begin + 1)));
    for (; scored <= end; ++scored) nll += -logprobs[static_cast<size_t>(scored - begin)];
  }
  return nll;
}

TEST_P(Score, PerplexityIsThatOfItsWindowsHoweverManyAtOnce) {
  const auto one = load(GetParam(), 32);
  std::vector<std::unique_ptr<LoadedModel>> more;
  for (const int64_t tokens : {33, 64, 100, 1000}) more.push_back(load(GetParam(), tokens, 2));
  for (const int64_t n : {0, 1, 2, 9, 32, 33, 34, 70, 131}) {
    const std::vector<int32_t> ids = make_ids(n);
    for (const auto& [context, stride] : std::vector<std::pair<int64_t, int64_t>>{
             {32, 32}, {32, 16}, {32, 1}, {32, 7}, {5, 5}, {1, 1}, {8, 3}}) {
      SCOPED_TRACE(::testing::Message()
                   << n << " tokens, context " << context << " stride " << stride);
      int64_t done = 0;
      const PerplexityOptions options{
          .context = context, .stride = stride, .progress = [&](int64_t at, int64_t total) {
            EXPECT_GT(at, done);
            EXPECT_EQ(total, n);
            done = at;
          }};
      const Perplexity p = document_perplexity({one->ctx(), one->model()}, ids, 3 * n, options);
      EXPECT_EQ(p.tokens, n);
      EXPECT_EQ(p.bytes, 3 * n);
      if (n > 1) {
        EXPECT_EQ(done, n);
      }
      EXPECT_EQ(p.nll, brute_force(*one, ids, context, stride));
      for (const auto& m : more)
        EXPECT_EQ(document_perplexity({m->ctx(), m->model()}, ids, 3 * n,
                                      {.context = context, .stride = stride, .progress = {}})
                      .nll,
                  p.nll);
    }
  }
}

// Ranks that share windows and experts, some without a window of the last pass, have the bits of one.
TEST_P(Score, RanksShareTheWindows) {
  const auto one = load(GetParam(), 32);
  for (const std::vector<int>& all : {std::vector<int>{0, 1}, {0, 1, 2, 3}}) {
    run_thread_ranks(static_cast<int>(all.size()), [&](Transport& transport) {
      Communicator rows(transport, all, 0, "windows", 60);
      const auto part = load(GetParam(), 40, 1, {.rows = &rows});
      PerplexityMeter meter({part->ctx(), part->model(), &rows},
                            {.context = 32, .stride = 20, .progress = {}});
      double nll = 0;
      for (const int64_t n : {9, 1, 170, 0, 33}) {
        const std::vector<int32_t> ids = make_ids(n);
        meter.add({.ids = ids, .bytes = n});
        if (transport.rank() == 0) nll += brute_force(*one, ids, 32, 20);
      }
      const Perplexity p = meter.finish();
      EXPECT_EQ(p.tokens, 213);
      if (transport.rank() == 0) {
        EXPECT_EQ(p.nll, nll);
      }
    });
  }
}

// What stands before a text is not scored; what is no target is not; documents share passes.
TEST_P(Score, DocumentsTogetherAreTheSumOfEach) {
  const auto one = load(GetParam(), 32), more = load(GetParam(), 200, 2);
  const PerplexityOptions options{.context = 32, .stride = 20, .progress = {}};
  PerplexityMeter together({more->ctx(), more->model()}, options);
  double nll = 0;
  int64_t tokens = 0;
  for (const int64_t n : {9, 1, 70, 0, 33, 5, 2}) {
    const std::vector<int32_t> ids = make_ids(n);
    together.add({.ids = ids, .bytes = n});
    nll += brute_force(*one, ids, 32, 20);
    tokens += n;
  }
  const Perplexity p = together.finish();
  EXPECT_EQ(p.nll, nll);
  EXPECT_EQ(p.tokens, tokens);
  EXPECT_EQ(p.bytes, tokens);
  EXPECT_EQ(p.documents, 7);
}

TEST_P(Score, ABeginIsNotScoredAndTargetsAloneAre) {
  const auto m = load(GetParam(), 64);
  const std::vector<int32_t> ids = make_ids(40);
  const std::vector<double> logprobs = score_tokens({m->ctx(), m->model()}, ids);
  const PerplexityOptions options{.context = 64, .stride = 32, .progress = {}};
  std::vector<uint8_t> is_target(40, 0);
  is_target[0] = is_target[7] = is_target[39] = 1;
  for (const bool begin : {false, true}) {
    double all = begin ? 0 : std::log(320.0);
    for (size_t i = 1; i < 40; ++i) all -= logprobs[i];
    PerplexityMeter every({m->ctx(), m->model()}, options);
    every.add({.ids = ids, .bytes = 0, .has_begin = begin, .is_target = {}});
    const Perplexity p = every.finish();
    EXPECT_EQ(p.nll, all);
    EXPECT_EQ(p.tokens, begin ? 39 : 40);
    PerplexityMeter some({m->ctx(), m->model()}, options);
    some.add({.ids = ids, .bytes = 0, .has_begin = begin, .is_target = is_target});
    const Perplexity q = some.finish();
    EXPECT_EQ(q.nll, (begin ? 0 : std::log(320.0)) - logprobs[7] - logprobs[39]);
    EXPECT_EQ(q.tokens, begin ? 2 : 3);
  }
}

TEST(Perplexity, NumbersFollowFromNllAndCounts) {
  const Perplexity p{.documents = 1, .tokens = 4, .bytes = 16, .nll = 8};
  EXPECT_DOUBLE_EQ(p.loss(), 2);
  EXPECT_DOUBLE_EQ(p.perplexity(), std::exp(2.0));
  EXPECT_DOUBLE_EQ(p.bits_per_byte(), 8 / std::log(2.0) / 16);
  EXPECT_EQ(Perplexity().loss(), 0);
  EXPECT_EQ(Perplexity().bits_per_byte(), 0);
}

}  // namespace
}  // namespace moraine
