// Fails if ranks that are left after a loss go on with fewer of them than can divide the work.
#include "train/groups.h"

#include <gtest/gtest.h>

#include "train/run_config.h"

namespace moraine {
namespace {

TEST(Groups, AsManyRanksGoOnAsDivideTheSlotsWhateverComputes) {
  for (const char* device : {"cpu", "gpu"}) {
    RunConfig config;
    config.train.slots = 8;
    config.train.device = device;
    config.phases.resize(1);
    EXPECT_EQ(most_ranks(config, 8), 8) << device;
    EXPECT_EQ(most_ranks(config, 7), 4) << device;
    EXPECT_EQ(most_ranks(config, 1), 1) << device;
    config.train.slots = 3;
    EXPECT_EQ(most_ranks(config, 2), 1) << device;
  }
}

}  // namespace
}  // namespace moraine
