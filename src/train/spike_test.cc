// Fails if the averages differ from plain ones while there are few steps, a bad step is learned
// from, or the state does not survive its text exactly.
#include "train/spike.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace moraine {
namespace {

double noise(uint64_t i) { return random_uniform(1, Stream::kTest, 0, i); }

TEST(Spike, ZScoreIsThatOfTheLossesSeen) {
  SpikeDetector detector(0);
  std::vector<double> seen;
  for (uint64_t i = 0; i < 100; ++i) {
    const double loss = 3 + noise(i);
    double mean = 0, variance = 0;
    for (const double x : seen) mean += x / static_cast<double>(seen.size());
    for (const double x : seen)
      variance += (x - mean) * (x - mean) / static_cast<double>(seen.size());
    EXPECT_FALSE(detector.observe(loss, 1));
    const double want = i >= SpikeDetector::kWarm ? (loss - mean) / std::sqrt(variance) : 0;
    EXPECT_NEAR(detector.z_score(), want, 1e-9) << i;
    seen.push_back(loss);
  }
}

TEST(Spike, BadStepsCountInARowAndAreNotLearned) {
  SpikeDetector detector(4);
  EXPECT_FALSE(detector.observe(1e6, 1));  // cold: anything finite goes
  SpikeDetector warm(4);
  for (uint64_t i = 0; i < 64; ++i) EXPECT_FALSE(warm.observe(3 + 0.1 * noise(i), 1)) << i;
  const std::string before = warm.save();
  int64_t bad = 0;
  for (const double loss : {30.0, double{NAN}, double{INFINITY}, 4.0}) {
    EXPECT_TRUE(warm.observe(loss, 1)) << loss;
    EXPECT_EQ(warm.bad_in_a_row(), ++bad);
  }
  EXPECT_TRUE(warm.observe(3, NAN));
  EXPECT_TRUE(warm.observe(3, INFINITY));
  warm.forget_bad();
  EXPECT_EQ(warm.bad_in_a_row(), 0);
  EXPECT_EQ(warm.save(), before);
  EXPECT_TRUE(warm.observe(5, 1));
  EXPECT_FALSE(warm.observe(3.05, 1));
  EXPECT_EQ(warm.bad_in_a_row(), 0);
  EXPECT_FALSE(warm.observe(-100, 1)) << "a loss far below is no spike";
}

TEST(Spike, ZeroSigmaMindsOnlyNumbersThatAreNone) {
  SpikeDetector detector(0);
  for (uint64_t i = 0; i < 64; ++i) detector.observe(3 + 0.1 * noise(i), 1);
  EXPECT_FALSE(detector.observe(1e9, 1));
  EXPECT_TRUE(detector.observe(NAN, 1));
}

TEST(Spike, RestoredDecidesTheSame) {
  SpikeDetector a(1);
  for (uint64_t i = 0; i < 300; ++i) {
    SpikeDetector b(1);
    b.restore(a.save());
    EXPECT_EQ(b.save(), a.save());
    const double loss = noise(i);
    ASSERT_EQ(a.observe(loss, 1), b.observe(loss, 1)) << i;
    ASSERT_EQ(a.save(), b.save());
    ASSERT_EQ(a.z_score(), b.z_score());
  }
}

TEST(Spike, OtherTextIsCorrupt) {
  for (const char* text : {"", "1 2 3", "a b c d", "0x1p0 0x1p0", "0x1p0 0x1p0 5"}) {
    SpikeDetector detector(1);
    try {
      detector.restore(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kCorrupt);
    }
  }
}

}  // namespace
}  // namespace moraine
