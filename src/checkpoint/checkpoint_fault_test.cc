// Faults: fails if a kill, a power cut, an I/O error or a full disk at any write call, or a flipped
// or cut byte anywhere, leads to anything but the old checkpoint or the new one, whole.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/test_folder.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/test_newest.h"

namespace moraine {
namespace {

using testing::disk;
using testing::FaultyFileSystem;
using testing::find_newest;
using testing::Found;
using testing::kSmallFiles;
using testing::TestCheckpoint;
using testing::TestFolder;

void expect_found(const Found& found, const TestCheckpoint& want) {
  EXPECT_EQ(found.step, want.info.step);
  EXPECT_EQ(found.hash, want.hash());
  for (const std::string& bad : found.bad) ADD_FAILURE() << bad;
}

void expect_clean(const std::string& root) {
  for (const std::string& name : disk().list(root)) {
    EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
    EXPECT_EQ(name.find(".replaced"), std::string::npos) << name;
  }
}

// A change of a run folder that must be atomic: `before` prepares, `change` runs on the faulty
// disk.
struct Scenario {
  const char* name;
  std::function<void(FileSystem& fs, const std::string& root)> before;
  std::function<void(FileSystem& fs, const std::string& root)> change;
  const TestCheckpoint* old_one;  // newest before; nullptr: none
  const TestCheckpoint* new_one;  // newest after
};

class Faults : public ::testing::Test {
 protected:
  std::vector<Scenario> scenarios() {
    const auto save = [](const TestCheckpoint& c) {
      return [&c](FileSystem& fs, const std::string& root) { c.write(fs, root, kSmallFiles); };
    };
    const auto first = [this](FileSystem& fs, const std::string& root) {
      one_.write(fs, root, kSmallFiles);
    };
    const auto both = [this](FileSystem& fs, const std::string& root) {
      one_.write(fs, root, kSmallFiles);
      two_.write(fs, root, kSmallFiles);
    };
    return {
        {"first save", [](FileSystem&, const std::string&) {}, save(one_), nullptr, &one_},
        {"next save", first, save(two_), &one_, &two_},
        {"save again", both, save(two_again_), &two_, &two_again_},
        {"save and retain", both,
         [this](FileSystem& fs, const std::string& root) {
           three_.write(fs, root, kSmallFiles);
           apply_retention(fs, root, {.keep = 1});
         },
         &two_, &three_},
        {"roll back", both,
         [](FileSystem& fs, const std::string& root) { remove_checkpoints_after(fs, root, 1); },
         &two_, &one_},
    };
  }

  void prepare(const Scenario& s, const std::string& root) {
    FaultyFileSystem fast(disk());  // no real syncs
    s.before(fast, root);
  }

  // Runs the scenario once without a fault; returns its number of write calls.
  int64_t quiet_calls(const Scenario& s, const std::string& root) {
    prepare(s, root);
    FaultyFileSystem fs(disk());
    s.change(fs, root);
    expect_found(find_newest(disk(), root), *s.new_one);
    expect_clean(root);
    // What has been reported as saved survives a power cut at once.
    fs.power_cut(true);
    expect_found(find_newest(disk(), root), *s.new_one);
    return fs.calls();
  }

  // After a fault: old or new, whole; the next save works and leaves no rubble.
  void expect_old_or_new(const Scenario& s, const std::string& root) {
    const Found found = find_newest(disk(), root);
    for (const std::string& bad : found.bad) ADD_FAILURE() << bad;
    const bool is_new = found.step == s.new_one->info.step && found.hash == s.new_one->hash();
    const bool is_old = s.old_one == nullptr
                            ? found.step == -1
                            : found.step == s.old_one->info.step && found.hash == s.old_one->hash();
    EXPECT_TRUE(is_old || is_new) << "step " << found.step;
    FaultyFileSystem fast(disk());
    nine_.write(fast, root, kSmallFiles);
    expect_found(find_newest(disk(), root), nine_);
    expect_clean(root);
  }

