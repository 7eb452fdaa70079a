// Faults of distributed saves: fails if a rank that dies, a disk that fails on one rank, or a whole job
// killed at any write call leads to anything but the old checkpoint or the new one, whole; if a
// rank waits for ever; or if damage goes unseen or without the name of its file.
#include <gtest/gtest.h>

#include <set>

#include "base/test_folder.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/test_newest.h"
#include "checkpoint/test_ranks.h"

namespace moraine {
namespace {

using testing::deal;
using testing::Dealt;
using testing::disk;
using testing::FaultyFileSystem;
using testing::find_newest;
using testing::Found;
using testing::Killed;
using testing::kSmallFiles;
using testing::RankErrors;
using testing::run_ranks;
using testing::TestCheckpoint;
using testing::TestFolder;
using testing::write_dealt;

constexpr int kRanks = 3;
bool is(const Found& found, const TestCheckpoint& content) {
  return found.step == content.info.step && found.hash == content.hash();
}

class DistributedFaults : public ::testing::Test {
 protected:
  // Step 1, and if `again` the step 2 that the save replaces.
  void prepare(bool again) {
    folder_.clear();
    FaultyFileSystem fast(disk());
    old_.write(fast, root_, kSmallFiles);
    if (again) same_.write(fast, root_, kSmallFiles);
  }
  const TestCheckpoint& before(bool again) const { return again ? same_ : old_; }

  // Saves step 2 from all ranks, each with its own file system.
  RankErrors save(std::vector<std::unique_ptr<FaultyFileSystem>>& fs) {
    return run_ranks(kRanks, [&](Communicator& comm) {
      try {
        write_dealt(comm, *fs[static_cast<size_t>(comm.rank())], root_, {new_, dealt_},
                    kSmallFiles);
      } catch (const Killed&) {  // what the transport finds out about a dead process
        comm.transport().fail(fmt::format("rank {} died", comm.rank()));
      }
    });
  }
  static std::vector<std::unique_ptr<FaultyFileSystem>> disks() {
    std::vector<std::unique_ptr<FaultyFileSystem>> fs;
    for (int r = 0; r < kRanks; ++r) fs.push_back(std::make_unique<FaultyFileSystem>(disk()));
    return fs;
  }
  // Write calls of each rank in a save without faults.
  std::vector<int64_t> quiet_calls(bool again) {
    prepare(again);
    auto fs = disks();
    for (const auto& error : save(fs)) EXPECT_FALSE(error.has_value()) << error->what();
    EXPECT_TRUE(is(find_newest(disk(), root_), new_));
    std::vector<int64_t> calls;
    for (const auto& f : fs) calls.push_back(f->calls());
    return calls;
  }

  // The next save, by other ranks, works and leaves no rubble.
  void expect_next_save_works() {
    const Dealt dealt = deal(next_.tensors, 2, 9);
    FaultyFileSystem fast(disk());
    const RankErrors errors = run_ranks(2, [&](Communicator& comm) {
      write_dealt(comm, fast, root_, {next_, dealt}, kSmallFiles);
    });
    for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
    EXPECT_TRUE(is(find_newest(disk(), root_), next_));
    for (const std::string& name : disk().list(root_)) {
      EXPECT_EQ(name.find('.'), std::string::npos) << name;
    }
  }

