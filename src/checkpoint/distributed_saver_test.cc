// DistributedSaver on one rank: fails if a save blocks the caller, loses its result or its error, or a
// failed one touches the checkpoint before it. Several ranks: distributed_test.cc.
#include "checkpoint/distributed.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/test_folder.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/test_ranks.h"

namespace moraine {
namespace {

using testing::disk;
using testing::FaultyFileSystem;
using testing::run_ranks;
using testing::TestCheckpoint;
using testing::TestFolder;

// Holds every create() until open() is called.
class GatedFileSystem : public FaultyFileSystem {
 public:
  GatedFileSystem() : FaultyFileSystem(posix_file_system()) {}
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
    lock.unlock();
    return FaultyFileSystem::create(path);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// All of `tensors` by the one rank there is.
std::vector<TensorRows> whole(const std::vector<CheckpointTensor>& tensors) {
  std::vector<TensorRows> all;
  for (const CheckpointTensor& t : tensors)
    all.push_back({t.name, t.tensor, {t.tensor.dims, t.tensor.dims + t.tensor.rank}, 0});
  return all;
}

void start(DistributedSaver& saver, const TestCheckpoint& content) {
  saver.start(content.info, whole(content.tensors), content.files);
}

// Runs body with the communicator of one rank; no Error may leave it.
void alone(const std::function<void(Communicator&)>& body) {
  for (const auto& error : run_ranks(1, body)) EXPECT_FALSE(error.has_value()) << error->what();
}

int64_t newest_step(const std::string& root) {
  const auto found = newest_good(disk(), root, [](const std::string& dir, const std::string& why) {
    ADD_FAILURE() << dir << ": " << why;
  });
  return found ? found->info().step : -1;
}

TEST(DistributedSaverAlone, SavesWhileTheCallerGoesOn) {
  alone([&](Communicator& comm) {
    const TestFolder folder;
    GatedFileSystem fs;
    const TestCheckpoint content(4, 1);
    DistributedSaver saver(comm, fs, folder.path(), {});
    EXPECT_TRUE(saver.idle());
    EXPECT_EQ(saver.wait(), std::nullopt);
    start(saver, content);  // returns although the disk hangs
    EXPECT_TRUE(saver.busy());
    EXPECT_FALSE(saver.idle());
    EXPECT_EQ(saver.poll(), std::nullopt);
    EXPECT_EQ(newest_step(folder.path()), -1);
    fs.open();
    const std::optional<SaveResult> result = saver.wait();
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->step, 4);
    EXPECT_EQ(result->written.hash, content.hash());
    EXPECT_EQ(result->written.directory, folder.file("step-4"));
    EXPECT_EQ(result->warning, "");
    EXPECT_TRUE(saver.idle());
    EXPECT_EQ(saver.poll(), std::nullopt);  // once only
    EXPECT_EQ(newest_step(folder.path()), 4);
  });
}

TEST(DistributedSaverAlone, PollGivesEachResultOnce) {
  alone([&](Communicator& comm) {
    const TestFolder folder;
    FaultyFileSystem fs(disk());
    DistributedSaver saver(comm, fs, folder.path(), {.retention = {.keep = 2}, .checkpoint = {}});
    std::vector<int64_t> removed;
    for (int64_t step = 1; step <= 5; ++step) {
      const TestCheckpoint content(step, 1);
      start(saver, content);
      std::optional<SaveResult> result;
      while (!(result = saver.poll())) std::this_thread::yield();
      EXPECT_EQ(result->step, step);
      removed.insert(removed.end(), result->removed.begin(), result->removed.end());
    }
    EXPECT_EQ(removed, (std::vector<int64_t>{1, 2, 3}));
    EXPECT_EQ(list_checkpoints(disk(), folder.path()), (std::vector<int64_t>{4, 5}));
  });
}

TEST(DistributedSaverAlone, AFullDiskIsAnErrorAndTheNextSaveWorks) {
  alone([&](Communicator& comm) {
    const TestFolder folder;
    FaultyFileSystem fs(disk());
    DistributedSaver saver(comm, fs, folder.path(), {});
    const TestCheckpoint one(1, 1), two(2, 2), three(3, 3);
    start(saver, one);
    saver.wait();
    fs.disk_full(200);
    for (const bool by_wait : {true, false}) {
      start(saver, two);
      try {
        if (by_wait) saver.wait();
        while (!by_wait && !saver.poll()) std::this_thread::yield();
        ADD_FAILURE() << "no Error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kIo);
        EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos)
            << error.what();
      }
      EXPECT_TRUE(saver.idle());
      EXPECT_EQ(saver.wait(), std::nullopt);  // the Error comes once
      EXPECT_EQ(newest_step(folder.path()), 1);
    }
    fs.disk_full(-1);
    start(saver, three);
    EXPECT_EQ(saver.wait()->step, 3);
    EXPECT_EQ(newest_step(folder.path()), 3);
  });
}

TEST(DistributedSaverAlone, ADamagedMarkIsAWarningNotALostSave) {
  alone([&](Communicator& comm) {
    const TestFolder folder;
    FaultyFileSystem fs(disk());
    folder.write("last_good", "nonsense");
    DistributedSaver saver(comm, fs, folder.path(), {});
    const TestCheckpoint content(1, 1);
    start(saver, content);
    const std::optional<SaveResult> result = saver.wait();
    ASSERT_TRUE(result.has_value());
    EXPECT_NE(result->warning.find("last_good"), std::string::npos) << result->warning;
    EXPECT_EQ(newest_step(folder.path()), 1);
  });
}

TEST(DistributedSaverAlone, TheDestructorFinishesARunningSave) {
  const TestFolder folder;
  const TestCheckpoint content(1, 1);
  alone([&](Communicator& comm) {
    GatedFileSystem fs;
    DistributedSaver saver(comm, fs, folder.path(), {});
    start(saver, content);
    fs.open();
  });
  EXPECT_EQ(newest_step(folder.path()), 1);
}

// The memory belongs to the save until its result is taken, then to the caller again.
TEST(DistributedSaverAlone, OneBufferServesOneSaveAfterAnother) {
  alone([&](Communicator& comm) {
    const TestFolder folder;
    FaultyFileSystem fs(disk());
    DistributedSaver saver(comm, fs, folder.path(), {.retention = {.keep = 10}, .checkpoint = {}});
    std::vector<float> copy(1000);
    for (int64_t step = 1; step <= 8; ++step) {
      std::fill(copy.begin(), copy.end(), static_cast<float>(step));
      saver.start({.step = step, .tokens_seen = 0, .seed = 0, .values = {}, .config = ""},
                  whole({{"w", make_tensor(copy.data(), DType::kF32, {1000})}}), {});
      EXPECT_EQ(saver.wait()->step, step);
    }
    for (const int64_t step : list_checkpoints(disk(), folder.path())) {
      Checkpoint::open(disk(), checkpoint_path(disk(), folder.path(), step))
          .read("w", make_tensor(copy.data(), DType::kF32, {1000}));
      for (const float v : copy) ASSERT_EQ(v, static_cast<float>(step));
    }
  });
}

}  // namespace
}  // namespace moraine
