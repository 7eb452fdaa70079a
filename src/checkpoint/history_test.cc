// History: fails if a checkpoint is kept, removed, listed or chosen against the rules.
#include "checkpoint/history.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/error.h"
#include "base/test_folder.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/test_checkpoint.h"

namespace moraine {
namespace {

using testing::disk;
using testing::TestCheckpoint;
using testing::TestFolder;
using Steps = std::vector<int64_t>;

class History : public ::testing::Test {
 protected:
  // Folders with the right names are all that listing and retention look at.
  void make(const Steps& steps) {
    for (const int64_t step : steps) {
      disk().make_directories(folder_.file("step-" + std::to_string(step)));
    }
  }
  Steps list() { return list_checkpoints(disk(), folder_.path()); }
  const std::string& root() const { return folder_.path(); }
  TestFolder folder_;
};

TEST_F(History, ListsCompleteOnesInOrderOfSteps) {
  EXPECT_TRUE(list_checkpoints(disk(), folder_.file("absent")).empty());
  make({100, 20, 3, 0});
  for (const char* name :
       {"step-", "step-x", "step-1x", "step-007", "step--1", "step-4.partial",
        "step-5.partial.partial", "estep-6", "step-99999999999999999999", "step- 8", "step-+9"}) {
    disk().make_directories(folder_.file(name));
  }
  folder_.write("step-11", "a file");
  EXPECT_EQ(list(), (Steps{0, 3, 20, 100}));
}

TEST_F(History, AReplacedOneCountsWhileThereIsNoOther) {
  disk().make_directories(folder_.file("step-8.replaced"));
  EXPECT_EQ(list(), (Steps{8}));
  EXPECT_EQ(checkpoint_path(disk(), root(), 8), folder_.file("step-8.replaced"));
  make({8});
  EXPECT_EQ(list(), (Steps{8}));
  EXPECT_EQ(checkpoint_path(disk(), root(), 8), folder_.file("step-8"));
  clear_rubble(disk(), root());
  EXPECT_EQ(disk().list(root()), (std::vector<std::string>{"step-8"}));
  disk().make_directories(folder_.file("step-8.replaced"));
  remove_checkpoint(disk(), root(), 8);
  EXPECT_TRUE(list().empty());
  disk().make_directories(folder_.file("step-9.replaced"));
  clear_rubble(disk(), root());
  EXPECT_EQ(disk().list(root()), (std::vector<std::string>{"step-9"}));
}

TEST_F(History, RetentionKeepsTheNewest) {
  make({1, 2, 3, 4, 5});
  EXPECT_EQ(apply_retention(disk(), root(), {.keep = 2}), (Steps{1, 2, 3}));
  EXPECT_EQ(list(), (Steps{4, 5}));
  EXPECT_TRUE(apply_retention(disk(), root(), {.keep = 2}).empty());
  EXPECT_TRUE(apply_retention(disk(), root(), {.keep = 99}).empty());
  EXPECT_TRUE(apply_retention(disk(), folder_.file("absent"), {}).empty());
}

TEST_F(History, RetentionKeepsPermanentProtectedAndGoodOnes) {
  make({100, 110, 120, 130, 150, 200, 210, 220});
  mark_last_good(disk(), root(), 120);
  EXPECT_EQ(apply_retention(disk(), root(), {.keep = 1, .permanent_every = 50}, 210),
            (Steps{110, 130}));
  EXPECT_EQ(list(), (Steps{100, 120, 150, 200, 210, 220}));
  // Without permanent ones, step 0 is like any other.
  make({0});
  EXPECT_EQ(apply_retention(disk(), root(), {.keep = 1}), (Steps{0, 100, 150, 200, 210}));
}

TEST_F(History, RetentionOfNothingIsRefused) {
  make({1});
  EXPECT_THROW(apply_retention(disk(), root(), {.keep = 0}), Error);
  EXPECT_THROW(apply_retention(disk(), root(), {.keep = 1, .permanent_every = -1}), Error);
  EXPECT_EQ(list(), (Steps{1}));
}

TEST_F(History, TheMarkNamesAStepThatExists) {
  EXPECT_EQ(last_good(disk(), root()), std::nullopt);
  EXPECT_THROW(mark_last_good(disk(), root(), 5), Error);
  make({5, 60});
  mark_last_good(disk(), root(), 5);
  EXPECT_EQ(last_good(disk(), root()), 5);
  mark_last_good(disk(), root(), 60);
  EXPECT_EQ(last_good(disk(), root()), 60);
}

TEST_F(History, ADamagedMarkIsNamedAndStopsRemoval) {
  make({1, 2, 3});
  mark_last_good(disk(), root(), 1);
  const std::string text = disk().read(folder_.file("last_good"));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string bad = text;
    bad[i] = static_cast<char>(bad[i] ^ 0x20);
    folder_.write("last_good", bad);
    try {
      last_good(disk(), root());
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt);
      EXPECT_NE(std::string(error.what()).find("last_good"), std::string::npos);
    }
    EXPECT_THROW(apply_retention(disk(), root(), {.keep = 1}), Error);
  }
  EXPECT_EQ(list(), (Steps{1, 2, 3}));
}

