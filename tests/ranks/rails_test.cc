// Rails: the built program as processes that meet at a rendezvous gives the bits of one process, and a rank that is
// killed ends the others, by name, at once.
//
// Breaks if what travels over rails is another byte, if a start that cannot work is not refused with its remedy, or if
// survivors wait.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/test_folder.h"
#include "comm/rails/rail_address.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class OverRails : public ::testing::Test {
 protected:
  void SetUp() override { setenv("MORAINE_HOST_MEMORY", "off", 1); }
  void TearDown() override { unsetenv("MORAINE_HOST_MEMORY"); }

  std::string place_of(const std::string& name, int rank) const {
    const std::string path = folder.path() + "/" + name + std::to_string(rank);
    std::filesystem::create_directories(path);
    return path;
  }
  // Rank `rank` of `ranks`, with two rails; all write to `name`.
  std::unique_ptr<Program> start(const std::string& name, int rank, int ranks,
                                 const std::string& rendezvous) {
    const std::string own = std::to_string(rank + 1), out = tiny.out(name);
    return std::make_unique<Program>(
        place_of(name, rank),
        std::vector<std::string>{
            "train", "--config", config, "--machine", tiny.root() + "/machine.json", "--out", out,
            "--rank", std::to_string(rank), "--ranks", std::to_string(ranks), "--rendezvous",
            rendezvous, "--rails", "127.0.1." + own, "--rails", "127.0.2." + own});
  }
  std::vector<Ended> run(const std::string& name, int ranks) {
    const std::string rendezvous = free_local_address();
    std::vector<std::unique_ptr<Program>> programs;
    for (int r = 0; r < ranks; ++r) programs.push_back(start(name, r, ranks, rendezvous));
    std::vector<Ended> ends;
    for (const auto& program : programs) ends.push_back(program->wait());
    return ends;
  }
  void write_config(const std::string& more) {
    write_file(config,
               tiny.toml(tiny.rich("bf16", 8)) + "[parallel]\ndeadline_seconds = 60.0\n" + more);
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
  const std::string config = folder.path() + "/run.toml";
};

TEST_F(OverRails, TheRunEndsInTheHashOfOneRank) {
  write_config("expert = 2\n");
  RunConfig alone = tiny.config(tiny.rich("bf16", 8));
  const Outcome one = tiny.train(alone, tiny.out("one"));
  for (const int ranks : {2, 4}) {
    const std::vector<Ended> ends = run("rails" + std::to_string(ranks), ranks);
    for (const Ended& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_NE(ends[0].out.find("hash=" + one.hash()), std::string::npos) << ends[0].out;
    for (size_t r = 1; r < ends.size(); ++r) EXPECT_EQ(ends[r].out, "");
  }
}

TEST_F(OverRails, TheRunMovesToAnotherMesh) {
  write_file(config, tiny.toml(tiny.rich("bf16", 8) + "expert = 2\n"));  // of its second phase
  const Outcome one = tiny.train(tiny.config(tiny.rich("bf16", 8)), tiny.out("one"));
  const std::vector<Ended> ends = run("moves", 4);
  for (const Ended& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(ends[0].out.find("hash=" + one.hash()), std::string::npos) << ends[0].out;
  EXPECT_NE(ends[0].err.find(" mesh.moved "), std::string::npos) << ends[0].err;
}

TEST_F(OverRails, AKilledRankIsNamedByAllOthers) {
  write_file(
      config,
      tiny.toml(
          "[train]\nslots = 4\nsequence = 32\nbatch_tokens = 256\nthreads = 1\nsteps = 1000000\n"
          "[checkpoint]\nevery_steps = 1000000\n[parallel]\ndeadline_seconds = 60.0\n"));
  const std::string rendezvous = free_local_address(),
                    metrics = tiny.out("killed") + "/metrics.jsonl";
  std::vector<std::unique_ptr<Program>> programs;
  for (int r = 0; r < 4; ++r) programs.push_back(start("killed", r, 4, rendezvous));
  while (!posix_file_system().exists(metrics) || posix_file_system().read(metrics).empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the cores are the ranks'
  programs[2]->send(SIGKILL);
  for (const size_t r : {size_t{0}, size_t{1}, size_t{3}}) {
    const Ended end = programs[r]->wait();
    EXPECT_EQ(end.exit_code, exit_code(Code::kPeerLost)) << end.err;
    EXPECT_NE(end.err.find("rank 2"), std::string::npos) << end.err;
    EXPECT_NE(end.err.find("which died"), std::string::npos) << end.err;
  }
}

TEST_F(OverRails, StartsThatCannotWorkAreRefused) {
  write_config("");
  const auto refused = [&](std::vector<std::string> more, const std::string& why) {
    std::vector<std::string> args = {"train", "--config", config, "--out", tiny.out("refused")};
    args.insert(args.end(), more.begin(), more.end());
    const Ended end = run_program(folder.path(), args);
    EXPECT_EQ(end.exit_code, exit_code(Code::kInvalidArgument)) << end.err;
    EXPECT_NE(end.err.find(why), std::string::npos) << end.err;
  };
  const std::string here = free_local_address();
  refused({"--rank", "1"}, "wanted --rendezvous HOST:PORT too");
  refused({"--rendezvous", here, "--ranks", "2"}, "wanted --rank R --ranks P");
  refused({"--rendezvous", here, "--ranks", "2", "--rank", "2"}, "rank 2 of 2");
  refused({"--rendezvous", "nowhere", "--ranks", "2", "--rank", "1"}, "wanted HOST:PORT");
  refused({"--rendezvous", "127.0.0.1:0", "--ranks", "2", "--rank", "1"}, "wanted HOST:PORT");
  write_file(folder.path() + "/short", "abc\n");
  refused({"--rendezvous", here, "--ranks", "2", "--rank", "1", "--secret-file",
           folder.path() + "/short"},
          "wanted at least 16");
  refused({"--rendezvous", here, "--ranks", "2", "--rank", "1", "--secret-file", folder.path()},
          "it is a folder");
  write_file(folder.path() + "/long", std::string(4097, 's'));
  for (const std::string& endless : {folder.path() + "/long", std::string("/dev/zero")})
    refused({"--rendezvous", here, "--ranks", "2", "--rank", "1", "--secret-file", endless},
            "it has more than 4096 bytes; wanted 16 to 4096");
  refused({"--rendezvous", here, "--ranks", "1", "--rank", "0", "--rails", "eth77"},
          "rail 'eth77': fits no address");
  refused({"--set", "parallel.rails=[1]"}, "a list of texts");
  std::vector<std::string> patient = {"--rendezvous", here, "--ranks", "2", "--rank", "1"};
  for (const char* set : {"parallel.hold_seconds=20", "parallel.retry_interval_seconds=0.5"}) {
    patient.emplace_back("--set");
    patient.emplace_back(set);
  }
  refused(patient, "parallel.deadline_seconds: found 60");
  refused(patient, "= 3 * (20 + 0.5) = 61.5 s; wanted no less than that");
}

}  // namespace
}  // namespace moraine