  TestFolder folder_;
  const TestCheckpoint one_{1, 11}, two_{2, 12}, two_again_{2, 22}, three_{3, 13}, nine_{9, 19};
};

TEST_F(Faults, KilledAtAnyCallLeavesTheOldOrTheNew) {
  for (const Scenario& s : scenarios()) {
    folder_.clear();
    const int64_t calls = quiet_calls(s, folder_.file("run"));
    EXPECT_GE(calls, 3);
    for (int64_t call = 0; call < calls; ++call) {
      for (const int cut : {0, 1, 2}) {  // no power cut, with names, without
        SCOPED_TRACE(
            fmt::format("{}, killed at call {} of {}, power cut {}", s.name, call, calls, cut));
        folder_.clear();
        const std::string root = folder_.file("run");
        prepare(s, root);
        FaultyFileSystem fs(disk());
        fs.kill_at(call);
        try {
          s.change(fs, root);
        } catch (const Error&) {  // the dead do not see what they wrote
        }
        EXPECT_TRUE(fs.fired());
        if (cut > 0) fs.power_cut(cut == 2);
        expect_old_or_new(s, root);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Faults, AnErrorAtAnyCallIsReportedAndLeavesTheOldOrTheNew) {
  for (const Scenario& s : scenarios()) {
    folder_.clear();
    const int64_t calls = quiet_calls(s, folder_.file("run"));
    for (int64_t call = 0; call < calls; ++call) {
      SCOPED_TRACE(fmt::format("{}, error at call {} of {}", s.name, call, calls));
      folder_.clear();
      const std::string root = folder_.file("run");
      prepare(s, root);
      FaultyFileSystem fs(disk());
      fs.throw_at(call);
      try {
        s.change(fs, root);
        ADD_FAILURE() << "no Error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kIo);
        EXPECT_NE(std::string(error.what()).find("injected fault"), std::string::npos);
      }
      expect_old_or_new(s, root);
      if (HasFailure()) return;
    }
  }
}

TEST_F(Faults, AFullDiskIsReportedAndCleanedUp) {
  const std::string root = folder_.file("run");
  one_.write(disk(), root, kSmallFiles);
  const int64_t bytes = two_.write(disk(), root, kSmallFiles).bytes;
  remove_checkpoint(disk(), root, 2);
  for (int64_t room = 0; room < bytes; room += 41) {
    FaultyFileSystem fs(disk());
    fs.disk_full(room);
    try {
      two_.write(fs, root, kSmallFiles);
      ADD_FAILURE() << "no Error with room for " << room << " of " << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo);
      const std::string message = error.what();
      EXPECT_NE(message.find("step-2"), std::string::npos) << message;
      EXPECT_NE(message.find("No space left"), std::string::npos) << message;
      EXPECT_NE(message.find("the checkpoints before it stay"), std::string::npos) << message;
    }
    expect_clean(root);  // the room is given back
    expect_found(find_newest(disk(), root), one_);
  }
  FaultyFileSystem fs(disk());
  fs.disk_full(bytes);
  two_.write(fs, root, kSmallFiles);
  expect_found(find_newest(disk(), root), two_);
}

TEST_F(Faults, TheMarkOfTheLastGoodOneIsOldOrNew) {
  const std::string root = folder_.file("run");
  one_.write(disk(), root);
  two_.write(disk(), root);
  bool fired = true;
  for (int64_t call = 0; fired; ++call) {
    for (const int cut : {0, 1, 2}) {
      mark_last_good(disk(), root, 1);
      FaultyFileSystem fs(disk());
      fs.kill_at(call);
      mark_last_good(fs, root, 2);
      fired = fs.fired();
      if (cut > 0) fs.power_cut(cut == 2);
      const std::optional<int64_t> mark = last_good(disk(), root);
      EXPECT_TRUE(mark == 1 || mark == 2);
      EXPECT_TRUE(fired || mark == 2);
    }
  }
}

// Damages each file of the newest checkpoint at each byte.
TEST_F(Faults, EveryFlippedByteIsSeenAndNamedAndTheOneBeforeIsUsed) {
  const std::string root = folder_.file("run");
  one_.write(disk(), root);
  const std::string newest = two_.write(disk(), root, kSmallFiles).directory;
  int64_t flips = 0;
  for (const std::string& name : disk().list(newest)) {
    const std::string path = join_path(newest, name);
    const std::string content = disk().read(path);
    for (size_t i = 0; i < content.size(); ++i) {
      std::string bad = content;
      bad[i] = static_cast<char>(bad[i] ^ (i % 2 == 0 ? 0x01 : 0x20));
      disk().create(path)->append(bad.data(), static_cast<int64_t>(bad.size()));
      const Found found = find_newest(disk(), root);
      ++flips;
      ASSERT_EQ(found.step, 1) << name << " byte " << i;
      ASSERT_EQ(found.hash, one_.hash());
      ASSERT_EQ(found.bad.size(), 1u);
      ASSERT_NE(found.bad[0].find(newest), std::string::npos) << found.bad[0];
      ASSERT_NE(found.bad[0].find(name), std::string::npos) << found.bad[0];
    }
    disk().create(path)->append(content.data(), static_cast<int64_t>(content.size()));
  }
  EXPECT_GT(flips, 2000);
  expect_found(find_newest(disk(), root), two_);
}

TEST_F(Faults, EveryCutFileIsSeenAndNamed) {
  const std::string root = folder_.file("run");
  one_.write(disk(), root);
  const std::string newest = two_.write(disk(), root).directory;
  for (const std::string& name : disk().list(newest)) {
    const std::string path = join_path(newest, name);
    const std::string content = disk().read(path);
    for (size_t length = 0; length <= content.size() + 1; length += length < 64 ? 1 : 5) {
      if (length == content.size()) continue;
      const std::string bad = (content + "xx").substr(0, length);
      disk().create(path)->append(bad.data(), static_cast<int64_t>(bad.size()));
      const Found found = find_newest(disk(), root);
      ASSERT_EQ(found.step, 1) << name << " of " << length << " bytes";
      ASSERT_NE(found.bad.at(0).find(name), std::string::npos) << found.bad[0];
    }
    disk().remove_all(path);
    const Found found = find_newest(disk(), root);
    ASSERT_EQ(found.step, 1) << name << " missing";
    ASSERT_NE(found.bad.at(0).find(name), std::string::npos) << found.bad[0];
    disk().create(path)->append(content.data(), static_cast<int64_t>(content.size()));
  }
  expect_found(find_newest(disk(), root), two_);
}

TEST_F(Faults, DamageIsSeenWhenReadIfNotWhenOpened) {
  const std::string root = folder_.file("run");
  const std::string newest = two_.write(disk(), root).directory;
  const std::string path = newest + "/data-00000-00000.safetensors";
  std::string content = disk().read(path);
  content.back() = static_cast<char>(content.back() ^ 4);  // of "flags", the narrowest
  disk().create(path)->append(content.data(), static_cast<int64_t>(content.size()));
  const Checkpoint checkpoint = Checkpoint::open(disk(), newest, false);
  std::vector<uint8_t> bytes(1000);
  Tensor good = two_.tensors[0].tensor, bad = two_.tensors[5].tensor;
  good.data = bad.data = bytes.data();
  checkpoint.read("weights.embed", good);
  for (int again = 0; again < 2; ++again) {
    try {
      checkpoint.read("flags", bad);
      ADD_FAILURE() << "no Error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt);
      EXPECT_NE(std::string(error.what()).find("'flags'"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(checkpoint.hash(), Error);
  EXPECT_NO_THROW(checkpoint.hash("weights."));
  ASSERT_EQ(checkpoint.problems().size(), 1u);
}

// A manifest with a valid hash that claims more than the data files hold must not be followed
// there.
TEST_F(Faults, AManifestThatContradictsItsDataFilesIsRefused) {
  const std::string root = folder_.file("run");
  const std::string path = two_.write(disk(), root).directory + "/manifest.json";
  const std::string good = disk().read(path);
  const std::string flags = good.substr(good.find("  {\"name\": \"flags\""));
  const std::pair<std::string, std::string> lies[] = {
      {"\"weights.embed\", \"dtype\": \"f32\", \"shape\": [9, 4]",
       "\"weights.embed\", \"dtype\": \"f32\", \"shape\": [9, 4000000]"},
      {"\"weights.embed\", \"dtype\": \"f32\"", "\"weights.embed\", \"dtype\": \"i32\""},
      {"\"weights.embed\"", "\"weights.ember\""},
      {flags.substr(0, flags.find('\n') + 1), ""},
  };
  for (const auto& [from, to] : lies) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    const size_t key = text.rfind("\n\"manifest_hash\"");
    text.replace(text.size() - 36, 32,
                 hash_hex(hash_bytes(text.data(), static_cast<int64_t>(key))));
    disk().create(path)->append(text.data(), static_cast<int64_t>(text.size()));
    try {
      Checkpoint::open(disk(), root + "/step-2", false);
      ADD_FAILURE() << to;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt);
      EXPECT_NE(std::string(error.what()).find("data-00000-00000"), std::string::npos)
          << error.what();
    }
  }
}

TEST_F(Faults, APowerCutLeavesFoldersThatWereMadeToLast) {
  FaultyFileSystem fs(disk());
  fs.make_directories(folder_.file("a/b"));
  fs.power_cut(true);
  EXPECT_FALSE(disk().exists(folder_.file("a")));
  fs.make_durable_directories(folder_.file("a/b"));
  fs.make_durable_directories(folder_.file("a/b"));
  fs.power_cut(true);
  EXPECT_TRUE(disk().is_directory(folder_.file("a/b")));
}

// A file of another checkpoint has the same header, and valid bytes.
TEST_F(Faults, AFileOfAnotherStepIsSeen) {
  const std::string root = folder_.file("run");
  const std::string one = one_.write(disk(), root).directory;
  const std::string two = two_.write(disk(), root).directory;
  const std::string content = disk().read(one + "/data-00000-00000.safetensors");
  disk()
      .create(two + "/data-00000-00000.safetensors")
      ->append(content.data(), static_cast<int64_t>(content.size()));
  const Found found = find_newest(disk(), root);
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.bad.size(), 1u);
}

TEST_F(Faults, ARenamedCheckpointDoesNotCountAsAnotherStep) {
  const std::string root = folder_.file("run");
  disk().rename(one_.write(disk(), root).directory, root + "/step-7");
  const Found found = find_newest(disk(), root);
  EXPECT_EQ(found.step, -1);
  ASSERT_EQ(found.bad.size(), 1u);
  EXPECT_NE(found.bad[0].find("step 1"), std::string::npos) << found.bad[0];
}

}  // namespace
}  // namespace moraine
