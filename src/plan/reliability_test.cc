// The closed form against the simulation and against known forms. Breaks if a term is missing in either.
#include "plan/reliability.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"

namespace moraine {
namespace {

void expect_agreement(const ReliabilityInputs& in, const std::string& what) {
  const Reliability expected = expect_reliability(in);
  const SimulatedReliability simulated = simulate_reliability(in, 40000, 7);
  EXPECT_GT(simulated.useful_error, 0) << what;
  // Four standard errors: once in 16,000 for a right form. The seed is fixed.
  EXPECT_NEAR(simulated.useful, expected.useful, 4 * simulated.useful_error) << what;
  EXPECT_NEAR(static_cast<double>(simulated.interruptions) / simulated.seconds,
              expected.interruptions, 4 * expected.interruptions / std::sqrt(40000.0))
      << what;
}

TEST(Reliability, ClosedFormAndSimulationAgree) {
  ReliabilityInputs in;
  expect_agreement(in, "defaults");
  in.every = 30;
  expect_agreement(in, "short interval");
  in.rank_mtbf = 4000;  // an interruption about every eight minutes: all terms matter
  in.host_mtbf = 20000;
  in.every = 100;
  expect_agreement(in, "often");
  in.write = 90;
  in.restart = 300;
  expect_agreement(in, "slow disk, slow restart");
  in.ranks = 64;
  in.rail_mtbf = 3000;  // rails fail all the time
  in.rail_repair = 300;
  in.gap = 0.5;
  in.rank_mtbf = 100000;
  in.host_mtbf = 100000;
  expect_agreement(in, "bad rails");
  in.rails = 3;
  expect_agreement(in, "three bad rails");
  in.rails = 1;
  in.rail_repair = 5;  // else losses of one rail are farther apart than the form has them
  expect_agreement(in, "one bad rail");
}

TEST(Reliability, WithoutATimeToWriteItIsDalysForm) {
  ReliabilityInputs in;
  in.ranks_per_host = in.ranks;
  in.rank_mtbf = 5000;
  in.write = 0;
  in.every = 77;
  const Reliability r = expect_reliability(in);
  const double m = 1 / r.interruptions, recovery = in.detect + in.restart;
  const double daly =
      in.every / (std::exp(recovery / m) * m * std::expm1((in.every + in.save) / m));
  EXPECT_NEAR(r.useful, daly, 1e-12);
}

TEST(Reliability, TheBestIntervalIsAMaximumAndNearYoungsWhereThatHolds) {
  ReliabilityInputs in;
  in.write = 0;
  const Reliability best = expect_reliability(in);
  EXPECT_NEAR(best.every, best.young, 0.01 * best.young);
  for (const double factor : {0.5, 0.9, 1.1, 2.0}) {
    ReliabilityInputs other = in;
    other.every = best.every * factor;
    EXPECT_LT(expect_reliability(other).useful, best.useful) << factor;
  }
}

TEST(Reliability, RailsMultiplyTheTimeBetweenLossesOfANetwork) {
  ReliabilityInputs in;
  in.ranks = 64;
  double last = 1;
  for (const int64_t rails : {1, 2, 3, 7}) {
    in.rails = rails;
    const Reliability r = expect_reliability(in);
    const double of_network = r.of_rails * r.interruptions;
    EXPECT_LT(of_network, last) << rails;
    last = of_network;
  }
  in.ranks = 8;  // one host: no network
  EXPECT_EQ(expect_reliability(in).of_rails, 0);
}

TEST(Reliability, WhatCannotBeIsRefused) {
  const auto refused = [](auto change, const std::string& why) {
    ReliabilityInputs in;
    change(in);
    try {
      expect_reliability(in);
      ADD_FAILURE() << why;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  refused([](ReliabilityInputs& in) { in.rank_mtbf = 0; }, "wanted more than 0");
  refused([](ReliabilityInputs& in) { in.save = -1; }, "save = -1: wanted 0 or more");
  refused([](ReliabilityInputs& in) { in.every = 5, in.write = 6; }, "at least the time to write");
  refused([](ReliabilityInputs& in) { in.restart = NAN; }, "restart");
}

}  // namespace
}  // namespace moraine
