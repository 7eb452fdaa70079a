// MemoryCopy: fails if what is found in memory after a crash, or after the loss of a host, is not
// the whole newest copy or an older one; if another run's copy is taken; if there are more than two
// at once; or if a lack of room does anything but tell it once.
#include "checkpoint/memory/copy.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <filesystem>

#include <mutex>

#include "base/test_folder.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/memory/folder.h"
#include "checkpoint/test_ranks.h"

namespace moraine {
namespace {

using testing::deal;
using testing::Dealt;
using testing::disk;
using testing::FaultyFileSystem;
using testing::Killed;
using testing::kRankDeadline;
using testing::RankErrors;
using testing::TestCheckpoint;
using testing::TestFolder;

// Ranks of one process that say they are on several hosts.
class FakeHosts : public Transport {
 public:
  FakeHosts(Transport& base, std::vector<int> hosts) : base_(base), hosts_(std::move(hosts)) {}
  int rank() const override { return base_.rank(); }
  int size() const override { return base_.size(); }
  int host_of(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
  std::string name() const override { return base_.name(); }
  SendTicket send(int peer, int channel, uint64_t label, ConstBytes data, double s) override {
    return base_.send(peer, channel, label, data, s);
  }
  void wait_sent(const SendTicket& ticket, double s) override { base_.wait_sent(ticket, s); }
  void receive(int peer, int channel, uint64_t label, Bytes out, double s) override {
    base_.receive(peer, channel, label, out, s);
  }
  Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double s) override {
    return base_.open(peer, channel, label, bytes, s);
  }
  ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double s) override {
    return base_.next(message, bytes, staging, s);
  }
  void close(Incoming& message) override { base_.close(message); }
  void fail(const std::string& reason) override { base_.fail(reason); }

 private:
  Transport& base_;
  const std::vector<int> hosts_;
};

// A run on some hosts, each with a tmpfs folder of its own.
class MemoryCopies : public ::testing::Test {
 protected:
  using Body = std::function<void(Communicator&, MemoryCopy&)>;

  std::string base(int host) const { return folder_.file("shm" + std::to_string(host)); }
  std::string memory(int host) const { return memory_folder_path(base(host), root_); }

  // fs: of each rank; empty: the real one.
  RankErrors run(const std::vector<int>& hosts, const Body& body,
                 const std::vector<FileSystem*>& fs = {}) {
    const int ranks = static_cast<int>(hosts.size());
    RankErrors errors(hosts.size());
    for (const int host : hosts) disk().make_directories(base(host));
    run_thread_ranks(ranks, [&](Transport& real) {
      FakeHosts transport(real, hosts);
      Communicator comm(transport, all_ranks(transport), 0, "memory", kRankDeadline);
      const size_t rank = static_cast<size_t>(transport.rank());
      try {
        MemoryCopyOptions options = options_;
        options.base = base(hosts[rank]);
        MemoryCopy copy(comm, fs.empty() ? disk() : *fs[rank], root_, options);
        body(comm, copy);
      } catch (const Error& error) {
        errors[rank] = error;
      }
    });
    return errors;
  }

  SaveResult save(Communicator& comm, MemoryCopy& copy, const TestCheckpoint& content) {
    const Dealt dealt = deal(content.tensors, comm.size(), 3);
    copy.start(content.info, dealt[static_cast<size_t>(comm.rank())], content.files);
    return *copy.wait();
  }
  void save_all(const std::vector<int>& hosts, const TestCheckpoint& content) {
    const RankErrors errors = run(hosts, [&](Communicator& comm, MemoryCopy& copy) {
      const SaveResult result = save(comm, copy, content);
      EXPECT_EQ(result.warning, "");
      EXPECT_EQ(result.written.directory,
                copy.folder() + fmt::format("/step-{}", content.info.step));
      EXPECT_GT(result.written.bytes, 0);
    });
    for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
  }

