// Surroundings: full and closed outputs, limits, signals, a second trainer, foreign folders.
//
// Fails if a log that can not be written, or that somebody else reads, changes what a command
// does; if two processes work in one folder; or if a limit of the system ends the program without
// its exit code.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <thread>

#include "base/file_lock.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "checkpoint/memory/folder.h"
#include "testing/places.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class Surroundings : public ::testing::Test {
 protected:
  Surroundings() {
    write_file(folder.file("run.toml"),
               tiny.toml("[train]\nslots = 2\nsequence = 32\nbatch_tokens = 128\nthreads = "
                         "1\ndtype = \"f32\"\nsteps = 40\n[checkpoint]\nevery_steps = 3\n"));
  }
  std::vector<std::string> arguments(const std::string& out, const std::string& set = "") const {
    std::vector<std::string> args = {
        "train",       "--config",  folder.file("run.toml"),      "--out",
        tiny.out(out), "--machine", tiny.root() + "/machine.json"};
    if (!set.empty()) args.insert(args.end(), {"--set", set});
    return args;
  }
  std::string line(const std::string& out) const {
    std::string text = "\"$M\"";
    for (const std::string& arg : arguments(out)) text += " '" + arg + "'";
    return text;
  }
  std::string hash_of(const std::string& out) const {
    const std::string hash =
        run_program(folder.path(), {"inspect", "--hash", tiny.out(out) + "/step-40"}).out;
    return hash.substr(0, hash.find('\n'));
  }
  std::string quiet_hash() const {
    const Ended quiet = run_program(folder.path(), arguments("quiet"));
    EXPECT_EQ(quiet.exit_code, 0) << quiet.err;
    return value_of(quiet.out, "hash");
  }
  int64_t lines_of_metrics(const std::string& out) const {
    int64_t good = 0;
    const std::string text = posix_file_system().read(tiny.out(out) + "/metrics.jsonl");
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      EXPECT_NE(end, std::string::npos);
      StepMetrics m;
      EXPECT_TRUE(parse_metrics(text.substr(begin, end - begin), &m));
      ++good;
      begin = end + 1;
    }
    return good;
  }
  void wait_for_first_step(const std::string& out) const {
    const std::string path = tiny.out(out) + "/metrics.jsonl";
    while (!posix_file_system().exists(path) || posix_file_system().file_bytes(path) == 0)
      std::this_thread::yield();
  }
  std::string golden(const std::string& name) const { return source_path("tests/golden/" + name); }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

TEST_F(Surroundings, ALogThatCanNotBeWrittenChangesNothing) {
  const std::string want = quiet_hash();
  const Ended full = run_shell(folder.path(), line("full") + " 2>/dev/full");
  EXPECT_EQ(full.exit_code, 0) << full.err;
  EXPECT_EQ(value_of(full.out, "hash"), want);
  // A reader that goes away.
  const Ended pipe = run_shell(folder.path(), "{ " + line("pipe") + "; echo $? >'" +
                                                  folder.file("code") + "'; } 2>&1 | head -n 1");
  EXPECT_EQ(posix_file_system().read(folder.file("code")), "13\n") << pipe.err;  // no result
  EXPECT_EQ(hash_of("pipe"), want);
}

TEST_F(Surroundings, AResultThatCanNotBeWrittenIsADiskError) {
  const std::string model = "'" + golden("native-tiny") + "'";
  for (const char* to : {" >/dev/full", " >&-"}) {
    const std::string t = to;
    for (const std::string& command :
         {"\"$M\" inspect " + model, "\"$M\" inspect --quick --json " + model,
          std::string("\"$M\" train --help"), std::string("\"$M\" --help"), line("printed")}) {
      const Ended ended = run_shell(folder.path(), command + t);
      EXPECT_EQ(ended.exit_code, 13) << command << t << "\n" << ended.err;
    }
  }
  EXPECT_NE(
      run_shell(folder.path(), "\"$M\" inspect " + model + " >/dev/full").err.find("write to "),
      std::string::npos);
}

// What is opened next must not take the place of a closed descriptor.
TEST_F(Surroundings, ClosedDescriptorsBecomeNobodysFile) {
  const std::string want = quiet_hash();
  for (const char* closed : {"2>&-", "<&- 2>&-", "<&- >&- 2>&-"}) {
    SCOPED_TRACE(closed);
    posix_file_system().remove_all(tiny.out("closed"));
    run_shell(folder.path(), line("closed") + " " + closed);
    EXPECT_EQ(lines_of_metrics("closed"), 40);
    EXPECT_EQ(hash_of("closed"), want);
  }
}

