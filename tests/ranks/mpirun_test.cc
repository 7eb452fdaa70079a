// Mpirun: the built program as ranks of mpirun gives the bits of one process, and ends in good
// order.
//
// Fails if a process needs what only threads share, if a signal to one rank is not heard by all, or
// if a killed rank leaves the others waiting or silent. Skipped without mpirun.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/test_folder.h"
#include "base/test_text.h"
#include "checkpoint/history.h"
#include "testing/places.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

std::string read_if_there(const std::string& path) {
  return posix_file_system().exists(path) ? posix_file_system().read(path) : "";
}

// `mpirun -n ranks moraine ...`, with its output in files beside `out`.
class MpiJob {
 public:
  MpiJob(int ranks, const std::string& arguments, const std::string& out,
         const std::string& environment = "")
      : out_(out) {
    const std::string command =
        "exec env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + environment +
        " timeout -k 5 120 mpirun --oversubscribe -n " + std::to_string(ranks) + " '" +
        moraine_program() + "' " + arguments + " >'" + out + ".stdout' 2>'" + out + ".stderr'";
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ~MpiJob() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool ended() {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WNOHANG | WNOWAIT | WEXITED) != 0 ||
           info.si_pid != 0;
  }
  std::string output() const { return read_if_there(out_ + ".stdout"); }
  std::string log() const { return read_if_there(out_ + ".stderr"); }

  // Until `steps` steps are in the metrics.
  void wait_for_steps(int64_t steps) {
    for (;;) {
      const std::string metrics = read_if_there(out_ + "/metrics.jsonl");
      if (std::count(metrics.begin(), metrics.end(), '\n') >= steps || ended()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the cores are the ranks'
    }
  }

  // The process that is rank `rank` of this job.
  pid_t process(int rank) const {
    const std::string wanted = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string folder = entry.path().string();
      if (contains(folder + "/cmdline", moraine_program()) && contains(folder + "/cmdline", out_) &&
          contains(folder + "/environ", wanted))
        return static_cast<pid_t>(std::stoi(entry.path().filename().string()));
    }
    return -1;
  }

 private:
  // A text that ends with a zero byte or the file.
  static bool contains(const std::string& path, const std::string& text) {
    std::ifstream file(path, std::ios::binary);
    std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    all += '\0';
    return all.find(text + '\0') != std::string::npos;
  }
  std::string out_;
  pid_t pid_ = -1;
};

class Mpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "mpirun is not installed: ranks as processes of Open MPI are NOT tested";
  }
  std::string toml(const std::string& parallel) {
    return tiny.toml(tiny.rich("bf16", 8)) + "[parallel]\ndeadline_seconds = 30.0\n" + parallel;
  }
  // Runs until somebody stops it.
  std::string endless() {
    return tiny.toml(
        "[train]\nslots = 4\nsequence = 32\nbatch_tokens = 256\nthreads = 1\nsteps = 1000000\n"
        "[checkpoint]\nevery_steps = 1000000\n[parallel]\nexpert = 2\ndeadline_seconds = 20.0\n");
  }
  // Arguments of a run with this config.
  std::string train(const std::string& config, const std::string& out) const {
    write_file(out + ".toml", config);
    return "train --config '" + out + ".toml' --machine '" + tiny.root() +
           "/machine.json' --out '" + out + "'";
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

std::string hash_of(const std::string& output) {
  const size_t at = output.find("hash=");
  return at == std::string::npos ? "no hash in: " + output : output.substr(at + 5, 32);
}

TEST_F(Mpirun, OneAnswer) {
  const RunConfig config = tiny.config(tiny.rich("bf16", 8));
  const std::string want = tiny.train(config, tiny.out("one")).hash();
  const auto on = [&](int ranks, const std::string& expert, const std::string& environment) {
    const std::string out =
        tiny.out("mpi" + std::to_string(ranks) + expert + environment.substr(0, 2));
    MpiJob job(ranks, train(toml("expert = " + expert + "\n"), out), out, environment);
    EXPECT_EQ(job.wait(), 0) << job.log();
    const std::string output = job.output();
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;  // rank 0 alone
    return hash_of(output);
  };
  for (const int ranks : {1, 2, 4}) EXPECT_EQ(on(ranks, "1", ""), want) << ranks;
  EXPECT_EQ(on(2, "2", ""), want);
  EXPECT_EQ(on(4, "2", ""), want);
  EXPECT_EQ(on(4, "4", ""), want);
  EXPECT_EQ(on(2, "2", "MORAINE_HOST_MEMORY=off"), want);
}

TEST_F(Mpirun, AnswersAndScoresAreThoseOfOneRank) {
  tiny.train(tiny.config(tiny.rich("bf16", 8)), tiny.out("run"));
  const std::string model = " --json --threads 1 --model '" + tiny.out("run") + "'";
  int number = 0;
  const std::string generate =
      "generate --tokens '5 9 2' --max-tokens 20 --temperature 0.9" + model;
  for (const std::string& arguments :
       {generate, generate + " --low-latency on", "eval score --tokens '5 9 2 77 31'" + model}) {
    const std::string out = tiny.out("answer" + std::to_string(++number));
    MpiJob one(1, arguments, out);
    EXPECT_EQ(one.wait(), 0) << one.log();
    MpiJob two(2, arguments,
               out + "-2");  // after it: launchers that start together trip over each other
    EXPECT_EQ(two.wait(), 0) << two.log();
    EXPECT_NE(two.output(), "");
    EXPECT_EQ(two.output(), one.output());
  }
}

TEST_F(Mpirun, SignalToOneRankSavesOnAll) {
  const std::string out = tiny.out("signal");
  MpiJob job(4, train(endless(), out), out);
  job.wait_for_steps(3);
  const pid_t rank = job.process(2);
  ASSERT_GT(rank, 0) << job.log();
  ::kill(rank, SIGTERM);
  EXPECT_EQ(job.wait(), exit_code(Code::kInterrupted)) << job.log();
  EXPECT_NE(job.log().find("signal after step"), std::string::npos) << job.log();
  const std::vector<int64_t> steps = list_checkpoints(posix_file_system(), out);
  ASSERT_EQ(steps.size(), 1u) << job.log();
  const std::string path = checkpoint_path(posix_file_system(), out, steps[0]);
  EXPECT_TRUE(Checkpoint::open(posix_file_system(), path).problems().empty());
}

TEST_F(Mpirun, KilledRankIsNamedByTheOthers) {
  const std::string out = tiny.out("killed");
  MpiJob job(4, train(endless(), out), out);
  job.wait_for_steps(3);
  const pid_t rank = job.process(2);
  ASSERT_GT(rank, 0) << job.log();
  ::kill(rank, SIGKILL);
  EXPECT_NE(job.wait(), 0);
  const std::string log = job.log();
  EXPECT_GE(count(log, "rank 2"), 3) << log;  // by each of the other three
}

}  // namespace
}  // namespace moraine
