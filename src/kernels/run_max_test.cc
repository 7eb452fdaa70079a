// RunMax: fails if the largest of a run is not found wherever it stands, or a value that is no number is taken for one.
#include "kernels/run_max.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "testing/rig.h"

namespace moraine {
namespace {

std::vector<float> maxima(const std::vector<float>& values) {
  std::vector<float> largest((values.size() + kRunLength - 1) / kRunLength, 7.0f);
  run_max({.largest = largest, .values = values});
  return largest;
}

TEST(RunMax, IsTheLargestWhereverItStands) {
  testing::for_each_isa([](Isa) {
    for (const size_t n : {1, 5, 63, 64, 65, 128, 191, 192}) {
      for (size_t at = 0; at < n; ++at) {
        std::vector<float> values(n);
        for (size_t i = 0; i < n; ++i) values[i] = -100.0f - static_cast<float>(i * 37 % 64);
        values[at] = -1.5f;
        const std::vector<float> got = maxima(values);
        ASSERT_EQ(got.size(), (n + 63) / 64);
        for (size_t run = 0; run < got.size(); ++run) {
          float want = -INFINITY;
          for (size_t i = 64 * run; i < std::min(n, 64 * run + 64); ++i)
            want = std::max(want, values[i]);
          ASSERT_EQ(got[run], want) << n << " " << at << " " << run;
        }
      }
    }
    EXPECT_TRUE(maxima({}).empty());
  });
}

TEST(RunMax, PassesOverWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  testing::for_each_isa([&](Isa) {
    for (const size_t n : {64, 100}) {
      std::vector<float> values(n, -INFINITY);  // as where a mask leaves nothing
      for (const float largest : maxima(values)) EXPECT_EQ(largest, -INFINITY);
      values.assign(n, nan);
      for (const float largest : maxima(values)) EXPECT_EQ(largest, -INFINITY);
      for (size_t at = 0; at < n; ++at) {
        values.assign(n, nan);
        values[at] = -3.0f;
        EXPECT_EQ(maxima(values)[at / 64], -3.0f) << at;
        values[at] = INFINITY;
        EXPECT_EQ(maxima(values)[at / 64], INFINITY) << at;
        values.assign(n, 2.0f);
        values[at] = nan;
        for (const float largest : maxima(values)) EXPECT_EQ(largest, 2.0f) << at;
      }
    }
  });
}

}  // namespace
}  // namespace moraine
