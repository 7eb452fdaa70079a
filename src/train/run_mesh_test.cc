// Fails if ranks that are left after a loss go on with fewer of them than can divide the work, or with some that a
// phase cannot have.
#include "train/run_mesh.h"

#include <gtest/gtest.h>

#include "train/run_config.h"

namespace moraine {
namespace {

TEST(RunMesh, AsManyRanksGoOnAsDivideTheSlotsWhateverComputes) {
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

TEST(RunMesh, EveryPhaseCanHaveThem) {
  RunConfig config;
  config.train.slots = 8;
  config.phases.resize(2);
  config.phases[1].context = 4;
  EXPECT_EQ(most_ranks(config, 7), 4);
  EXPECT_EQ(most_ranks(config, 3), 0) << "the second phase has groups of four";
}

}  // namespace
}  // namespace moraine