  // What all ranks find; -1: none. Each rank reads every byte of what it is given.
  int64_t find(const std::vector<int>& hosts, const std::vector<const TestCheckpoint*>& known,
               const std::vector<FileSystem*>& fs = {}) {
    bad_.clear();
    std::vector<int64_t> found(hosts.size(), -2);
    std::mutex mutex;
    const RankErrors errors = run(
        hosts,
        [&](Communicator& comm, MemoryCopy& copy) {
          const auto directory = copy.newest([&](const std::string& dir, const std::string& why) {
            const std::lock_guard lock(mutex);
            bad_.push_back(dir + ": " + why);
          });
          int64_t& step = found[static_cast<size_t>(comm.rank())];
          step = -1;
          if (!directory) return;
          const Checkpoint checkpoint = Checkpoint::open(disk(), *directory);
          step = checkpoint.info().step;
          for (const TestCheckpoint* content : known) {
            if (content->info.step != step) continue;
            EXPECT_EQ(checkpoint.hash(), content->hash());
            EXPECT_EQ(checkpoint.file("tokenizer.json"), content->files[1].content);
            return;
          }
          ADD_FAILURE() << "unknown step " << step;
        },
        fs);
    for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
    for (const int64_t step : found) EXPECT_EQ(step, found[0]);
    return found[0];
  }

  TestFolder folder_;
  const std::string root_ = folder_.file("run");
  MemoryCopyOptions options_{.base = "",
                             .reserve_bytes = 0,
                             .checkpoint = {.max_file_bytes = 100},
                             .free_bytes = [](const std::string&) { return int64_t{1} << 40; }};
  std::vector<std::string> bad_;
  const TestCheckpoint one_{1, 11}, two_{2, 12}, three_{3, 13};
};

const std::vector<std::vector<int>> kPlaces = {
    {0}, {0, 0}, {0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 2}, {0, 0, 1, 1, 2, 2}};

TEST_F(MemoryCopies, TheNewestIsFoundOnAnyHostsAndOneStays) {
  for (const std::vector<int>& hosts : kPlaces) {
    SCOPED_TRACE(fmt::format("{} ranks, {} hosts", hosts.size(), hosts.back() + 1));
    folder_.clear();
    EXPECT_EQ(find(hosts, {}), -1);
    save_all(hosts, one_);
    EXPECT_EQ(find(hosts, {&one_}), 1);
    save_all(hosts, two_);
    for (int host = 0; host <= hosts.back(); ++host) {
      EXPECT_EQ(list_checkpoints(disk(), memory(host)), std::vector<int64_t>{2});
    }
    EXPECT_EQ(find(hosts, {&two_}), 2);
    EXPECT_TRUE(bad_.empty()) << bad_[0];
    EXPECT_EQ(find({0}, {&two_}), 2);  // now complete on each host: another mesh
  }
}

TEST_F(MemoryCopies, AnyOneHostMayBeLost) {
  for (const std::vector<int>& hosts : kPlaces) {
    for (int lost = 0; hosts.back() > 0 && lost <= hosts.back(); ++lost) {
      SCOPED_TRACE(fmt::format("{} ranks, host {} of {}", hosts.size(), lost, hosts.back() + 1));
      folder_.clear();
      save_all(hosts, one_);
      disk().remove_all(base(lost));
      EXPECT_EQ(find(hosts, {&one_}), 1);
      save_all(hosts, two_);
      EXPECT_EQ(find(hosts, {&two_}), 2);
    }
  }
}

TEST_F(MemoryCopies, WhatNoHostHasIsNotTaken) {
  save_all({0, 1, 2}, one_);
  disk().remove_all(base(0));
  disk().remove_all(base(1));
  EXPECT_EQ(find({0, 1, 2}, {}), -1);
}

TEST_F(MemoryCopies, AFlippedByteIsNamedAndFetchedFromTheOtherHostOrTheCopyIsNotUsed) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, {0, 1}}) {
    folder_.clear();
    save_all(hosts, one_);
    const std::string directory = memory(0) + "/step-1";
    const std::vector<std::string> names = disk().list(directory);
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      const std::string path = join_path(directory, name);
      const std::string content = disk().read(path);
      // In the middle; and in a header's metadata, which nobody needs.
      for (const size_t at : {content.size() / 2, content.find("\"pt\"") + 1}) {
        if (at >= content.size() || at == 0) continue;
        std::string bad = content;
        bad[at] = static_cast<char>(bad[at] ^ 1);
        disk().create(path)->append(bad.data(), static_cast<int64_t>(bad.size()));
        EXPECT_EQ(find(hosts, {&one_}), hosts[1] == 0 ? -1 : 1);
        ASSERT_FALSE(bad_.empty());
        EXPECT_NE(bad_[0].find(name), std::string::npos) << bad_[0];
      }
      disk().create(path)->append(content.data(), static_cast<int64_t>(content.size()));
    }
    EXPECT_EQ(find(hosts, {&one_}), 1);
  }
}

