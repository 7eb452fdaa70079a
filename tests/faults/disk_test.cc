// Disk: damaged checkpoints, full disks and deaths at any write leave a run that ends in the right
// bits.
//
// Fails if a damaged checkpoint is trusted, a failed save stops or changes training, or a death
// between two writes loses more than the steps since the last checkpoint.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/fault_point.h"
#include "base/test_folder.h"
#include "base/test_text.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/history.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class Disk : public ::testing::Test {
 protected:
  // Eight steps, a checkpoint after each second.
  RunConfig config() const {
    return tiny.config(
        "[train]\nslots = 4\nsequence = 32\nbatch_tokens = 128\nthreads = 1\ndtype = "
        "\"f32\"\nsteps = 7\n"
        "[checkpoint]\nevery_steps = 2\nkeep = 3\n");
  }
  std::vector<std::string> files_of(const std::string& folder) const {
    return posix_file_system().list(folder);
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
  FileSystem& fs = posix_file_system();
};

// The last thing that a run writes, after everything that counts.
TEST_F(Disk, AReportThatCanNotBeWrittenTakesNothingFromACompleteRun) {
  const RunConfig c = config();
  const std::string want = tiny.train(c, tiny.out("whole")).hash(), out = tiny.out("run");
  fs.make_directories(out + "/report.html/in the way");
  const Outcome run = tiny.train(c, out);
  EXPECT_EQ(run.hash(), want);
  EXPECT_NE(run.log.find("report.failed code="), std::string::npos) << run.log;
  fs.remove_all(out + "/report.html");
  EXPECT_EQ(tiny.train(c, out).hash(), want);
  EXPECT_GT(fs.file_bytes(out + "/report.html"), 1000);
}

// A byte flipped, or the end cut off, in each file of the newest checkpoint.
TEST_F(Disk, DamagedNewestCheckpointFallsBack) {
  const RunConfig c = config();
  const std::string out = tiny.out("run");
  const Outcome whole = tiny.train(c, out);
  ASSERT_TRUE(whole.result) << whole.hash();
  const std::string newest = out + "/step-7";
  const std::vector<std::string> names = files_of(newest);
  ASSERT_GE(names.size(), 3u);
  for (const std::string& name : names) {
    for (const char* damage : {"flip", "cut", "empty", "gone"}) {
      SCOPED_TRACE(name + " " + damage);
      const std::string path = join_path(newest, name);
      std::string bytes = fs.read(path);
      const std::string how = damage;
      if (how == "flip") bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
      if (how == "cut") bytes.pop_back();
      if (how == "empty") bytes.clear();
      write_file(path, bytes);
      if (how == "gone") fs.remove_all(path);
      const Outcome again = tiny.train(c, out);
      EXPECT_EQ(again.hash(), whole.hash());
      EXPECT_NE(again.log.find("checkpoint.bad directory=" + newest), std::string::npos)
          << again.log;
      EXPECT_NE(again.log.find("checkpoint.loaded directory=" + out + "/step-6 "),
                std::string::npos)
          << again.log;
      // What the run ends with is whole.
      EXPECT_TRUE(Checkpoint::open(fs, newest).problems().empty());
      EXPECT_EQ(hash_hex(Checkpoint::open(fs, newest).hash()), whole.hash());
    }
  }
}

TEST_F(Disk, AllCheckpointsDamagedStops) {
  const RunConfig c = config();
  const std::string out = tiny.out("run");
  const Outcome whole = tiny.train(c, out);
  for (const int64_t step : list_checkpoints(fs, out))
    write_file(checkpoint_path(fs, out, step) + "/manifest.json", "{}");
  const Outcome again = tiny.train(c, out);  // starting over would hide that the work is lost
  ASSERT_TRUE(again.error);
  EXPECT_EQ(again.error->code(), Code::kCorrupt);
  EXPECT_NE(std::string(again.error->what()).find("none of them is whole"), std::string::npos);
  EXPECT_NE(again.log.find("checkpoint.bad"), std::string::npos);
}

