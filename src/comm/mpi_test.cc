// Ranks started by mpirun: this program starts itself as a job, over shared memory and over plain
// messages. Breaks if a byte is wrong, a fault is not named by every rank, or a job hangs.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/test_text.h"
#include "comm/mpi_transport.h"
#include "comm/test_stopped.h"
#include "comm/test_window.h"
#include "comm/test_work.h"

namespace moraine {
namespace {

// What a rank does -------------------------------------------------------------------------------

// What rank 1 does instead of its part of the third round.
void misbehave(const std::string& what, Communicator& comm) {
  if (what == "killed") raise(SIGKILL);
  if (what == "stopped") raise(SIGSTOP);
  if (what == "error") throw_error(Code::kDiverged, "loss is no number");
  if (what == "other") barrier(comm);
}

// Rank 0 waits for rank 1, and both are stopped for longer than its deadline, by a process that is none of the job's.
void stop_both(Transport& t) {
  constexpr int kChannel = 1, kLabel = 7;
  int64_t word = getpid();
  const auto bytes = std::as_writable_bytes(std::span(&word, 1));
  if (t.rank() == 0) {
    t.wait_sent(t.send(1, kChannel, kLabel, bytes, kTestDeadline), kTestDeadline);
    return t.receive(1, kChannel, kLabel, bytes, kStoppedDeadline);
  }
  t.receive(0, kChannel, kLabel, bytes, kTestDeadline);
  const pid_t other = static_cast<pid_t>(word), me = getpid(), helper = fork();
  if (helper == 0) {
    StopBoard board;
    testing::stop_and_go_on(board, {other, me}, 0);
    _exit(0);
  }
  waitpid(helper, nullptr, 0);
  t.wait_sent(t.send(0, kChannel, kLabel, bytes, kTestDeadline), kTestDeadline);
}

void rank_body(const std::string& what, Transport& t) {
  Communicator comm = world(t, 0, what == "stopped" ? 1.0 : kTestDeadline);
  barrier(comm);
  if (what == "stopped together") {
    stop_both(t);
    std::cerr << "rank went on\n";
    return;
  }
  if (what == "windows") {
    pass_around(t);
    add_and_swap(t);
    std::cerr << "rank done with windows\n";
    return;
  }
  if (what == "ordinary") {
    for (const int64_t count : {0, 1, 100, 5000, 1000003}) work(comm, {count});
    stream_around(t);
    const auto names = gather(comm, 0, t.name());
    for (const std::string& name : names) std::cerr << "rank done over " << name << "\n";
    return;
  }
  for (int round = 0; round < 1000000; ++round) {
    if (round == 3 && t.rank() == 1) misbehave(what, comm);
    work(comm, {30000});
  }
}

// Not a test: a rank of the jobs below.
TEST(MpiRank, DISABLED_Body) {
  const char* what = std::getenv("MORAINE_TEST_BODY");
  if (what == nullptr || !started_by_mpi()) GTEST_SKIP() << "only under mpirun";
  // As in `moraine train`, the launcher's SIGTERM ends nobody at once: it kills a little later.
  signal(SIGTERM, SIG_IGN);
  int code = 0;
  // To a file: what the launcher has not passed on when it ends a job is lost.
  const auto say = [&](int rank, const Error& e) {
    FILE* messages = std::fopen(std::getenv("MORAINE_TEST_MESSAGES"), "a");
    std::fprintf(messages, "<rank %d: %s>\n", rank, e.what());
    std::fclose(messages);
    code = exit_code(e.code());
  };
  try {
    const auto transport = open_mpi_transport();
    try {
      rank_body(what, *transport);
    } catch (const Error& e) {
      say(transport->rank(), e);  // before the others are told: Open MPI 5 ends a job without grace
      transport->fail(e.what());
      throw;
    }
  } catch (const Error& e) {
    if (code == 0) say(-1, e);
  }
  std::exit(code);
}

// The jobs ---------------------------------------------------------------------------------------

struct MpiJob {
  int exit_code = -1;
  std::string output;
};

// Open MPI 5 ends the others of a job as soon as one has failed; 4 gives them time to say why they end, which is how
// many of three must do so.
int least_told() {
  static const bool grace = std::system("mpirun --version | grep -q ') 4[.]'") == 0;
  return grace ? 3 : 1;
}

bool no_mpirun() { return std::system("command -v mpirun >/dev/null 2>&1") != 0; }

MpiJob run_job(int ranks, const std::string& body, bool host_memory) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string messages =
      std::filesystem::temp_directory_path() / ("moraine-mpi-messages-" + std::to_string(getpid()));
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm_rsh_agent= "
      "OMPI_MCA_odls_base_sigkill_timeout=4 "
      "MORAINE_HOST_MEMORY=" +
      std::string(host_memory ? "on" : "off") + " MORAINE_TEST_BODY='" + body +
      "' MORAINE_TEST_MESSAGES='" + messages + "'" + " timeout -k 5 60 mpirun --oversubscribe -n " +
      std::to_string(ranks) + " '" + self +
      "' --gtest_also_run_disabled_tests --gtest_filter=MpiRank.DISABLED_Body 2>&1";
  MpiJob job;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return job;
  std::array<char, 4096> buffer;
  size_t n;
  while ((n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0)
    job.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) job.exit_code = WEXITSTATUS(status);
  std::ifstream file(messages);
  job.output.append(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove(messages);
  return job;
}

// The message of one rank, or "" if it said nothing.
std::string message_of(const MpiJob& job, int rank) {
  const size_t begin = job.output.find("<rank " + std::to_string(rank) + ":");
  if (begin == std::string::npos) return "";
  return job.output.substr(begin, job.output.find(">\n", begin) - begin);
}

#define NEEDS_MPIRUN()                                                   \
  if (no_mpirun())                                                       \
  GTEST_SKIP() << "NOT TESTED: mpirun is not installed (Debian package " \
                  "openmpi-bin)"

TEST(Mpi, CollectivesAreRightOverSharedMemory) {
  NEEDS_MPIRUN();
  for (const int ranks : {1, 2, 4}) {
    const MpiJob job = run_job(ranks, "ordinary", true);
    EXPECT_EQ(job.exit_code, 0) << job.output;
    const std::string name = ranks == 1 ? "mpi" : "mpi (shared memory)";
    EXPECT_EQ(testing::count(job.output, "rank done over " + name + "\n"), ranks) << job.output;
  }
}

TEST(Mpi, CollectivesAreRightOverPlainMessages) {
  NEEDS_MPIRUN();
  for (const int ranks : {2, 3, 4}) {
    const MpiJob job = run_job(ranks, "ordinary", false);
    EXPECT_EQ(job.exit_code, 0) << job.output;
    EXPECT_EQ(testing::count(job.output, "rank done over mpi\n"), ranks) << job.output;
  }
}

TEST(Mpi, WindowsAreRightWithAndWithoutSharedMemory) {
  NEEDS_MPIRUN();
  for (const bool host_memory : {true, false}) {
    const MpiJob job = run_job(3, "windows", host_memory);
    EXPECT_EQ(job.exit_code, 0) << job.output;
    EXPECT_EQ(testing::count(job.output, "rank done with windows\n"), 3) << job.output;
  }
}

TEST(Mpi, AnErrorOfOneRankIsToldByAll) {
  NEEDS_MPIRUN();
  for (const bool host_memory : {true, false}) {
    const MpiJob job = run_job(4, "error", host_memory);
    EXPECT_NE(job.exit_code, 0);
    EXPECT_NE(message_of(job, 1).find("loss is no number"), std::string::npos) << job.output;
    EXPECT_GE(testing::count(job.output, "because of rank 1: loss is no number>"), least_told())
        << job.output;
  }
}

TEST(Mpi, RanksAtDifferentOperationsEndWithAMessageOfEach) {
  NEEDS_MPIRUN();
  for (const bool host_memory : {true, false}) {
    const MpiJob job = run_job(2, "other", host_memory);
    EXPECT_NE(job.exit_code, 0);
    for (const int r : {0, 1})
      EXPECT_NE(message_of(job, r).find("do different things"), std::string::npos) << job.output;
  }
}

TEST(Mpi, AKilledRankIsNamedByAllOthersBeforeTheLauncherEndsThem) {
  NEEDS_MPIRUN();
  const MpiJob job = run_job(4, "killed", true);
  EXPECT_NE(job.exit_code, 0);
  int told = 0;
  for (const int r : {0, 2, 3}) {
    const std::string message = message_of(job, r);
    told +=
        message.find("rank 1") != std::string::npos && message.find("died") != std::string::npos;
  }
  EXPECT_GE(told, least_told()) << job.output;
}

TEST(Mpi, AStoppedRankIsNamedByAllOthers) {
  NEEDS_MPIRUN();
  for (const bool host_memory : {true, false}) {
    const MpiJob job = run_job(4, "stopped", host_memory);
    EXPECT_NE(job.exit_code, 0);
    // Through shared memory one tells all. With messages each finds out by its own deadline, and
    // the launcher may end the slower ones a second after the first.
    int told = 0;
    for (const int r : {0, 2, 3}) told += message_of(job, r) != "" ? 1 : 0;
    EXPECT_GE(told, host_memory ? least_told() : 1) << job.output;
    // With messages a rank names the one it waits for, which may itself wait for the stopped one.
    EXPECT_NE(job.output.find(host_memory ? "rank 1 is stopped (SIGSTOP)" : "is silent"),
              std::string::npos)
        << job.output;
  }
}

TEST(Mpi, RanksThatAreStoppedTogetherGoOn) {
  NEEDS_MPIRUN();
  const MpiJob job = run_job(2, "stopped together", false);
  EXPECT_EQ(job.exit_code, 0) << job.output;
  EXPECT_EQ(testing::count(job.output, "rank went on\n"), 2) << job.output;
}

}  // namespace
}  // namespace moraine