// Saves steps 1 and 2, the second with one rank killed at each of its write calls.
TEST_F(MemoryCopies, ARankKilledAtAnyCallLeavesTheOldOrTheNew) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 0}, {0, 0, 1}}) {
    for (size_t victim = 0; victim < hosts.size(); ++victim) {
      bool fired = true;
      for (int64_t call = 0; fired; ++call) {
        SCOPED_TRACE(fmt::format("rank {} killed at call {}", victim, call));
        folder_.clear();
        save_all(hosts, one_);
        FaultyFileSystem faulty(disk());
        faulty.kill_loudly_at(call);
        std::vector<FileSystem*> fs(hosts.size(), &disk());
        fs[victim] = &faulty;
        const Dealt dealt = deal(two_.tensors, static_cast<int>(hosts.size()), 3);
        // Without the thread of MemoryCopy: nothing catches Killed there, as nothing should.
        const RankErrors errors = run(
            hosts,
            [&](Communicator& comm, MemoryCopy& copy) {
              try {
                copy.save_now(two_.info, dealt[static_cast<size_t>(comm.rank())], two_.files);
              } catch (const Killed&) {
                comm.transport().fail(fmt::format("rank {} died", victim));
              }
            },
            fs);
        fired = faulty.fired();
        for (size_t r = 0; fired && r < hosts.size(); ++r) {
          if (r == victim || !errors[r].has_value()) continue;
          EXPECT_EQ(errors[r]->code(), Code::kPeerLost) << errors[r]->what();
        }
        const int64_t step = find(hosts, {&one_, &two_});
        EXPECT_TRUE(step == 2 || (fired && step == 1)) << "step " << step;
        save_all(hosts, three_);
        EXPECT_EQ(find(hosts, {&three_}), 3);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(MemoryCopies, AnErrorOnOneRankIsAWarningOnAllAndTheNextCopyWorks) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 0}, {0, 0, 1}}) {
    for (size_t victim = 0; victim < hosts.size(); ++victim) {
      bool fired = true;
      for (int64_t call = 0; fired; ++call) {
        SCOPED_TRACE(fmt::format("rank {} fails at call {}", victim, call));
        folder_.clear();
        save_all(hosts, one_);
        FaultyFileSystem faulty(disk());
        std::vector<FileSystem*> fs(hosts.size(), &disk());
        fs[victim] = &faulty;
        std::vector<std::string> warnings(hosts.size());
        faulty.throw_at(call);
        const RankErrors errors = run(
            hosts,
            [&](Communicator& comm, MemoryCopy& copy) {
              warnings[static_cast<size_t>(comm.rank())] = save(comm, copy, two_).warning;
            },
            fs);
        for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
        fired = faulty.fired();
        for (const std::string& warning : warnings) {
          EXPECT_EQ(warning.empty(), warnings[0].empty());
          if (warning.empty()) continue;
          EXPECT_NE(warning.find("injected fault"), std::string::npos) << warning;
          EXPECT_NE(warning.find("training goes on"), std::string::npos) << warning;
        }
        // Nobody was warned: then it is whole, and may lose the host without the fault.
        if (warnings[0].empty() && hosts.back() > 0) disk().remove_all(base(1 - hosts[victim]));
        const int64_t step = find(hosts, {&one_, &two_});
        EXPECT_TRUE(step == 2 || (step == 1 && !warnings[0].empty())) << step;
        save_all(hosts, three_);
        EXPECT_EQ(find(hosts, {&three_}), 3);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(MemoryCopies, ALackOfRoomIsToldOnceAndTheOldCopyStays) {
  const std::vector<int> hosts = {0, 0, 1};
  save_all(hosts, one_);
  int64_t room = 1000;
  options_.reserve_bytes = 50'000;
  // Host 1 is the one without room.
  options_.free_bytes = [&](const std::string& base) {
    return base.ends_with("1") ? room : int64_t{1} << 40;
  };
  const RankErrors errors = run(hosts, [&](Communicator& comm, MemoryCopy& copy) {
    const SaveResult first = save(comm, copy, two_);
    EXPECT_EQ(first.written.directory, "");
    EXPECT_NE(first.warning.find("1000 bytes are free on the host of rank 2"), std::string::npos)
        << first.warning;
    EXPECT_NE(first.warning.find("training goes on without the copy"), std::string::npos);
    EXPECT_EQ(save(comm, copy, two_).warning, "");  // once
    EXPECT_EQ(list_checkpoints(disk(), copy.folder()), std::vector<int64_t>{1});
    EXPECT_FALSE(disk().exists(copy.folder() + "/step-2.partial"));
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
  EXPECT_EQ(find(hosts, {&one_}), 1);
  // It asks for the tensors, a MiB of headers and the reserve, to the byte.
  room = options_.reserve_bytes + (int64_t{1} << 20);
  for (const CheckpointTensor& t : two_.tensors) room += t.tensor.bytes();
  save_all(hosts, two_);
  --room;
  run(hosts, [&](Communicator& comm, MemoryCopy& copy) {
    EXPECT_NE(save(comm, copy, three_).warning, "");
  });
  EXPECT_EQ(find(hosts, {&two_}), 2);
}

TEST_F(MemoryCopies, AnErrorIsToldOnceUntilACopySucceeds) {
  const std::string memory_name = memory(0).substr(folder_.path().size() + 1);
  disk().make_directories(base(0));
  folder_.write(memory_name, "a file where the folder would be");
  const RankErrors errors = run({0, 0}, [&](Communicator& comm, MemoryCopy& copy) {
    EXPECT_NE(save(comm, copy, one_).warning.find("training goes on"), std::string::npos);
    EXPECT_EQ(save(comm, copy, two_).warning, "");
    if (comm.rank() == 0) disk().remove_all(memory(0));
    EXPECT_NE(save(comm, copy, two_).written.directory, "");
    if (comm.rank() == 0) {
      disk().remove_all(memory(0));
      folder_.write(memory_name, "again");
    }
    EXPECT_NE(save(comm, copy, three_).warning, "");
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
}

TEST_F(MemoryCopies, AnotherRunOfTheSamePathIsNotTaken) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, {0, 1}}) {
    folder_.clear();
    save_all(hosts, two_);
    disk().remove_all(root_);  // the run folder is gone, and a new one begins
    EXPECT_EQ(find(hosts, {}), -1);
    make_memory_id(disk(), root_);
    EXPECT_EQ(find(hosts, {}), -1);
    save_all(hosts, one_);
    EXPECT_EQ(find(hosts, {&one_}), 1);
  }
  // Another path is another folder, however it is spelled.
  EXPECT_NE(memory_folder_path("/x", "/a/run"), memory_folder_path("/x", "/a/run2"));
  EXPECT_EQ(memory_folder_path("/x", "/a/b/../run/"), memory_folder_path("/x", "/a/run"));
  // A relative path names the same folder before and after it exists.
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(memory_folder_path("/x", "no-such-run"),
            memory_folder_path("/x", here + "/no-such-run"));
}

TEST_F(MemoryCopies, ACopyAfterTheStepThatTheRunWentBackToIsGivenUp) {
  save_all({0, 0}, three_);
  save_all({0, 0}, two_);
  EXPECT_EQ(find({0, 0}, {&two_}), 2);
  run({0, 0}, [](Communicator&, MemoryCopy& copy) { copy.remove_after(1); });
  EXPECT_EQ(find({0, 0}, {}), -1);
}

TEST_F(MemoryCopies, TheFolderIsThisUsersAloneAndGoesAtTheEnd) {
  save_all({0, 1}, one_);
  struct stat s {};
  ASSERT_EQ(::stat(memory(0).c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700u);
  run({0, 1}, [](Communicator&, MemoryCopy& copy) { copy.remove(); });
  EXPECT_TRUE(disk().list(base(0)).empty());
  EXPECT_TRUE(disk().list(base(1)).empty());

  // One that others may enter is neither written nor believed.
  ASSERT_EQ(::mkdir(memory(0).c_str(), 0700), 0);
  ASSERT_EQ(::chmod(memory(0).c_str(), 0777), 0);
  run({0, 1}, [&](Communicator& comm, MemoryCopy& copy) {
    const std::string warning = save(comm, copy, one_).warning;
    EXPECT_NE(warning.find(memory(0)), std::string::npos) << warning;
    EXPECT_NE(warning.find("this user alone"), std::string::npos) << warning;
  });
  EXPECT_TRUE(disk().list(memory(0)).empty());
  EXPECT_EQ(find({0, 1}, {}), -1);
  // Nor removed: that is told, and ends nothing.
  run({0, 1}, [&](Communicator&, MemoryCopy& copy) {
    for (const std::string& warning : {copy.remove(), copy.remove_after(0)})
      EXPECT_NE(warning.find("this user alone"), std::string::npos) << warning;
  });
  EXPECT_TRUE(disk().exists(memory(0)));
  EXPECT_FALSE(disk().exists(memory(1)));
}

// A file that cannot be read when it is sent to another host.
TEST_F(MemoryCopies, WhatCanNotBeReadIsNotPassedOn) {
  class Unreadable : public FaultyFileSystem {
   public:
    explicit Unreadable(std::string end) : FaultyFileSystem(disk()), end_(std::move(end)) {}
    std::unique_ptr<MappedFile> map(const std::string& path) override {
      if (path.ends_with(end_)) throw_error(Code::kIo, "map {}: injected fault", path);
      return FaultyFileSystem::map(path);
    }

   private:
    const std::string end_;
  };
  Unreadable data("data-00000-00000.safetensors"), carried("tokenizer.json");
  run({0, 1},
      [&](Communicator& comm, MemoryCopy& copy) {
        const std::string warning = save(comm, copy, one_).warning;
        EXPECT_NE(warning.find("data-00000-00000.safetensors: injected fault"), std::string::npos)
            << warning;
      },
      {&data, &disk()});
  EXPECT_EQ(find({0, 1}, {}), -1);
  save_all({0, 1}, one_);
  disk().remove_all(base(1));
  EXPECT_EQ(find({0, 1}, {}, {&carried, &disk()}), -1);
  ASSERT_FALSE(bad_.empty());
  EXPECT_NE(bad_[0].find("tokenizer.json: injected fault"), std::string::npos) << bad_[0];
  EXPECT_EQ(find({0, 1}, {&one_}), 1);
}

// A rank of a job that has ended comes to write when its folder is gone.
TEST_F(MemoryCopies, ALateRankMakesNoFolder) {
  class Late : public FaultyFileSystem {
   public:
    Late(std::string base) : FaultyFileSystem(disk()), base_(std::move(base)) {}
    std::unique_ptr<WritableFile> create(const std::string& path) override {
      disk().remove_all(base_);
      return FaultyFileSystem::create(path);
    }

   private:
    const std::string base_;
  };
  Late late(base(0));
  const RankErrors errors = run({0, 0},
                                [&](Communicator& comm, MemoryCopy& copy) {
                                  const std::string warning = save(comm, copy, one_).warning;
                                  EXPECT_NE(warning.find("No such file"), std::string::npos)
                                      << warning;
                                },
                                {&disk(), &late});
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
  EXPECT_FALSE(disk().exists(memory(0)));
}

TEST_F(MemoryCopies, TheFreeMemoryIsThatOfTheFileSystemOrLess) {
  const int64_t free = free_memory_bytes(folder_.path());
  EXPECT_GT(free, 0);
  EXPECT_LT(free, int64_t{1} << 50);
  EXPECT_THROW(free_memory_bytes(folder_.file("absent")), Error);
}

}  // namespace
}  // namespace moraine