TEST_F(Disk, DamagedMarkAndMetricsDoNotMatter) {
  const RunConfig c = config();
  const std::string out = tiny.out("run");
  const Outcome whole = tiny.train(c, out);
  remove_checkpoints_after(fs, out, 6);
  write_file(out + "/last_good", "nonsense");
  write_file(out + "/metrics.jsonl", "{\"step\": 1, \"lo");
  write_file(out + "/config.toml", "???");
  const Outcome again = tiny.train(c, out);
  EXPECT_EQ(again.hash(), whole.hash());
}

// Of such a run it says, too, which model it has.
TEST_F(Disk, ADamagedConfigOfARunThatBeganWithAModelDoesNotMatter) {
  const RunConfig c = tiny.config(tiny.rich("f32"));
  const std::string out = tiny.out("run"), want = tiny.train(c, out).hash();
  for (const char* damaged : {"???", "", "[model]\nhidden = 32\n"}) {
    SCOPED_TRACE(damaged);
    remove_checkpoints_after(fs, out, 6);
    write_file(out + "/config.toml", damaged);
    EXPECT_EQ(tiny.train(c, out).hash(), want);
  }
}

// No save has come since, to mark it anew: what the run ends with is whole all the same.
TEST_F(Disk, ADamagedMarkIsToldAtTheEnd) {
  RunConfig c = config();
  c.checkpoint.every_steps = 4;
  const std::string want = tiny.train(c, tiny.out("whole")).hash(), out = tiny.out("run");
  tiny.train_steps(c, out, 5);
  write_file(out + "/last_good", "nonsense");
  const Outcome again = tiny.train(c, out);
  EXPECT_EQ(again.hash(), want);
  EXPECT_EQ(count(again.log, "checkpoint.retention"), 1) << again.log;
}

// A save in the background fails when the last step is done, and there is room again: the last save is another one.
TEST_F(Disk, AFailedSaveBeforeTheLastOneEndsNothing) {
  const RunConfig c = config();
  const std::string want = tiny.train(c, tiny.out("whole")).hash(), out = tiny.out("run");
  std::atomic<bool> ends{false}, failed{false};
  set_fault_handler([&](const char* name) {
    if (std::string(name) == "end.begun") ends = true;
  });
  WatchedFileSystem full(fs, [&](const std::string& path) {
    if (path.find("/step-6.partial/") == std::string::npos || failed.exchange(true)) return;
    while (!ends) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    throw_error(Code::kIo, "write {}: No space left on device", path);
  });
  const Outcome run = tiny.train(full, c, out);
  set_fault_handler(nullptr);
  EXPECT_EQ(run.hash(), want);
  EXPECT_EQ(count(run.log, "checkpoint.failed"), 1) << run.log;
  EXPECT_EQ(list_checkpoints(fs, out).back(), 7);
}

// The disk fills up after any number of bytes: the run goes on and is right, or says what is wrong;
// once there is room it goes on to the right end.
TEST_F(Disk, FullDisk) {
  const RunConfig c = config();
  const Outcome whole = tiny.train(c, tiny.out("whole"));
  ASSERT_TRUE(whole.result);
  int failed_saves = 0, right = 0, stopped = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const std::string out = tiny.out("full-" + std::to_string(seed));
    const int64_t bytes = static_cast<int64_t>(random_below(3'500'000, 1, Stream::kTest, 3, seed));
    SCOPED_TRACE("disk of " + std::to_string(bytes) + " bytes");
    FaultyFileSystem faulty(fs);
    faulty.disk_full(bytes);
    const Outcome part = tiny.train(faulty, c, out);
    if (part.log.find("checkpoint.failed") != std::string::npos) ++failed_saves;
    if (part.result) {
      EXPECT_EQ(part.hash(), whole.hash());
      ++right;
    } else {
      EXPECT_EQ(part.error->code(), Code::kIo) << part.error->what();
      EXPECT_NE(std::string(part.error->what()).find("No space left"), std::string::npos)
          << part.error->what();
      ++stopped;
    }
    EXPECT_EQ(tiny.train(c, out).hash(), whole.hash());
    fs.remove_all(out);
  }
  EXPECT_GT(stopped, 0);
  EXPECT_GT(failed_saves + right, 0);
}

