// CheckMemory: fails if ranks of another host or device count, if those that share one do not, or if a device's part is
// held against the host.
#include "train/check_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace moraine {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(CheckMemory, RanksOfAHostAndOfADeviceAreAddedUp) {
  // Two hosts; two ranks share device 0 of the first.
  const RankMemory rank = {.host = 0,
                           .device = 0,
                           .host_bytes = 3 * kMiB,
                           .host_free = 9 * kMiB,
                           .device_bytes = 4 * kMiB,
                           .device_free = 8 * kMiB};
  std::vector<RankMemory> all(4, rank);
  all[2].device = 1;
  all[3].host = 1;
  EXPECT_EQ(memory_shortage(all, 0), "");
  all[1].device_free = 7 * kMiB;  // who asks later sees less
  EXPECT_EQ(memory_shortage(all, 0),
            "the run plans 4.0 MiB of device 0 on each of 2 ranks that share it, and 7.0 MiB of it "
            "are free");
  EXPECT_EQ(memory_shortage(all, 2), "");
  all[2].host_bytes = 4 * kMiB;
  EXPECT_EQ(memory_shortage(all, 2),
            "the run plans 4.0 MiB on each of 3 ranks of this host, and 9.0 MiB are available");
  EXPECT_EQ(memory_shortage(all, 3), "");
}

TEST(CheckMemory, WithoutADeviceTheHostsCounts) {
  const std::vector<RankMemory> all(2, {.host_bytes = 5 * kMiB, .host_free = 10 * kMiB});
  EXPECT_EQ(memory_shortage(all, 1), "");
}

}  // namespace
}  // namespace moraine
