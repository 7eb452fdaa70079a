// Diverged ranks: whichever rank has a wrong bit, in weights or gradients, it is named, leaves, and is replaced, and
// the run ends in the hash of one that nothing happened to; nobody is accused who did nothing.
//
// Breaks if a step moves before it is checked, if the wrong rank is named, if a state that it spoilt is taken up again,
// or if two ranks that compute the same slot do not have the same bits.
#include "base/test_folder.h"
#include "comm/thread_ranks.h"
#include "tests/ranks/job.h"

namespace moraine {
namespace {

using namespace testing;

thread_local int thread_rank = 0;

class Diverged : public ::testing::Test {
 protected:
  ~Diverged() override { set_fault_bytes(nullptr); }

  RunConfig config_of(int64_t expert, int64_t verify_every = 1, int64_t slots = 4) const {
    RunConfig config = tiny.config(tiny.rich("bf16", slots));
    config.parallel.expert = expert;
    config.parallel.deadline_seconds = 60;
    config.checkpoint.every_steps = 100;
    config.train.verify_every_steps = verify_every;
    return config;
  }
  std::string quiet_hash(int64_t slots = 4) const {
    return tiny.train(config_of(1, 0, slots), tiny.out("quiet")).hash();
  }
  // Threads, each of which knows its rank when memory is offered to it.
  Outcome train(int ranks, const RunConfig& config, const std::string& name) const {
    RunOptions options;
    options.out = tiny.out(name);
    options.machine_file = tiny.root() + "/machine.json";
    WatchedFileSystem fs(posix_file_system(), [](const std::string&) {});
    Outcome outcome;
    ::testing::internal::CaptureStderr();
    try {
      run_thread_ranks(ranks, [&](Transport& transport) {
        thread_rank = transport.rank();
        const RunResult mine = moraine::train(fs, config, options, transport);
        if (thread_rank == 0) outcome.result = mine;
      });
    } catch (const Error& e) {
      outcome.error = e;
    }
    outcome.log = ::testing::internal::GetCapturedStderr();
    return outcome;
  }
  // A bit of a rank's memory, each time that `when` holds for how often it came there.
  static void flip(const std::string& point, int rank, double place,
                   std::function<bool(int)> when) {
    set_fault_bytes([=, times = std::make_shared<std::atomic<int>>(0)](const char* name,
                                                                       std::span<std::byte> bytes) {
      if (point != name || thread_rank != rank || !when(++*times)) return;
      flip_bit(bytes, place);
    });
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

TEST_F(Diverged, NobodyIsAccusedOfAnythingOnAnyMesh) {
  const std::string want = quiet_hash();
  for (const int ranks : {1, 2, 4}) {
    for (int64_t expert = 1; expert <= ranks; expert *= 2) {
      for (const PlacementMode placement : {PlacementMode::kStatic, PlacementMode::kShuffled}) {
        if (expert == 1 && placement != PlacementMode::kStatic) continue;
        RunConfig config = config_of(expert);
        config.parallel.placement = placement;
        const Outcome run =
            train(ranks, config, fmt::format("mesh{}x{}p{}", ranks, expert, int(placement)));
        EXPECT_EQ(run.hash(), want) << ranks << " ranks, experts over " << expert;
      }
    }
  }
}

TEST_F(Diverged, NobodyIsAccusedWhereSequencesAreShared) {
  for (const int64_t context : {2, 4}) {
    RunConfig config = config_of(2, 0);
    config.parallel.context = context;
    const Outcome quiet = train(4, config, fmt::format("quiet{}", context));
    config.train.verify_every_steps = 1;
    const Outcome run = train(4, config, fmt::format("context{}", context));
    EXPECT_EQ(run.hash(), quiet.hash());
  }
}

// What happens in which memory, and when: with one slot a rank it computes another's slot, then its own.
struct Fault {
  const char* point;
  double place;
  int nth;
};
const Fault kFaults[] = {
    {"step.slot_gradients", 0.01, 6},    // its own slot's, of what every rank has
    {"step.slot_gradients", 0.01, 5},    // another's
    {"step.slot_gradients", 0.6, 6},     // of an expert
    {"step.weights", 0.01, 4},           // at rest
    {"step.weights", 0.6, 4},            // of an expert
    {"step.weights_gathered", 0.01, 4},  // as they came from another rank
};

TEST_F(Diverged, ARankIsNamedAndTheRunGoesOnToTheSameEnd) {
  const std::string want = quiet_hash();
  int rank = 0;
  for (const Fault& fault : kFaults) {
    rank = (rank + 1) % 4;  // DivergedOverRails has each of them
    SCOPED_TRACE(fmt::format("{} {} of rank {}", fault.point, fault.place, rank));
    const RunConfig config = config_of(1);
    const std::string name = fmt::format("named{}{}", fault.point, fault.nth * 100 * fault.place);
    flip(fault.point, rank, fault.place, [&](int n) { return n == fault.nth; });
    const Outcome run = train(4, config, name);
    ASSERT_TRUE(run.error) << run.hash();
    EXPECT_EQ(run.error->code(), Code::kRankDiverged) << run.error->what();
    EXPECT_NE(run.log.find(fmt::format("rank={} E rank.diverged", rank)), std::string::npos)
        << run.log;
    set_fault_bytes(nullptr);
    EXPECT_EQ(train(4, config, name).hash(), want);
  }
}

// Who always computes wrongly is wrong in its own slot and in the other's.
TEST_F(Diverged, ARankThatIsAlwaysWrongIsNamed) {
  for (const int rank : {0, 3}) {
    flip("step.slot_gradients", rank, 0.01, [](int n) { return n >= 5; });
    const Outcome run = train(4, config_of(1), fmt::format("always{}", rank));
    ASSERT_TRUE(run.error) << run.hash();
    EXPECT_NE(run.log.find(fmt::format("rank={} E rank.diverged step=3", rank)), std::string::npos)
        << run.log;
  }
}

TEST_F(Diverged, WithExpertsElsewhereTheRankWhoseGradientsAreWrongIsNamed) {
  for (const int64_t expert : {2, 4}) {
    for (const double place : {0.01, 0.95}) {
      SCOPED_TRACE(fmt::format("experts over {}, at {}", expert, place));
      const RunConfig config = config_of(expert);
      flip("step.slot_gradients", 2, place, [](int n) { return n == 6; });
      const Outcome run = train(4, config, fmt::format("experts{}at{}", expert, place));
      ASSERT_TRUE(run.error) << run.hash();
      EXPECT_NE(run.log.find("rank=2 E rank.diverged step=3"), std::string::npos) << run.log;
    }
  }
}

TEST_F(Diverged, OfTwoTheOneThatDoesNotStayWithWhatItSaidIsNamed) {
  for (const int nth : {9, 10}) {  // another's slot, and its own
    const RunConfig config = config_of(1, 1, 2);
    flip("step.slot_gradients", 1, 0.01, [=](int n) { return n == nth; });
    const Outcome run = train(2, config, fmt::format("two{}", nth));
    ASSERT_TRUE(run.error) << run.hash();
    EXPECT_NE(run.log.find("rank=1 E rank.diverged"), std::string::npos) << run.log;
  }
}

TEST_F(Diverged, OneAloneComputesTwice) {
  const std::string want = quiet_hash(1);
  const RunConfig config = config_of(1, 1, 1);
  flip("step.slot_gradients", 0, 0.01, [](int n) { return n == 6; });
  const Outcome run = train(1, config, "alone");
  ASSERT_TRUE(run.error) << run.hash();
  EXPECT_EQ(run.error->code(), Code::kRankDiverged) << run.error->what();
  set_fault_bytes(nullptr);
  EXPECT_EQ(train(1, config, "alone").hash(), want);
}

TEST_F(Diverged, OfTwoThatStayWithWhatTheySaidNobodyIsNamed) {
  flip("step.weights_gathered", 1, 0.01, [](int n) { return n == 3; });
  const Outcome run = train(2, config_of(1), "undecided");
  ASSERT_TRUE(run.error) << run.hash();
  EXPECT_EQ(run.error->code(), Code::kPeerLost);
  EXPECT_NE(std::string(run.error->what()).find("one of the ranks 0, 1 has diverged"),
            std::string::npos)
      << run.error->what();
}

// A norm that is not finite: the fault of a rank, and not of the data.
TEST_F(Diverged, ABadStepIsTakenOnceMoreBeforeItIsBelieved) {
  const std::string want = quiet_hash();
  set_fault_bytes([times = std::make_shared<std::atomic<int>>(0)](const char* name,
                                                                  std::span<std::byte> bytes) {
    if (std::string("step.slot_gradients") != name || thread_rank != 1 || ++*times != 4) return;
    bytes[3] = std::byte{0x7f}, bytes[2] = std::byte{0x80};  // infinite
  });
  const Outcome run = train(4, config_of(1, 50), "bad");
  EXPECT_EQ(run.hash(), want) << run.log;
  EXPECT_EQ(run.log.find("step.bad"), std::string::npos) << run.log;
}

class DivergedOverRails : public Diverged {
 protected:
  RunConfig config_of(int64_t verify_every) const {
    RunConfig config = Diverged::config_of(1, verify_every);
    config.checkpoint.memory_every_steps = 1;
    return config;
  }
};

TEST_F(DivergedOverRails, WhoeverItIsAnotherTakesItsPlace) {
  const std::string hash = quiet_hash();
  for (const std::string point : {"step.slot_gradients", "step.weights"}) {
    for (int lost = 0; lost < 4; ++lost) {
      SCOPED_TRACE(fmt::format("{} of rank {}", point, lost));
      Job job(tiny, fmt::format("{}{}", point, lost), config_of(1), 4);
      for (int m = 0; m < 4; ++m)
        job.start(m, m == lost ? Death{point, 6, Fate::kFlips, 0.01} : Death{});
      ASSERT_EQ(job.wait(lost), exit_code(Code::kRankDiverged)) << job.log(lost);
      EXPECT_NE(job.log(lost).find(" rank.diverged "), std::string::npos) << job.log(lost);
      job.start(lost);
      for (int m = 0; m < 4; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
      expect_same_end(job, 4, hash, 2);
    }
  }
}

// The wrong steps were stored, and are not taken up.
TEST_F(DivergedOverRails, WhatWasStoredSinceTheLastVerifiedStepIsDropped) {
  const std::string hash = quiet_hash();
  Job job(tiny, "distrusted", config_of(3), 4);
  // From the second step on; the third one is verified.
  for (int m = 0; m < 4; ++m)
    job.start(m, m == 1 ? Death{"step.slot_gradients", 2, Fate::kSpoils, 0.01} : Death{});
  ASSERT_EQ(job.wait(1), exit_code(Code::kRankDiverged)) << job.log(1);
  job.start(1);
  for (int m = 0; m < 4; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
  expect_same_end(job, 4, hash, 2);
}

TEST_F(DivergedOverRails, WhereNobodyCanBeNamedAllGoBackAndNobodyIsLost) {
  const std::string hash = quiet_hash();
  Job job(tiny, "undecided", config_of(1), 2);
  job.start(0);
  job.start(1, {"step.weights_gathered", 3, Fate::kFlips, 0.01});
  for (int m = 0; m < 2; ++m) EXPECT_EQ(job.wait(m), 0) << job.log(m);
  expect_same_end(job, 2, hash, 2);
  // Copies of the steps before were checked in the same way.
  EXPECT_NE(job.log(0).find("checkpoint.loaded directory=" + tiny.root() + "/memory"),
            std::string::npos)
      << job.log(0);
}

}  // namespace
}  // namespace moraine
