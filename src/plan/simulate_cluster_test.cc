// SimulateCluster: fails if the events are not those of the closed forms that they must agree with.
#include "plan/simulate_cluster.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace moraine {
namespace {

constexpr double kForever = 1e18;

TEST(SimulateCluster, AgreesWithTheClosedFormOfReliability) {
  for (const int64_t ranks : {8, 384, 10000}) {
    ClusterFaults faults;
    faults.parts.ranks = ranks;
    faults.parts.restart = 300, faults.parts.save = 2, faults.parts.write = 30;
    const Reliability r = expect_reliability(faults.parts);
    const SimulatedCluster s = simulate_cluster(faults, 4000, kForever, 1);
    EXPECT_NEAR(s.useful, r.useful, 4 * s.useful_error + 1e-4) << ranks;
    EXPECT_NEAR(static_cast<double>(s.interruptions) / s.seconds, r.interruptions,
                0.08 * r.interruptions)
        << ranks;
    EXPECT_EQ(s.slow, 0);
  }
}

// Hosts get slow and fast again by themselves: how many are slow is Poisson, and one is enough.
TEST(SimulateCluster, SlowHostsCostWhatAPoissonNumberOfThemCosts) {
  ClusterFaults faults;
  faults.parts.ranks = 64;  // 8 hosts
  faults.parts.rank_mtbf = faults.parts.host_mtbf = faults.parts.rail_mtbf = 1e15;
  faults.parts.save = faults.parts.write = 0, faults.parts.every = 1000;
  faults.slow_mtbf = 80'000, faults.slow_seconds = 4000, faults.slow_factor = 1.5;
  const double none = std::exp(-8 * 4000.0 / 80'000);
  const SimulatedCluster s = simulate_cluster(faults, 1, 3e8, 1);
  EXPECT_EQ(s.interruptions, 0);
  EXPECT_NEAR(s.useful, none + (1 - none) / 1.5, 0.004);
  EXPECT_NEAR(s.useful + s.slow, 1, 0.001);
}

TEST(SimulateCluster, LostRailsStretchWhatWaitsForHosts) {
  ClusterFaults faults;
  faults.parts.ranks = 16, faults.parts.rails = 2;  // 2 hosts
  faults.parts.rank_mtbf = faults.parts.host_mtbf = 1e15;
  faults.parts.rail_mtbf = 1e5, faults.parts.rail_repair = 100, faults.parts.gap = 0;
  faults.parts.save = faults.parts.write = 0, faults.parts.every = 1000;
  double last = 1;
  for (const double share : {0.0, 0.2, 1.0}) {
    faults.rail_share = share;
    const SimulatedCluster s = simulate_cluster(faults, 1'000'000, 2e7, 1);
    EXPECT_LT(s.useful, last) << share;
    // Four rails, each away for 100 s of 100,100: while one is, a step takes 1 + share times as long.
    EXPECT_NEAR(s.slow, 4 * 100 / 100'100.0 * share / (1 + share), 0.0006) << share;
    last = s.useful;
  }
}

TEST(SimulateCluster, SameSeedSameAnswerAndWrongInputsAreRefused) {
  ClusterFaults faults;
  faults.slow_mtbf = 1e5, faults.slow_seconds = 600, faults.slow_factor = 1.3;
  EXPECT_EQ(simulate_cluster(faults, 100, kForever, 7).useful,
            simulate_cluster(faults, 100, kForever, 7).useful);
  EXPECT_NE(simulate_cluster(faults, 100, kForever, 7).useful,
            simulate_cluster(faults, 100, kForever, 8).useful);
  faults.slow_factor = 0.5;
  EXPECT_THROW(simulate_cluster(faults, 1, kForever, 1), Error);
  faults.slow_factor = 1, faults.rail_share = 2;
  EXPECT_THROW(simulate_cluster(faults, 1, kForever, 1), Error);
}

}  // namespace
}  // namespace moraine