TEST_F(History, RollbackGivesUpWhatCameAfter) {
  make({1, 2, 3, 4});
  remove_checkpoints_after(disk(), root(), 2);
  EXPECT_EQ(list(), (Steps{1, 2}));
  remove_checkpoints_after(disk(), root(), 2);
  EXPECT_EQ(list(), (Steps{1, 2}));
}

TEST_F(History, NewestGoodOfTheWantedSteps) {
  for (const int64_t step : {1, 2, 3}) TestCheckpoint(step, 5).write(disk(), root());
  const auto none_bad = [](const std::string& dir, const std::string&) { ADD_FAILURE() << dir; };
  EXPECT_EQ(newest_good(disk(), root(), none_bad)->info().step, 3);
  const auto newest_until = [&](int64_t most) {
    return newest_good(disk(), root(), none_bad, [&](int64_t step) { return step <= most; });
  };
  EXPECT_EQ(newest_until(2)->info().step, 2);
  EXPECT_FALSE(newest_until(0).has_value());
  EXPECT_FALSE(newest_good(disk(), folder_.file("absent"), none_bad).has_value());
}

// An older program must not silently go back to an older checkpoint.
// A sector that can not be read any more, anywhere in the newest one.
class BadSector : public MappedFile {
 public:
  BadSector(std::unique_ptr<MappedFile> base, int64_t sector)
      : MappedFile(-1, no_memory(base->bytes()), base->bytes(), "none"),
        base_(std::move(base)),
        sector_(sector) {}
  void read_at(int64_t offset, int64_t bytes, void* out) const override {
    if (offset < sector_ + 512 && sector_ < offset + bytes)
      throw_error(Code::kIo, "read: Input/output error");
    base_->read_at(offset, bytes, out);
  }

 private:
  // Addresses that nobody may read: what is under test calls read_at.
  static const uint8_t* no_memory(int64_t bytes) {
    void* data =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MR_CHECK(data != MAP_FAILED);
    return static_cast<const uint8_t*>(data);
  }

  std::unique_ptr<MappedFile> base_;
  const int64_t sector_;
};

class BadDisk : public testing::FaultyFileSystem {
 public:
  explicit BadDisk(int64_t sector) : FaultyFileSystem(disk()), sector_(sector) {}
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    auto file = FaultyFileSystem::map(path);
    if (path.find("step-6") == std::string::npos) return file;
    last_bytes = file->bytes();
    return std::make_unique<BadSector>(std::move(file), sector_);
  }
  int64_t last_bytes = 0;

 private:
  const int64_t sector_;
};

TEST_F(History, AReadErrorInTheNewestFallsBack) {
  const TestCheckpoint three(3, 1), six(6, 2);
  three.write(disk(), root());
  six.write(disk(), root());
  int64_t bytes = 1;
  for (int64_t sector = 0; sector < bytes; sector += 512) {
    BadDisk fs(sector);
    std::string reason;
    const auto found =
        newest_good(fs, root(), [&](const std::string&, const std::string& why) { reason = why; });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->info().step, 3) << "sector at " << sector;
    EXPECT_NE(reason.find("Input/output error"), std::string::npos) << reason;
    bytes = fs.last_bytes;
  }
  EXPECT_GT(bytes, 512);
}

TEST_F(History, AnUnknownVersionIsNotSkipped) {
  TestCheckpoint(1, 5).write(disk(), root());
  const std::string path = TestCheckpoint(2, 5).write(disk(), root()).directory + "/manifest.json";
  std::string text = disk().read(path);
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  const size_t key = text.rfind("\n\"manifest_hash\"");
  text.replace(text.size() - 36, 32, hash_hex(hash_bytes(text.data(), static_cast<int64_t>(key))));
  disk().create(path)->append(text.data(), static_cast<int64_t>(text.size()));
  try {
    newest_good(disk(), root(), [](const std::string&, const std::string&) {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    EXPECT_NE(std::string(error.what()).find("version 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace moraine