  TestFolder folder_;
  const std::string root_ = folder_.file("run");
  const TestCheckpoint old_{1, 11}, same_{2, 22}, new_{2, 12}, next_{9, 19};
  const Dealt dealt_ = deal(new_.tensors, kRanks, 3);
};

TEST_F(DistributedFaults, ARankKilledAtAnyCallLeavesTheOldOrTheNewAndTheOthersKnow) {
  for (const bool again : {false, true}) {
    const std::vector<int64_t> calls = quiet_calls(again);
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_GE(calls[static_cast<size_t>(rank)], 4);
      for (int64_t call = 0; call < calls[static_cast<size_t>(rank)]; ++call) {
        SCOPED_TRACE(fmt::format("rank {} killed at call {}, again {}", rank, call, again));
        prepare(again);
        auto fs = disks();
        fs[static_cast<size_t>(rank)]->kill_loudly_at(call);
        const RankErrors errors = save(fs);
        for (int r = 0; r < kRanks; ++r) {
          const auto& error = errors[static_cast<size_t>(r)];
          ASSERT_EQ(error.has_value(), r != rank);
          if (r == rank) continue;
          EXPECT_EQ(error->code(), Code::kPeerLost);
          EXPECT_NE(std::string(error->what()).find(fmt::format("rank {} died", rank)),
                    std::string::npos)
              << error->what();
        }
        const Found found = find_newest(disk(), root_);
        for (const std::string& bad : found.bad) ADD_FAILURE() << bad;
        EXPECT_TRUE(is(found, before(again)) || (rank == 0 && is(found, new_)));
        expect_next_save_works();
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(DistributedFaults, AnErrorAtAnyCallOfOneRankIsTheSameErrorOnAll) {
  for (const bool again : {false, true}) {
    const std::vector<int64_t> calls = quiet_calls(again);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int64_t call = 0; call < calls[static_cast<size_t>(rank)]; ++call) {
        SCOPED_TRACE(fmt::format("rank {} fails at call {}, again {}", rank, call, again));
        prepare(again);
        auto fs = disks();
        fs[static_cast<size_t>(rank)]->throw_at(call);
        const RankErrors errors = save(fs);
        for (const auto& error : errors) {
          ASSERT_TRUE(error.has_value());
          EXPECT_EQ(error->code(), Code::kIo);
          EXPECT_STREQ(error->what(), errors[0]->what());
          const std::string message = error->what();
          EXPECT_NE(message.find("injected fault"), std::string::npos) << message;
          EXPECT_NE(message.find(root_), std::string::npos) << message;
          EXPECT_TRUE(rank == 0 ||
                      message.find(fmt::format("rank {}: ", rank)) != std::string::npos)
              << message;
        }
        const Found found = find_newest(disk(), root_);
        for (const std::string& bad : found.bad) ADD_FAILURE() << bad;
        EXPECT_TRUE(is(found, before(again)) || (rank == 0 && is(found, new_)));
        expect_next_save_works();
        if (HasFailure()) return;
      }
    }
  }
}

// The job is killed, or its machine loses power, when all ranks together have made n calls.
TEST_F(DistributedFaults, AJobKilledAtAnyCallLeavesTheOldOrTheNew) {
  for (const bool again : {false, true}) {
    int64_t total = 0;
    for (const int64_t calls : quiet_calls(again)) total += calls;
    for (int64_t call = 0; call < total; ++call) {
      for (const int cut : {0, 1, 2}) {  // no power cut, with names, without
        SCOPED_TRACE(fmt::format("killed at call {} of {}, power cut {}", call, total, cut));
        prepare(again);
        FaultyFileSystem fs(disk());
        fs.kill_at(call);
        run_ranks(kRanks, [&](Communicator& comm) {  // the dead do not see what they wrote
          write_dealt(comm, fs, root_, {new_, dealt_}, kSmallFiles);
        });
        EXPECT_TRUE(fs.fired());
        if (cut > 0) fs.power_cut(cut == 2);
        const Found found = find_newest(disk(), root_);
        for (const std::string& bad : found.bad) ADD_FAILURE() << bad;
        EXPECT_TRUE(is(found, before(again)) || is(found, new_)) << "step " << found.step;
        expect_next_save_works();
        if (HasFailure()) return;
      }
    }
  }
}

// What the saver has reported as saved survives a power cut at once.
TEST_F(DistributedFaults, WhatIsReportedIsDurable) {
  prepare(false);
  FaultyFileSystem fs(disk());
  const RankErrors errors = run_ranks(kRanks, [&](Communicator& comm) {
    write_dealt(comm, fs, root_, {new_, dealt_}, kSmallFiles);
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
  fs.power_cut(true);
  EXPECT_TRUE(is(find_newest(disk(), root_), new_));
}

TEST_F(DistributedFaults, AFullDiskOnAnyRankGivesItsRoomBack) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int64_t room = 0; room < 400; room += 37) {
      SCOPED_TRACE(fmt::format("rank {} has room for {}", rank, room));
      prepare(false);
      auto fs = disks();
      fs[static_cast<size_t>(rank)]->disk_full(room);
      const RankErrors errors = save(fs);
      if (!fs[static_cast<size_t>(rank)]->fired()) break;
      for (const auto& error : errors) {
        ASSERT_TRUE(error.has_value());
        EXPECT_EQ(error->code(), Code::kIo);
        const std::string message = error->what();
        EXPECT_NE(message.find("No space left"), std::string::npos) << message;
        EXPECT_NE(message.find("step-2.partial/"), std::string::npos) << message;
      }
      EXPECT_EQ(disk().list(root_), (std::vector<std::string>{"step-1"}));
      EXPECT_TRUE(is(find_newest(disk(), root_), old_));
    }
  }
}

TEST_F(DistributedFaults, DamageOfAnyFileIsSeenAndNamedAndTheOneBeforeIsUsed) {
  quiet_calls(false);
  const std::string newest = root_ + "/step-2";
  const auto put = [](const std::string& path, const std::string& content) {
    disk().create(path)->append(content.data(), static_cast<int64_t>(content.size()));
  };
  const auto expect_named = [&](const std::string& name, const char* what) {
    const Found found = find_newest(disk(), root_);
    ASSERT_EQ(found.step, 1) << name << ": " << what;
    ASSERT_EQ(found.bad.size(), 1u);
    ASSERT_NE(found.bad[0].find(name), std::string::npos) << what << ": " << found.bad[0];
  };
  std::set<std::string> writers;
  for (const std::string& name : disk().list(newest)) {
    const std::string path = join_path(newest, name);
    const std::string content = disk().read(path);
    for (size_t i = 0; i < content.size(); i += 3) {
      std::string bad = content;
      bad[i] = static_cast<char>(bad[i] ^ (i % 2 == 0 ? 0x01 : 0x20));
      put(path, bad);
      expect_named(name, "flipped");
      if (HasFatalFailure()) return;
    }
    put(path, content.substr(0, content.size() / 2));
    expect_named(name, "cut");
    disk().remove_all(path);
    expect_named(name, "missing");
    put(path, content);
    if (name.starts_with("data-")) writers.insert(name.substr(5, 5));
  }
  EXPECT_EQ(writers, (std::set<std::string>{"00000", "00001", "00002"}));
  EXPECT_TRUE(is(find_newest(disk(), root_), new_));
}

// The same cut of another step: the same headers, valid bytes.
TEST_F(DistributedFaults, AFileOfAnotherStepIsSeenAndNamed) {
  quiet_calls(false);
  const TestCheckpoint other(5, 77);
  const Dealt dealt = deal(other.tensors, kRanks, 3);
  const std::string elsewhere = folder_.file("elsewhere");
  run_ranks(kRanks, [&](Communicator& comm) {
    write_dealt(comm, disk(), elsewhere, {other, dealt}, kSmallFiles);
  });
  for (const std::string& name : disk().list(root_ + "/step-2")) {
    if (!name.starts_with("data-")) continue;
    const std::string path = root_ + "/step-2/" + name;
    const std::string content = disk().read(path);
    const std::string bad = disk().read(elsewhere + "/step-5/" + name);
    ASSERT_EQ(bad.size(), content.size());
    if (bad == content) continue;  // holds the empty tensor alone
    disk().create(path)->append(bad.data(), static_cast<int64_t>(bad.size()));
    const Found found = find_newest(disk(), root_);
    EXPECT_EQ(found.step, 1) << name;
    ASSERT_EQ(found.bad.size(), 1u);
    EXPECT_NE(found.bad[0].find(name), std::string::npos) << found.bad[0];
    disk().create(path)->append(content.data(), static_cast<int64_t>(content.size()));
  }
}

}  // namespace
}  // namespace moraine
