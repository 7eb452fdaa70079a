// Fails if an engine on several ranks gives other bits than on one where experts are divided, or leaves rounding
// where the cache is shared, if company or chunks change a bit there, or if a lost rank goes unnoticed.
#include "infer/rank_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "comm/thread_ranks.h"
#include "infer/engine.h"
#include "model/loaded_model.h"
#include "testing/places.h"

namespace moraine {
namespace {

struct Shape {
  int ranks = 1;
  bool experts = false, cache = false;  // that are divided
  const char* model = "native-tiny";
  std::string dtype = "f32";
  int64_t rows = 64, page_rows = 16;
  const char* low_latency = "auto";
};

LoadOptions options_of(const Shape& shape, const ModelRanks& ranks) {
  LoadOptions o;
  o.dtype = shape.dtype;
  o.threads = 1;
  o.tokens = shape.rows;
  o.positions = 160;
  o.cache = {.pages = 64, .segments = 8, .page_rows = shape.page_rows};
  o.ranks = ranks;
  return o;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;  // of the prompt's tokens, then of the answer's
};

// Calls lead(model, ranks) on the first rank, the others follow it.
void on_ranks(const Shape& shape,
              const std::function<void(LoadedModel& model, Communicator* ranks)>& lead) {
  run_thread_ranks(shape.ranks, [&](Transport& transport) {
    StepRanks step(transport, 0, 60);
    const ModelRanks ranks = {.experts = shape.experts ? &step.experts : nullptr,
                              .cache = shape.cache ? &step.cache : nullptr};
    const std::string path = testing::source_path(std::string("tests/golden/") + shape.model);
    const auto model = LoadedModel::open(ModelDirectory::open(posix_file_system(), path),
                                         options_of(shape, ranks));
    model->connect_experts(shape.low_latency);
    if (transport.rank() == 0) {
      lead(*model, shape.ranks > 1 ? &step.steps : nullptr);
    } else {
      follow_steps(step.steps, model->ctx(), model->model(), model->cache());
    }
  });
}

// Prompts that begin alike, so that pages are shared and copied.
std::vector<Request> requests() {
  std::vector<Request> all;
  for (const int64_t length : {37, 1, 90, 90, 41}) {
    Request r;
    for (int64_t i = 0; i < length; ++i) r.prompt.push_back(static_cast<int32_t>(3 + i * 29 % 250));
    r.max_tokens = 20;
    r.prompt_logprobs = all.size() == 2;
    r.sampling.temperature = all.size() % 2 == 0 ? 0 : 0.9;
    r.sampling.seed = all.size();
    all.push_back(r);
  }
  return all;
}

std::vector<Answer> answers(const Shape& shape, bool together) {
  std::vector<Answer> result(requests().size());
  on_ranks(shape, [&](LoadedModel& model, Communicator* ranks) {
    Engine engine(model.ctx(), model.model(), model.cache(), nullptr,
                  {.sequences = 8, .ranks = ranks});
    size_t index = 0;
    for (const Request& request : requests()) {
      Answer& answer = result[index++];
      Listener listener;
      listener.on_prompt = [&answer](const PromptDone& done) {
        for (const TokenScore& score : done.scores) answer.logprobs.push_back(score.chosen.logprob);
      };
      listener.on_token = [&answer](const TokenPiece& piece) {
        answer.tokens.push_back(piece.score.chosen.token);
        answer.logprobs.push_back(piece.score.chosen.logprob);
      };
      engine.submit(request, std::move(listener));
      while (!together && engine.step()) continue;
    }
    while (engine.step()) continue;
  });
  return result;
}

void expect_same(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
    EXPECT_EQ(got[i].logprobs, want[i].logprobs) << i;
  }
}

TEST(RankSteps, DividedExpertsChangeNoBit) {
  for (const Shape& shape : {Shape{.ranks = 2, .model = "native-swa"}, Shape{.ranks = 3},
                             Shape{.ranks = 4, .dtype = "bf16"}}) {
    SCOPED_TRACE(::testing::Message() << shape.model << " on " << shape.ranks);
    Shape one = shape, divided = shape;
    one.ranks = 1;
    divided.experts = true;
    expect_same(answers(divided, true), answers(one, true));
  }
}

// Prompts are computed in steps with more rows than slots, and answers in steps with few.
TEST(RankSteps, HowAnswersOfExpertsGoFromRankToRankChangesNoBit) {
  for (const int ranks : {2, 3}) {
    const Shape shape = {.ranks = ranks, .experts = true, .dtype = "bf16", .rows = 200};
    Shape one = shape;
    one.ranks = 1, one.experts = false;
    const auto want = answers(one, true);
    for (const char* low_latency : {"on", "off", "auto"}) {
      SCOPED_TRACE(::testing::Message() << low_latency << " on " << ranks);
      Shape divided = shape;
      divided.low_latency = low_latency;
      expect_same(answers(divided, true), want);
      expect_same(answers(divided, false), want);
    }
  }
}

// Largest distance of log-probabilities, of tokens that are given.
double distance(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  const std::vector<double>&a = got[2].logprobs, &b = want[2].logprobs;
  double most = a.size() < 89 ? HUGE_VAL : 0;
  for (size_t i = 0; i < 89 && i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

TEST(RankSteps, ASharedCacheIsWithinRoundingOfAWholeOne) {
  for (const Shape& shape : {Shape{.ranks = 2, .experts = true, .cache = true},
                             Shape{.ranks = 3, .cache = true, .model = "native-swa"}}) {
    SCOPED_TRACE(::testing::Message() << shape.model << " on " << shape.ranks);
    const auto f32 = answers({.model = shape.model}, true),
               bf16 = answers({.model = shape.model, .dtype = "bf16"}, true);
    const auto got = answers(shape, true);
    // Other orders of sums of f32: a few roundings in each of some dozen operations of a layer. In bf16, what
    // rounding the values does anyway.
    EXPECT_LE(distance(got, f32), 256 * std::numeric_limits<float>::epsilon());
    EXPECT_GT(distance(got, f32), 0);  // or nothing was shared
    Shape other = shape;
    other.rows = 11;
    expect_same(answers(other, false), got);
    other.dtype = "bf16";
    EXPECT_LE(distance(answers(other, true), f32), 2 * distance(bf16, f32));
  }
}

TEST(RankSteps, AFollowerThatFailsEndsTheLeader) {
  EXPECT_THROW(
      on_ranks({.ranks = 2, .experts = true},
               [&](LoadedModel& model, Communicator* ranks) {
                 StepLeader leader(ranks);
                 Step step;
                 step.token = step.position = {0};
                 step.segments = {{.row_begin = 0, .rows = 1, .position_begin = 0, .key_begin = 0}};
                 step.pages = {0};
                 leader.tell(step);
                 // The follower is in the layers' collectives, and this rank ends.
                 ranks->transport().fail("gone");
                 compute_step(model.ctx(), model.model(), model.cache(), step);
               }),
      Error);
}

TEST(RankSteps, MoreRanksThanExpertsAreRefused) {
  EXPECT_THROW(on_ranks({.ranks = 5, .experts = true}, [](LoadedModel&, Communicator*) {}), Error);
}

}  // namespace
}  // namespace moraine
