// ExpertPlacer: what ranks have seen becomes the same placement on all of them, or none.
//
// Fails if ranks plan differently, a hot expert or a slow rank is not answered, a fast rank with few rows is
// taken for a slow one, or the gate lets a change through that does not pay.
#include "parallel/expert_placer.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/thread_ranks.h"
#include "parallel/ranks.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

constexpr int kRanks = 4;
constexpr int64_t kPlacedExperts = 8, kLayers = 2;

struct Job {
  PlacerOptions options = {.layers = kLayers};
  int64_t hot = 0;            // rows of expert 5 in layer 1 from each rank; 10 of all others
  double slow = 1;            // times the time of a row on rank 2
  int64_t slow_steps = 1000;  // the first ones
  double row_seconds = 1e-3;
  int64_t steps = 1;
};

struct Answer {
  std::vector<ExpertPlacement> placements;  // of the ranks: must be the same
  std::optional<PlacementChange> change;    // last
  double slowness = 1;                      // of rank 2
};

Answer place(const Job& job) {
  Answer answer;
  std::mutex mutex;
  run_thread_ranks(kRanks, [&](Transport& transport) {
    Ranks all(transport, make_mesh(kRanks, transport.rank(), kRanks, 1, kRanks, kPlacedExperts),
              30);
    Rig rig(Backend::kCpu, 1);
    ExpertExchange exchange(all.experts, kPlacedExperts, {.layers = kLayers, .slots = 2});
    ExpertPlacer placer(exchange, all.experts, job.options);
    const Tensor load = rig.zeros({kLayers, kPlacedExperts + 1}, DType::kI64);  // with a skip class
    for (int64_t i = 0; i < load.count(); ++i) load.as<int64_t>()[i] = 10;
    load.as<int64_t>()[kPlacedExperts] = 1000000;  // skipped: nobody's work
    load.as<int64_t>()[kPlacedExperts + 1 + 5] = 10 + job.hot;
    std::optional<PlacementChange> change;
    for (int64_t step = 1; step <= job.steps; ++step) {
      int64_t rows = 0, everybody = 0;
      for (int64_t l = 0; l < kLayers; ++l) {
        const ExpertPlacement& now = exchange.placement(l);
        for (size_t i = 0; i < now.server.size(); ++i) {
          const int64_t e = static_cast<int64_t>(i) % kPlacedExperts;
          const int64_t of = load.as<int64_t>()[l * (kPlacedExperts + 1) + e];
          everybody += of;
          if (now.server[i] == transport.rank()) rows += of;
        }
      }
      const double times = transport.rank() == 2 && step <= job.slow_steps ? job.slow : 1;
      placer.observe(load, {.all_rows = everybody,
                            .rows = rows,
                            .seconds = static_cast<double>(rows) * job.row_seconds * times,
                            .least_row_seconds = job.row_seconds * times});
      if (const auto changed = placer.place(step)) change = changed;
    }
    const std::lock_guard lock(mutex);
    answer.placements.push_back(exchange.placement(1));
    answer.change = change;
    answer.slowness = placer.slowness()[2];
  });
  for (const ExpertPlacement& p : answer.placements) EXPECT_EQ(p, answer.placements[0]);
  return answer;
}

TEST(ExpertPlacer, AHotExpertIsSharedInItsLayerAlone) {
  const Answer a = place({.hot = 1000});
  ASSERT_TRUE(a.change);
  EXPECT_STREQ(a.change->reason, "load");
  EXPECT_EQ(a.change->layers, 1);
  EXPECT_GE(a.change->guests, 3);
  EXPECT_EQ(a.change->new_guests, a.change->guests);
  EXPECT_GT(a.change->over_mean_before, 3);
  EXPECT_LT(a.change->over_mean_after, 1.1);
  // 4040 rows at rank 2 before (4 of 1010, and 40 of its other expert); about a quarter of all 4320 after.
  EXPECT_NEAR(a.change->gain_seconds, 3.0, 0.1);
}

TEST(ExpertPlacer, LevelLoadsAndStepsBetweenPlansChangeNothing) {
  EXPECT_FALSE(place({.hot = 0, .steps = 5}).change);
  Job rare{.hot = 1000, .steps = 3};
  rare.options.every_steps = 4;
  EXPECT_FALSE(place(rare).change);
  rare.steps = 4;
  EXPECT_TRUE(place(rare).change);
}

TEST(ExpertPlacer, ASlowRankServesLess) {
  const Answer a = place({.slow = 2});
  ASSERT_TRUE(a.change);
  EXPECT_STREQ(a.change->reason, "speed");
  EXPECT_NEAR(a.slowness, 2, 0.01);
  int64_t served = 0;
  for (const int32_t server : a.placements[0].server) served += server == 2 ? 1 : 0;
  EXPECT_GT(served, 0);
  EXPECT_LE(served, 5);  // of 32; 8 at home; a level share is 32 / 7
  EXPECT_FALSE(place({.slow = 1.3}).change) << "that is noise";
  Job disturbed{.slow = 8, .slow_steps = 3, .steps = 4};
  disturbed.options.every_steps = 4;
  EXPECT_FALSE(place(disturbed).change) << "that was three steps";
}

TEST(ExpertPlacer, AChangeThatDoesNotPayIsNotMade) {
  Job job{.hot = 1000};
  job.options.weight_bytes = 1 << 20, job.options.gradient_bytes = 1 << 20;
  job.options.bytes_per_second =
      1e6;  // three guests and three sources: more than the 3 s that they save
  EXPECT_TRUE(place({.hot = 1000}).change);
  job.options.weight_bytes *= 4;
  EXPECT_FALSE(place(job).change);
  Job gate{.hot = 20};  // 120 rows become 87
  EXPECT_TRUE(place(gate).change);
  gate.options.gate = 0.5;
  EXPECT_FALSE(place(gate).change);
}

TEST(ExpertPlacer, ShuffledChangesEveryStep) {
  Job job{.steps = 3};
  job.options.mode = PlacementMode::kShuffled;
  const Answer three = place(job);
  job.steps = 2;
  EXPECT_NE(three.placements[0], place(job).placements[0]);
  EXPECT_STREQ(three.change->reason, "shuffle");
}

}  // namespace
}  // namespace moraine
