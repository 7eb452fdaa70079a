// Experts over ranks with an emulated GPU each: fails if a run ends in other bits on another division of ranks into
// data and experts, with experts served by others than those that hold them, or after a resume on another one, if a
// phase does not get its mesh, or if a mesh that cannot be is not refused by name at the start.
#include <gtest/gtest.h>

#include <functional>

#include "base/test_folder.h"
#include "base/test_text.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

// Of the state after one and two steps of four slots, in bf16, on any mesh.
struct Stated {
  const char* device;
  std::string one, two;
};
const Stated kStated[] = {
    {"emulated:cdna3", "bd1de057fc856334101d0a4832ebdfce", "4adde61370097eeb50ac3fcb72efbc54"},
    {"emulated:sm_90", "a6bca5a6f091009d7d1ca23dad259b33", "f086c43a47c8f48ef9e2a7bc2a28b46c"}};

class DeviceExperts : public ::testing::Test {
 protected:
  // Four experts. Gradients leave in several buckets; every step is clipped.
  RunConfig config(const std::string& device, int64_t expert, const std::string& length) const {
    RunConfig c = tiny.config(
        "[train]\nslots = 4\nsequence = 8\nbatch_tokens = 32\nthreads = 1\nclip_norm = 0.1\n"
        "dtype = \"bf16\"\n" +
        (length[0] == '[' ? "" : length) +
        "[optimizer]\nlearning_rate = 2e-3\nnewton_schulz_steps = 2\n"
        "[checkpoint]\nevery_steps = 1\nkeep = 9\n" +
        (length[0] == '[' ? length : ""));
    ModelConfig& m = c.model;
    m.layers = 1, m.hidden = 16, m.heads = 2, m.kv_heads = 1, m.head_dim = 8;
    m.expert_hidden = 8, m.router_hidden = 8, m.init_std = 0.2;
    c.report.valid_every_steps = 0;
    c.train.device = device;
    c.parallel.expert = expert;
    c.parallel.bucket_bytes = 1;
    c.parallel.deadline_seconds = 60;
    return c;
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

TEST_F(DeviceExperts, AGenerationHasOneAnswerOnEveryFactorisation) {
  const auto on = [&](const Stated& s, int ranks, int expert) {
    const std::string name = fmt::format("{} {}x{}", s.device, ranks / expert, expert);
    const Outcome run =
        tiny.train_on(ranks, config(s.device, expert, "steps = 1\n"), tiny.out(name));
    EXPECT_EQ(run.hash(), s.one) << name;
  };
  for (const auto& [ranks, expert] : {std::pair(1, 1), {2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}})
    on(kStated[0], ranks, expert);
  on(kStated[1], 4, 4);
}

struct Served {
  int ranks, expert;
  PlacementMode mode;
  int64_t slots;
};

void serve(RunConfig& c, PlacementMode mode, int64_t slots) {
  c.parallel.placement = mode;
  c.parallel.expert_slots = slots;
  c.parallel.placement_every_steps = 1;
  c.parallel.placement_gate = 0;
}

// Where a plan says, and at random; the second step is the one with guests, with two slots of a rank where there are
// two of them.
TEST_F(DeviceExperts, WhoServesWhichExpertsIsInNoBit) {
  const auto on = [&](const Stated& s, const Served& by) {
    RunConfig c = config(s.device, by.expert, "steps = 2\n");
    serve(c, by.mode, by.slots);
    c.train.recompute = by.ranks == 2 ? Recompute::kLayer : Recompute::kNone;
    c.train.verify_every_steps = by.expert == 4 ? 2 : 0;
    c.report.valid_every_steps = by.ranks == by.expert ? 0 : 1;
    c.report.valid_tokens = 24;
    const std::string name = fmt::format("{} {}x{}-{}", s.device, by.ranks / by.expert, by.expert,
                                         static_cast<int>(by.mode));
    const Outcome run = tiny.train_on(by.ranks, c, tiny.out(name));
    EXPECT_EQ(run.hash(), s.two) << name;
    // Each group of experts tells of both steps.
    const int64_t told = count(run.log, "experts.placed");
    EXPECT_EQ(told, by.mode == PlacementMode::kShuffled ? 2 * by.ranks / by.expert : told) << name;
    EXPECT_GT(told, 0) << name;
  };
  on(kStated[0], {2, 2, PlacementMode::kBalanced, 2});
  on(kStated[0], {4, 2, PlacementMode::kShuffled, 1});
  on(kStated[0], {4, 4, PlacementMode::kShuffled, 3});
  on(kStated[1], {4, 4, PlacementMode::kBalanced, 3});
}

// Each part of a run on a mesh of its own, which resumes what the one before saved. What ranks check of each other,
// layers that are computed again and validation are in no bit.
TEST_F(DeviceExperts, StoppedAndResumedOnAnotherMesh) {
  const std::vector<std::pair<int, int>> meshes[] = {{{4, 4}, {1, 1}}, {{1, 1}, {4, 2}}};
  for (size_t i = 0; i < std::size(meshes); ++i) {
    const Stated& s = kStated[i];
    for (const auto& [ranks, expert] : meshes[i]) {
      RunConfig c = config(s.device, expert, "steps = 2\n");
      if (expert > 1) serve(c, PlacementMode::kShuffled, 2);
      c.train.verify_every_steps = i == 0 ? 1 : 0;
      c.train.recompute = i == 1 ? Recompute::kLayer : Recompute::kNone;
      c.report.valid_every_steps = i == 1 ? 1 : 0;
      c.report.valid_tokens = 24;
      const Outcome part = tiny.train_steps(c, tiny.out(s.device), 1, ranks);
      if (part.result) {
        EXPECT_EQ(part.hash(), s.two) << s.device;
      } else {
        ASSERT_EQ(part.error->code(), Code::kInterrupted) << part.error->what();
      }
    }
  }
}

// A phase has a mesh of its own; ranks go over to it between two steps.
TEST_F(DeviceExperts, APhaseHasItsMesh) {
  const auto run = [&](const char* expert, int ranks) {
    return tiny.train_on(
        ranks,
        config(
            kStated[1].device, 1,
            fmt::format("[[phase]]\ntokens = 32\n[[phase]]\ntokens = 32\nexpert = {}\n", expert)),
        tiny.out(std::string("phases") + expert));
  };
  const Outcome one = run("1", 1), moved = run("2", 2);
  ASSERT_TRUE(one.result) << one.hash();
  EXPECT_EQ(moved.hash(), one.hash());
  EXPECT_NE(moved.log.find("mesh.moved"), std::string::npos) << moved.log;
}

TEST_F(DeviceExperts, AWrongMeshIsRefusedByName) {
  using Change = std::function<void(RunConfig&)>;
  const auto refused = [&](
                           int ranks, int64_t expert, std::initializer_list<const char*> pieces,
                           const Change& change = [](RunConfig&) {}) {
    RunConfig c = config("emulated:plain", expert, "steps = 1\n");
    change(c);
    const Outcome outcome = tiny.train_on(ranks, c, tiny.out("refused"));
    ASSERT_TRUE(outcome.error) << outcome.hash();
    EXPECT_EQ(outcome.error->code(), Code::kInvalidArgument);
    for (const char* piece : pieces)
      EXPECT_NE(std::string(outcome.error->what()).find(piece), std::string::npos)
          << piece << "\n"
          << outcome.error->what();
  };
  refused(2, 4, {"parallel.expert = 4 on 2 ranks", "wanted"});
  refused(8, 8, {"parallel.expert = 8", "model.experts = 4"});
  refused(
      4, 2,
      {"parallel.device_links = \"library\"", "parallel.expert = 2", "wanted \"host\" or \"auto\""},
      [](RunConfig& c) { c.parallel.device_links = DeviceLinks::kLibrary; });
  // Of a later phase too, before the first step.
  refused(2, 1, {"parallel.device_links = \"library\"", "parallel.expert = 2"}, [](RunConfig& c) {
    c.parallel.device_links = DeviceLinks::kLibrary;
    c.phases.push_back(c.phases.back());
    c.phases.back().expert = 2;
  });
}

}  // namespace
}  // namespace moraine
