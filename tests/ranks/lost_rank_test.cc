// LostRank: a rank that is killed or stopped at any moment of a step ends the others in time, and
// loses nothing.
//
// Fails if a wait has no deadline, if a thread keeps a rank alive that should end, if a message
// does not name the rank, or if the run that goes on afterwards has other bits.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/test_folder.h"
#include "comm/process_ranks.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

constexpr int kRanks = 4, kVictim = 1;

class LostRank : public ::testing::Test {
 protected:
  RunConfig config(double deadline_seconds) {
    RunConfig config = tiny.config(tiny.rich("f32", 8));
    config.parallel.expert = 2;
    config.parallel.placement = PlacementMode::kShuffled;
    config.parallel.deadline_seconds = deadline_seconds;
    config.checkpoint.every_steps = 2;
    return config;
  }

  // Ranks as processes; `victim` gets the signal at the nth time that it comes to the point.
  std::vector<RankOutcome> run(const RunConfig& config, const std::string& out, const char* point,
                               int nth, int signal) {
    return run_process_ranks(kRanks, [&](Transport& transport) {
      std::atomic<int> times{0};
      set_fault_handler([&](const char* name) {
        if (transport.rank() == kVictim && std::strcmp(name, point) == 0 && ++times == nth)
          raise(signal);
      });
      RunOptions options;
      options.out = out;
      options.machine_file = tiny.root() + "/machine.json";
      std::freopen("/dev/null", "w", stderr);
      return train(posix_file_system(), config, options, transport).hash;
    });
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

const char* const kPoints[] = {
    "step.micro_batch",    "exchange.counts",        "exchange.to_experts", "exchange.to_tokens",
    "guests.weights",      "guests.gradients",       "step.bucket_leaves",  "step.bucket_moves",
    "step.backward_done",  "step.gradients_reduced", "step.counts_summed",  "step.optimizer",
    "step.weights_gather", "validate.batch",         "save.copy",           "save.started"};

TEST_F(LostRank, KilledAnywhere) {
  const Outcome whole = tiny.train_on(2, config(30), tiny.out("whole"));
  ASSERT_TRUE(whole.result) << whole.hash();
  for (const char* point : kPoints) {
    for (const int nth : {1, 4}) {
      const std::string out = tiny.out(std::string(point) + std::to_string(nth));
      const std::vector<RankOutcome> ranks = run(config(30), out, point, nth, SIGKILL);
      if (ranks[kVictim].signal == 0) {  // it is not passed so often
        EXPECT_GT(nth, 1) << point;
        continue;
      }
      for (int r = 0; r < kRanks; ++r) {
        const RankOutcome& rank = ranks[static_cast<size_t>(r)];
        if (r == kVictim) continue;
        EXPECT_EQ(rank.exit_code, exit_code(Code::kPeerLost)) << point << ": " << rank.text;
        EXPECT_NE(rank.text.find("rank 1"), std::string::npos) << point << ": " << rank.text;
      }
      EXPECT_EQ(tiny.train_on(2, config(30), out).hash(), whole.hash()) << point << " " << nth;
    }
  }
}

TEST_F(LostRank, StoppedAnywhere) {
  // Nobody who is only slow may be given up: twice what a whole run takes here and now.
  const double begin = now_seconds();
  run(config(60), tiny.out("whole"), "", 1, SIGSTOP);
  const double deadline = std::max(1.0, 2 * (now_seconds() - begin));
  for (const char* point : kPoints) {
    const std::string out = tiny.out(std::string(point) + "-stopped");
    const std::vector<RankOutcome> ranks = run(config(deadline), out, point, 1, SIGSTOP);
    EXPECT_EQ(ranks[kVictim].signal, SIGKILL)
        << point << " was not passed";  // by run_process_ranks
    for (int r = 0; r < kRanks; ++r) {
      const RankOutcome& rank = ranks[static_cast<size_t>(r)];
      if (r == kVictim) continue;
      EXPECT_EQ(rank.exit_code, exit_code(Code::kPeerLost)) << point << ": " << rank.text;
      EXPECT_NE(rank.text.find("rank 1"), std::string::npos) << point << ": " << rank.text;
    }
  }
}

// Between two checkpoints on disk, the copy in memory is newer: what is lost is a step, not a
// hundred.
TEST_F(LostRank, GoesOnFromTheCopyInMemory) {
  const std::string want = tiny.train_on(2, config(30), tiny.out("whole")).hash();
  RunConfig with_memory = config(30);
  with_memory.checkpoint.every_steps = 1000;
  with_memory.checkpoint.memory_every_steps = 1;
  const std::string out = tiny.out("memory");
  const std::vector<RankOutcome> ranks = run(with_memory, out, "step.weights_gather", 11, SIGKILL);
  EXPECT_EQ(ranks[kVictim].signal, SIGKILL);
  EXPECT_TRUE(list_checkpoints(posix_file_system(), out).empty());
  const Outcome rest = tiny.train_on(2, with_memory, out);
  EXPECT_EQ(rest.hash(), want);
  EXPECT_NE(rest.log.find("checkpoint.loaded directory=/dev/shm/"), std::string::npos) << rest.log;
  EXPECT_EQ(rest.log.find("checkpoint.loaded directory=" + out), std::string::npos) << rest.log;
  // A run that ended well leaves nothing; one whose folder was removed begins anew.
  std::filesystem::remove_all(out);
  const Outcome again = tiny.train_on(2, with_memory, out);
  EXPECT_EQ(again.hash(), want);
  EXPECT_EQ(again.log.find("checkpoint.loaded"), std::string::npos) << again.log;
  std::filesystem::remove_all(out);
  run(with_memory, out, "step.weights_gather", 11, SIGKILL);
  std::filesystem::remove_all(out);
  const Outcome anew = tiny.train_on(4, with_memory, out);
  EXPECT_EQ(anew.hash(), want);
  EXPECT_EQ(anew.log.find("checkpoint.loaded"), std::string::npos) << anew.log;
}

// Copies are an extra: where there can be none, the run goes on without.
TEST_F(LostRank, AMemoryFolderThatIsAFileIsRefusedAndTrainingGoesOn) {
  const std::string want = tiny.train_on(2, config(30), tiny.out("whole")).hash();
  RunConfig with_memory = config(30);
  with_memory.checkpoint.every_steps = 1000;
  with_memory.checkpoint.memory_every_steps = 1;
  with_memory.checkpoint.memory_folder = tiny.out("file");
  write_file(with_memory.checkpoint.memory_folder, "not a folder");
  const Outcome run = tiny.train_on(2, with_memory, tiny.out("refused"));
  EXPECT_EQ(run.hash(), want);
  EXPECT_NE(run.log.find("memory.refused"), std::string::npos) << run.log;
}

// Ranks of one run that were started differently.
TEST_F(LostRank, DifferentConfigIsNamed) {
  const auto with = [&](const std::function<void(int rank, RunConfig&)>& change) {
    return run_process_ranks(2, [&](Transport& transport) {
      RunConfig mine = config(10);
      change(transport.rank(), mine);
      RunOptions options;
      options.out = tiny.out("different");
      options.machine_file = tiny.root() + "/machine.json";
      std::freopen("/dev/null", "w", stderr);
      return train(posix_file_system(), mine, options, transport).hash;
    });
  };
  const std::vector<RankOutcome> seeds =
      with([](int rank, RunConfig& c) { c.train.seed = rank + 5; });
  const auto refused = [](const RankOutcome& rank) {
    return rank.exit_code == exit_code(Code::kInvalidArgument);
  };
  EXPECT_TRUE(std::any_of(seeds.begin(), seeds.end(), refused));
  for (const RankOutcome& rank : seeds) {
    // A rank that hears of it before it has compared ends because of the other.
    EXPECT_TRUE(refused(rank) || rank.exit_code == exit_code(Code::kPeerLost)) << rank.exit_code;
    EXPECT_NE(rank.text.find("rank 0 has `seed = 5`, rank 1 has `seed = 6`"), std::string::npos)
        << rank.text;
  }
  // Found by the first message: nothing was agreed on yet.
  const std::vector<RankOutcome> experts =
      with([](int rank, RunConfig& c) { c.parallel.expert = rank == 1 ? 1 : 2; });
  for (const RankOutcome& rank : experts)
    EXPECT_NE(rank.text.find("`expert = "), std::string::npos) << rank.text;
}

}  // namespace
}  // namespace moraine