TEST_F(Surroundings, ASecondTrainerOfAFolderIsRefused) {
  // So long that it surely still runs.
  Program first(folder.path(), arguments("run", "train.steps=10000000"));
  wait_for_first_step("run");
  posix_file_system().make_directories(folder.file("second"));
  const Ended second = run_program(folder.file("second"), arguments("run", "train.seed=7"));
  EXPECT_EQ(second.exit_code, 10) << second.err;
  EXPECT_NE(second.err.find("process " + std::to_string(first.pid()) + " on "), std::string::npos)
      << second.err;
  EXPECT_NE(second.err.find(tiny.out("run")), std::string::npos) << second.err;
  first.send(SIGTERM);
  const Ended end = first.wait();
  EXPECT_EQ(end.exit_code, 18) << end.err.substr(end.err.size() -
                                                 std::min<size_t>(end.err.size(), 2000));
  EXPECT_FALSE(posix_file_system().exists(tiny.out("run") + "/" + kLockName));
  EXPECT_EQ(run_program(folder.path(), {"inspect", tiny.out("run")}).exit_code, 0);
}

TEST_F(Surroundings, AProgramThatOutlivesItsTerminalDoesNotStop) {
  const std::string want = quiet_hash();
  ::signal(SIGHUP, SIG_IGN);  // as nohup leaves it to its child
  Program program(folder.path(), arguments("nohup"));
  ::signal(SIGHUP, SIG_DFL);
  wait_for_first_step("nohup");
  program.send(SIGHUP);
  const Ended end = program.wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(value_of(end.out, "hash"), want);
}

TEST_F(Surroundings, AFileSizeLimitIsADiskError) {
  const Ended ended = run_shell(folder.path(), "ulimit -f 1\n" + line("small"));
  EXPECT_EQ(ended.exit_code, 13) << ended.err;
  EXPECT_NE(ended.err.find("File too large"), std::string::npos) << ended.err;
}

// Stacks of a thousand threads do not fit.
TEST_F(Surroundings, ThreadsThatCanNotStartAreAnError) {
  if (!kLimitsMemory) GTEST_SKIP() << "sanitizers reserve terabytes of address space";
  const Ended ended =
      run_program(folder.path(), arguments("threads", "train.threads=1000"), int64_t{2} << 30);
  EXPECT_EQ(ended.exit_code, 10) << ended.err;
  EXPECT_NE(ended.err.find("start a thread for the pool"), std::string::npos) << ended.err;
}

// A header of many tensors takes many times its bytes.
TEST_F(Surroundings, AFileThatNoMemoryHoldsIsNamed) {
  if (!kLimitsMemory) GTEST_SKIP() << "sanitizers reserve terabytes of address space";
  std::string header = "{";
  for (int i = 0; i < 400'000; ++i) {
    header += (i == 0 ? "" : ",") + fmt::format("\"a tensor of number {}\":", i) +
              R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  header += "}";
  const int64_t bytes = static_cast<int64_t>(header.size());
  const std::string path = folder.file("model/model.safetensors");
  posix_file_system().make_directories(folder.file("model"));
  write_file(path, std::string(reinterpret_cast<const char*>(&bytes), 8) + header);
  const Ended ended =
      run_program(folder.path(), {"inspect", folder.file("model")}, int64_t{400} << 20);
  EXPECT_EQ(ended.exit_code, 10) << ended.err;
  EXPECT_NE(ended.err.find("read " + path + ": out of memory"), std::string::npos) << ended.err;
}

TEST_F(Surroundings, AnInstructionSetOfAnotherMachineIsRefused) {
#if defined(__x86_64__)
  const char* other = "neon";
#else
  const char* other = "avx2";
#endif
  const Ended ended = run_shell(folder.path(), "MORAINE_ISA=" + std::string(other) +
                                                   " \"$M\" generate --tokens 5 --model '" +
                                                   golden("native-tiny") + "'");
  EXPECT_EQ(ended.exit_code, 10) << ended.err;
  EXPECT_NE(ended.err.find("this machine has"), std::string::npos) << ended.err;
}

// Whoever may make names in /dev/shm could have made this one first.
TEST_F(Surroundings, AForeignMemoryFolderIsRefusedAndTrainingGoesOn) {
  const std::string want = quiet_hash(), base = folder.file("shm");
  const std::string foreign = memory_folder_path(base, tiny.out("memory"));
  posix_file_system().make_directories(foreign);
  ASSERT_EQ(::chmod(foreign.c_str(), 0777), 0);  // not ours alone
  write_file(foreign + "/theirs", "x");
  std::vector<std::string> args = arguments("memory", "checkpoint.memory_every_steps=1");
  args.insert(args.end(), {"--set", "checkpoint.memory_folder=" + base});
  const Ended ended = run_program(folder.path(), args);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(value_of(ended.out, "hash"), want);
  EXPECT_NE(ended.err.find("memory.refused"), std::string::npos) << ended.err;
  EXPECT_TRUE(posix_file_system().exists(foreign + "/theirs"));
  EXPECT_TRUE(posix_file_system().exists(tiny.out("memory") + "/report.html"));
}

}  // namespace
}  // namespace moraine
