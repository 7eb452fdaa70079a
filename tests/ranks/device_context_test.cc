// Sequences over ranks with an emulated GPU each: fails if a run leaves one device's by more than rounding, if the same
// mesh has other bits again, after a resume, by a library's links or with experts served elsewhere, or if a generation
// has others than are stated.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/json.h"
#include "base/test_folder.h"
#include "testing/places.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

// Of the state after two steps of two slots, each over two ranks, in bf16.
struct SharedState {
  const char* device;
  AttentionExchange attention;
  std::string hash;
};
const SharedState kShared[] = {
    {"emulated:cdna3", AttentionExchange::kRing, "1d97d5a4ae5dc4b6dc739389862c390e"},
    {"emulated:cdna3", AttentionExchange::kGather, "436da8111e04d2fcaa29323f4414f4a4"},
    {"emulated:sm_90", AttentionExchange::kGather, "d05aef1b405721db8e5edd7785c2f54c"}};

class DeviceContext : public ::testing::Test {
 protected:
  RunConfig config(const SharedState& s, int64_t context) const {
    RunConfig c = tiny.config(
        "[train]\nslots = 2\nsequence = 18\nbatch_tokens = 36\nthreads = 1\nclip_norm = 0.1\n"
        "dtype = \"bf16\"\nsteps = 2\n"
        "[optimizer]\nlearning_rate = 2e-3\nnewton_schulz_steps = 2\n"
        "[checkpoint]\nevery_steps = 1\nkeep = 9\n");
    ModelConfig& m = c.model;
    m.layers = 2, m.hidden = 16, m.heads = 2, m.kv_heads = 1, m.head_dim = 8;
    m.expert_hidden = 8, m.router_hidden = 8, m.init_std = 0.2;
    c.report.valid_every_steps = 0;
    c.train.device = s.device;
    c.parallel.context = context;
    c.parallel.attention = s.attention;
    c.parallel.bucket_bytes = 1;
    c.parallel.deadline_seconds = 60;
    return c;
  }
  Json first_step(const std::string& name) const {
    std::istringstream lines(posix_file_system().read(tiny.out(name) + "/metrics.jsonl"));
    std::string line;
    std::getline(lines, line);
    return parse_json(line, "metrics");
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

// The ring's layers are computed again; the others stop after a step, and resume as ranks that check each other, and
// validate.
TEST_F(DeviceContext, AMeshOfAGenerationHasOneAnswerAndResumesOnIt) {
  for (const SharedState& s : {kShared[0], kShared[1]}) {
    const bool ring = s.attention == AttentionExchange::kRing;
    const std::string name = std::string(s.device) + (ring ? " ring" : " gather");
    RunConfig c = config(s, 2);
    c.train.recompute = ring ? Recompute::kLayer : Recompute::kNone;
    if (!ring) {
      const Outcome first = tiny.train_steps(c, tiny.out(name), 1, 2);
      ASSERT_TRUE(first.error) << first.hash();
      ASSERT_EQ(first.error->code(), Code::kInterrupted) << first.error->what();
      c.train.verify_every_steps = 2;
      c.report.valid_every_steps = 2;
      c.report.valid_tokens = 18;
    }
    EXPECT_EQ(tiny.train_on(2, c, tiny.out(name)).hash(), s.hash) << name;
  }
}

// With all keys everywhere a row has the bits of one device, so losses have, and sums of them all but. The ring merges
// parts, and rounds a row's answer to bf16 where it may fall on the other side: a unit of 2^-8 of each row's answer.
TEST_F(DeviceContext, LossesAreThoseOfOneDevice) {
  tiny.train_steps(config(kShared[1], 1), tiny.out("one"), 1);
  const double want = first_step("one")["loss"].get<double>(),
               norm = first_step("one")["gradient_norm"].get<double>();
  for (const SharedState& s : {kShared[0], kShared[1]}) {
    const bool ring = s.attention == AttentionExchange::kRing;
    const std::string name = ring ? "ring" : "gather";
    tiny.train_steps(config(s, 2), tiny.out(name), 1, 2);
    const Json got = first_step(name);
    EXPECT_NEAR(got["loss"].get<double>(), want, (ring ? 0x1p-8 : 1e-12) * want) << name;
    // A gradient at the border of chunks is rounded once more.
    EXPECT_NEAR(got["gradient_norm"].get<double>(), norm, 2 * 0x1p-8 * norm) << name;
  }
}

// The other generation's, unbroken.
TEST_F(DeviceContext, ALibraryMovesTheSameBits) {
  RunConfig c = config(kShared[2], 2);
  c.parallel.device_links = DeviceLinks::kLibrary;
  setenv("MORAINE_COLLECTIVE_LIBRARY", collectives_stand_in().c_str(), 1);
  const Outcome two = tiny.train_on(2, c, tiny.out("links"));
  unsetenv("MORAINE_COLLECTIVE_LIBRARY");
  EXPECT_EQ(two.hash(), kShared[2].hash);
  EXPECT_NE(two.log.find("device.links ranks=2 by=library"), std::string::npos) << two.log;
}

TEST_F(DeviceContext, WhoServesWhichExpertsIsInNoBit) {
  const auto served = [&](PlacementMode mode, const char* name) {
    RunConfig c = config(kShared[0], 2);
    c.model.layers = 1;
    c.parallel.expert = 4;
    c.parallel.placement = mode;
    c.parallel.placement_every_steps = 1;
    return tiny.train_on(4, c, tiny.out(name)).hash();
  };
  EXPECT_EQ(served(PlacementMode::kShuffled, "shuffled"), served(PlacementMode::kStatic, "home"));
}

}  // namespace
}  // namespace moraine