// No room for what only people read: the run goes on, and what there is room for is there.
TEST_F(Disk, MetricsThatCanNotBeWrittenStopNothing) {
  const RunConfig c = config();
  const Outcome whole = tiny.train(c, tiny.out("whole"));
  const std::string out = tiny.out("run");
  int lines = 0;
  WatchedFileSystem full(fs, [&](const std::string& path) {
    const bool events = path.find("tensorboard") != std::string::npos;
    if (!events && !path.ends_with("metrics.jsonl")) return;
    lines += !events;
    if (lines == 2 || lines == 3 || lines == 5)
      throw_error(Code::kIo, "write {}: No space left on device", path);
  });
  const Outcome part = tiny.train(full, c, out);
  ASSERT_TRUE(part.result) << part.hash();
  EXPECT_EQ(part.hash(), whole.hash());
  const auto times = [&](const std::string& word) { return count(part.log, word); };
  EXPECT_EQ(times("metrics.failed"), 2) << part.log;
  EXPECT_EQ(times("events.failed"), 1) << part.log;
  EXPECT_EQ(read_metrics(fs, out + "/metrics.jsonl").back().step, 7);
}

// One failed write, somewhere; the next one works again.
TEST_F(Disk, OneFailedWrite) {
  const RunConfig c = config();
  FaultyFileSystem counted(fs);
  const Outcome whole = tiny.train(counted, c, tiny.out("whole"));
  ASSERT_TRUE(whole.result) << whole.hash();
  const int64_t calls = counted.calls();
  int failed_saves = 0;
  for (int64_t i = 0; i < 30; ++i) {
    const int64_t call = i * calls / 30 + i % 3;
    SCOPED_TRACE("call " + std::to_string(call));
    const std::string out = tiny.out("fail-" + std::to_string(call));
    FaultyFileSystem faulty(fs);
    faulty.throw_at(call);
    const Outcome part = tiny.train(faulty, c, out);
    if (part.log.find("checkpoint.failed") != std::string::npos) ++failed_saves;
    if (part.result) {
      EXPECT_EQ(part.hash(), whole.hash());
    } else {
      EXPECT_NE(std::string(part.error->what()).find("injected fault"), std::string::npos)
          << part.error->what();
    }
    EXPECT_EQ(tiny.train(c, out).hash(), whole.hash());
    fs.remove_all(out);
  }
  EXPECT_GT(failed_saves, 0);
}

// The process dies at a write; what it does afterwards does not reach the disk. Then the power may
// fail too.
TEST_F(Disk, DeathAtAnyWrite) {
  const RunConfig c = config();
  FaultyFileSystem counted(fs);
  const Outcome whole = tiny.train(counted, c, tiny.out("whole"));
  ASSERT_TRUE(whole.result) << whole.hash();
  const int64_t calls = counted.calls(), stride = std::max<int64_t>(1, calls / 90);
  ASSERT_GT(calls, 100);
  int resumed = 0;
  int64_t deaths = 0;
  for (int64_t call = 0; call < calls; call += stride, ++deaths) {
    SCOPED_TRACE("death at call " + std::to_string(call));
    const std::string out = tiny.out("dead-" + std::to_string(call));
    {
      FaultyFileSystem faulty(fs);
      faulty.kill_at(call);
      tiny.train(faulty, c, out);  // its end is of no interest
      if (deaths % 3 != 0) faulty.power_cut(deaths % 3 == 1);
    }
    const Outcome again = tiny.train(c, out);
    EXPECT_EQ(again.hash(), whole.hash());
    resumed += again.log.find("checkpoint.loaded") != std::string::npos;
    fs.remove_all(out);
  }
  EXPECT_GT(resumed, 10);
}

}  // namespace
}  // namespace moraine
