// Fails if an engine on several ranks gives other bits than on one where experts are divided, wherever they are
// placed, or leaves rounding where the cache is shared, if company or chunks change a bit there, if a busy expert stays
// where it is, if memory is taken that was not planned or is not there, or if a lost rank goes unnoticed.
#include "infer/rank_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/test_folder.h"
#include "comm/absent_transport.h"
#include "comm/thread_ranks.h"
#include "infer/engine.h"
#include "model/loaded_model.h"
#include "model/parameters.h"
#include "model/write_packed.h"
#include "testing/places.h"
#include "testing/rig.h"

namespace moraine {
namespace {

struct Shape {
  int ranks = 1;
  bool experts = false, cache = false;  // that are divided
  const char* model = "native-tiny";
  std::string dtype = "f32";
  int64_t rows = 64, page_rows = 16;
  const char* low_latency = "auto";
  ServingPlacement placement = {};
  std::string packed = {};  // a packed model instead
  const char* device = "cpu";
};

LoadOptions options_of(const Shape& shape, const ModelRanks& ranks) {
  LoadOptions o;
  o.dtype = shape.dtype;
  o.threads = 1;
  o.tokens = shape.rows;
  o.positions = 160;
  o.cache = {.pages = 64, .segments = 8, .page_rows = shape.page_rows};
  o.ranks = ranks;
  o.low_latency = shape.low_latency;
  o.placement = shape.placement;
  o.device = shape.device;
  return o;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;  // of the prompt's tokens, then of the answer's
};

std::string path_of(const Shape& shape) {
  return shape.packed.empty() ? testing::source_path(std::string("tests/golden/") + shape.model)
                              : shape.packed;
}

std::unique_ptr<LoadedModel> open_on(const Shape& shape, StepRanks& step, int64_t host_free = 0) {
  const ModelRanks ranks = {.experts = shape.experts ? &step.experts : nullptr,
                            .cache = shape.cache ? &step.cache : nullptr,
                            .guests = &step.guests};
  LoadOptions options = options_of(shape, ranks);
  options.host_free = host_free;
  return LoadedModel::open(ModelDirectory::open(posix_file_system(), path_of(shape)), options);
}

// Calls lead(model, ranks) on the first rank, the others follow it.
void on_ranks(const Shape& shape,
              const std::function<void(LoadedModel& model, Communicator* ranks)>& lead) {
  run_thread_ranks(shape.ranks, [&](Transport& transport) {
    StepRanks step(transport, 0, 60);
    const auto model = open_on(shape, step);
    model->connect();
    if (transport.rank() == 0) {
      lead(*model, shape.ranks > 1 ? &step.steps : nullptr);
    } else {
      follow_steps(step.steps, model->ctx(), model->model(), model->cache());
    }
  });
}

void write_packed_golden(const std::string& out, const std::string& type) {
  const ModelDirectory from =
      ModelDirectory::open(posix_file_system(), testing::source_path("tests/golden/native-tiny"));
  testing::Rig rig(Backend::kCpu, 1);
  const ParameterTable table = build_parameters(from.config());
  write_packed_model(
      rig.ctx, posix_file_system(), out,
      {.config = from.config(),
       .weights = [&](int64_t begin, const Tensor& t) { from.read_elements(table, begin, t); },
       .type = *find_pack_type(type),
       .step = from.step(),
       .language_files = from.language_files()});
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

// Of several ranks.
ServingLoad last_load;

std::vector<Answer> answers(const Shape& shape, bool together,
                            const std::vector<Request>& all = requests()) {
  std::vector<Answer> result(all.size());
  on_ranks(shape, [&](LoadedModel& model, Communicator* ranks) {
    Engine engine(model.ctx(), model.model(), model.cache(), nullptr,
                  {.sequences = 8, .ranks = ranks});
    size_t index = 0;
    for (const Request& request : all) {
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
    last_load = engine.stats().experts;
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

// Prompts and answers of any length, greedy or drawn, with a penalty or without.
std::vector<Request> random_requests(uint64_t seed) {
  uint64_t next = 0;
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(
        random_below(static_cast<uint64_t>(n), seed, Stream::kTest, 30, next++));
  };
  std::vector<Request> all;
  for (int64_t count = 3 + below(5); count > 0; --count) {
    Request r;
    for (int64_t n = 1 + below(120); n > 0; --n)
      r.prompt.push_back(static_cast<int32_t>(3 + below(below(4) == 0 ? 250 : 9)));
    r.max_tokens = 1 + below(25);
    r.prompt_logprobs = below(2) == 0;
    r.sampling.temperature = below(2) == 0 ? 0 : 0.8;
    r.sampling.seed = seed;
    all.push_back(r);
  }
  return all;
}

// f32, bf16, and packs that are mapped, of bf16 and of few bits; slots and collectives.
TEST(RankSteps, WhoComputesWhichRowsOfExpertsChangesNoBit) {
  const testing::TestFolder folder;
  struct Kind {
    const char* type;
    int ranks;
  };
  uint64_t seed = 0;
  for (const auto& [type, ranks] :
       {Kind{"f32", 2}, Kind{"f32", 4}, Kind{"bf16", 3}, Kind{"packed bf16", 2},
        Kind{"packed q8", 4}, Kind{"packed q4", 3}}) {
    ++seed;
    Shape one;
    one.dtype = std::string(type) == "f32" ? "f32" : "bf16";
    if (const std::string of = type; of.starts_with("packed ")) {
      one.packed = folder.file(of);
      write_packed_golden(one.packed, of.substr(7));
    }
    const std::vector<Request> mix = random_requests(seed);
    const auto want = answers(one, true, mix);
    for (const PlacementMode mode :
         {PlacementMode::kStatic, PlacementMode::kBalanced, PlacementMode::kShuffled}) {
      SCOPED_TRACE(::testing::Message() << type << " on " << ranks << ", mode " << int(mode));
      Shape placed = one;
      placed.ranks = ranks, placed.experts = true;
      placed.low_latency = seed % 2 == 0 ? "on" : "off";
      placed.placement = {.mode = mode,
                          .slots = 1 + static_cast<int64_t>(seed % 3),
                          .every_steps = 1,
                          .gate = 0,
                          .across_hosts = true,
                          .row_seconds = 1};
      const bool places = mode != PlacementMode::kStatic;
      int runs = 0;
      do {  // weights may come after the last step of a short run
        expect_same(answers(placed, seed % 3 != 0, mix), want);
      } while (places && last_load.placed == 0 && ++runs < 100);
      EXPECT_EQ(last_load.placed > 0, places);
      EXPECT_EQ(last_load.guests > 0, places);
      EXPECT_GE(last_load.home_load_over_mean, 1);
    }
  }
}

// The same of an emulated GPU for each rank: guests are drawn at random for every step. Of packs of integers too.
TEST(RankSteps, ADevicesAnswersDoNotDependOnWhoServes) {
  testing::TestFolder folder;
  Request request;
  for (int32_t i = 0; i < 9; ++i) request.prompt.push_back(3 + i * 29 % 250);
  request.max_tokens = 4;
  request.prompt_logprobs = true;
  for (const char* packed : {"", "q8"}) {
    Shape one{.dtype = "bf16", .device = "emulated:sm_90"};
    if (*packed != 0) {
      one.packed = folder.file(packed);
      write_packed_golden(one.packed, packed);
    }
    const auto want = answers(one, true, {request});
    Shape placed = one;
    placed.ranks = *packed != 0 ? 2 : 3, placed.experts = true;
    placed.placement = {.mode = PlacementMode::kShuffled, .slots = 2, .every_steps = 1};
    SCOPED_TRACE(packed);
    expect_same(answers(placed, true, {request}), want);
    EXPECT_GT(last_load.guests, 0);
  }
}

// Sends most rows to expert 0 of each layer.
class HotExpert : public ForwardObserver {
 public:
  void reads(int64_t, ServedMatrix, const Tensor&, std::span<const int64_t>) override {}
  void chooses(int64_t, const Tensor&) override {}
  void route(int64_t, const Tensor& expert) override {
    for (int64_t i = 0; i < expert.count(); ++i)
      expert.as<int32_t>()[i] = i % 8 < 6 ? 0 : static_cast<int32_t>(i % 4);
  }
};

TEST(RankSteps, ABusyExpertIsComputedByTwoRanksOnceItsWeightsAreThere) {
  const auto loads = [](PlacementMode mode) {
    ServingLoad load;
    Shape shape{.ranks = 2, .experts = true, .rows = 160};
    shape.placement = {.mode = mode,
                       .slots = 1,
                       .every_steps = 4,
                       .gate = 0.05,
                       .across_hosts = true,
                       .row_seconds = 1};
    run_thread_ranks(2, [&](Transport& transport) {
      StepRanks ranks(transport, 0, 60);
      const auto model = open_on(shape, ranks);
      HotExpert hot;
      model->model().observe(&hot);
      Step step;
      step.segments = {{.row_begin = 0, .rows = 160, .position_begin = 0, .key_begin = 0}};
      step.token.assign(160, 5), step.pages = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
      for (int32_t i = 0; i < 160; ++i) step.position.push_back(i);
      const ServingPlacer& placer = *model->model().options().serving_placer;
      for (int i = 0; i < 64; i += placer.sends() ? 0 : 1)
        compute_step(model->ctx(), model->model(), model->cache(), step);
      if (transport.rank() == 0) load = placer.load();
    });
    return load;
  };
  const ServingLoad home = loads(PlacementMode::kStatic), placed = loads(PlacementMode::kBalanced);
  EXPECT_NEAR(home.rank_load_over_mean, 1.5, 1e-9);
  EXPECT_EQ(home.rank_load_over_mean, home.home_load_over_mean);
  EXPECT_EQ(placed.home_load_over_mean, home.home_load_over_mean);
  EXPECT_LT(placed.rank_load_over_mean, 1.25);  // steps before it fade
  EXPECT_GE(placed.guests, 1);
}

// Weights of guests, and memory that other ranks write.
TEST(RankSteps, WhatRanksTakeIsWhatIsPlanned) {
  Shape shape{.ranks = 3, .experts = true, .low_latency = "on"};
  shape.placement.mode = PlacementMode::kBalanced;
  std::vector<std::vector<Arena::Entry>> taken(3);
  run_thread_ranks(3, [&](Transport& transport) {
    StepRanks ranks(transport, 0, 60);
    const auto model = open_on(shape, ranks);
    model->connect();
    taken[static_cast<size_t>(transport.rank())] = model->arena().entries();
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::unique_ptr<Transport> absent = make_absent_transport(3, rank);
    StepRanks ranks(*absent, 0, 60);
    const auto plan = LoadedModel::plan(
        ModelDirectory::open(posix_file_system(), path_of(shape)),
        options_of(shape, {.experts = &ranks.experts, .cache = nullptr, .guests = &ranks.guests}));
    const std::vector<Arena::Entry>&want = plan->arena().entries(),
          &got = taken[static_cast<size_t>(rank)];
    ASSERT_EQ(got.size(), want.size());
    int64_t guests = 0, slots = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].name, want[i].name);
      EXPECT_EQ(got[i].bytes, want[i].bytes) << want[i].name;
      if (want[i].name == "weights.guests") guests += want[i].bytes;
      if (want[i].name == "experts.low_latency") slots += want[i].bytes;
    }
    EXPECT_GT(guests, 0);
    EXPECT_GT(slots, 4 * shape.rows * plan->config().hidden * 4);
  }
}

// Each alone would have had room. Their parts differ: four experts on three ranks.
TEST(RankSteps, RanksOfAHostNeedRoomForAllOfThem) {
  const Shape shape{.ranks = 3, .experts = true, .rows = 4};
  int64_t weights = 0, all = 0;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const std::unique_ptr<Transport> absent = make_absent_transport(shape.ranks, rank);
    StepRanks ranks(*absent, 0, 60);
    const auto plan = LoadedModel::plan(
        ModelDirectory::open(posix_file_system(), path_of(shape)),
        options_of(shape, {.experts = &ranks.experts, .cache = nullptr, .guests = &ranks.guests}));
    weights += planned_memory(plan->arena()).weight_bytes;
    all += plan->arena().bytes();
  }
  const auto open = [&](int64_t host_free) {
    run_thread_ranks(shape.ranks, [&](Transport& transport) {
      StepRanks ranks(transport, 0, 60);
      open_on(shape, ranks, host_free);
    });
  };
  open(all);
  for (const auto& [free, lacks] :
       {std::pair(all - 1, "activations of 4 rows on 3 ranks of this host take "),
        std::pair(weights - 1, " parameters on 3 ranks of this host take ")}) {
    try {
      open(free);
      ADD_FAILURE() << "opened with " << free;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(lacks), std::string::npos) << e.what();
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

// Eight steps, of which rank 1 ends after some. The Error of each rank.
void lose_rank_1(const Shape& shape, int after, Transport& transport, std::string* error) {
  StepRanks ranks(transport, 0, 60);
  const auto model = open_on(shape, ranks);
  Step step;
  step.segments = {{.row_begin = 0, .rows = 1, .position_begin = 0, .key_begin = 0}};
  step.token = step.position = {0}, step.pages = {0};
  try {
    for (int i = 0; i < 8; ++i) {
      if (transport.rank() == 1 && i == after) return transport.fail("gone");
      compute_step(model->ctx(), model->model(), model->cache(), step);
    }
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kPeerLost);
    *error = e.what();
  }
}

// Before a step, and while weights of guests are on their way.
TEST(RankSteps, ARankThatEndsIsNamedWhereverExpertsAre) {
  for (const PlacementMode mode : {PlacementMode::kBalanced, PlacementMode::kShuffled}) {
    Shape shape{.ranks = 3, .experts = true};
    shape.placement = {.mode = mode,
                       .slots = 2,
                       .every_steps = 1,
                       .gate = 0,
                       .across_hosts = true,
                       .row_seconds = 1};
    for (const int after : {1, 2, 5}) {
      std::string errors[3];
      run_thread_ranks(3, [&](Transport& t) { lose_rank_1(shape, after, t, &errors[t.rank()]); });
      for (const int rank : {0, 2})
        EXPECT_NE(errors[rank].find("rank 1"), std::string::npos) << errors[rank];
    }
  }
}

TEST(RankSteps, MoreRanksThanExpertsAreRefused) {
  EXPECT_THROW(on_ranks({.ranks = 5, .experts = true}, [](LoadedModel&, Communicator*) {}), Error);
}

}  // namespace
}  // namespace moraine
