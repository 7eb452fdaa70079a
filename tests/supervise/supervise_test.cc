// Supervise: the built program keeps real processes alive: its own ranks, and any program.
//
// Breaks if a process that ended is not started again or is started twice, if a supervisor that was killed takes its
// processes with it or does not find them, or if what it did to a run is in the answer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/heartbeat.h"
#include "base/json.h"
#include "base/process_stat.h"
#include "base/test_folder.h"
#include "base/test_page.h"
#include "supervisor/test_listener.h"
#include "tests/program.h"
#include "tests/supervise/rest.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class Supervise : public ::testing::Test {
 protected:
  std::string read(const std::string& name) const {
    const std::string path = folder.file(name);
    return posix_file_system().exists(path) ? posix_file_system().read(path) : "";
  }
  int64_t lines(const std::string& name) const {
    const std::string text = read(name);
    return std::count(text.begin(), text.end(), '\n');
  }
  std::string ledger() const { return read("out/supervise/ledger.jsonl"); }
  // The supervisor of a line of sh that notes each of its starts, as a line of `starts`.
  std::vector<std::string> of_script(const std::string& script) const {
    return {"supervise",
            "--out",
            folder.file("out"),
            "--set",
            "supervise.backoff_seconds=0.05",
            "--set",
            "supervise.sensor_seconds=0",  // what this machine suffers is not in the ledger
            "--",
            "sh",
            "-c",
            "cd '" + folder.path() + "'; echo $$ >> starts; " + script};
  }
  int64_t pid_of(int rank) const {
    return std::strtoll(read(fmt::format("out/supervise/rank-{}.pid", rank)).c_str(), nullptr, 10);
  }

  TestFolder folder;
};

TEST_F(Supervise, PassesOnWhatAProgramSaysAndItsCode) {
  const Ended end = run_program(folder.path(), of_script("echo result; echo remark >&2"));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "result\n");
  EXPECT_NE(end.err.find("\nremark\n"), std::string::npos) << end.err;
  EXPECT_EQ(lines("starts"), 1);
}

TEST_F(Supervise, StartsAgainWhatEndsBadly) {
  const Ended end = run_program(
      folder.path(),
      of_script("case $(wc -l < starts) in 1) exit 7;; 2) kill -9 $$;; 3) kill -SEGV $$;; esac; "
                "echo result"));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "result\n");
  EXPECT_EQ(lines("starts"), 4);
  EXPECT_EQ(lines("out/supervise/ledger.jsonl"), 3) << ledger();
  for (const char* fault : {"failed", "killed", "crash"})
    EXPECT_NE(ledger().find(fmt::format("\"fault\":\"{}\"", fault)), std::string::npos) << ledger();
}

TEST_F(Supervise, ShowsWhatHappened) {
  std::vector<std::string> args = of_script(
      "if [ $(wc -l < starts) = 1 ]; then exit 7; fi; while [ ! -e go ]; do sleep 0.01; done");
  const TestListener hook("HTTP/1.1 200 OK\r\n\r\n");
  args.insert(args.begin() + 1,
              {"--set", fmt::format("supervise.webhook=http://127.0.0.1:{}/", hook.port())});
  Program program(folder.path(), args);
  while (hook.requests().size() < 2) rest();  // the fault, and that it is over
  write_file(folder.file("go"), "");
  EXPECT_EQ(program.wait().exit_code, 0);
  EXPECT_NE(hook.requests()[0].find("rank 0 ended with exit code 7"), std::string::npos);
  const std::string page = read("out/supervise/incidents.html");
  expect_sound(page);
  EXPECT_NE(page.find("<b>1</b><span>incidents"), std::string::npos) << page;
  EXPECT_NE(page.find("rank 0 ended with exit code 7"), std::string::npos) << page;
  EXPECT_GE(lines("out/supervise/timeline.jsonl"), 1);
}

TEST_F(Supervise, AWebhookThatIsNoAddressStartsNothing) {
  std::vector<std::string> args = of_script("true");
  args.insert(args.begin() + 1, {"--set", "supervise.webhook=nowhere"});
  const Ended end = run_program(folder.path(), args);
  EXPECT_EQ(end.exit_code, exit_code(Code::kInvalidArgument)) << end.err;
  EXPECT_EQ(lines("starts"), 0);
}

TEST_F(Supervise, EndsALoopWithTheLastWordsAndTheCode) {
  const Ended end = run_program(folder.path(), of_script("echo no such luck >&2; exit 7"));
  EXPECT_EQ(end.exit_code, 7) << end.err;
  EXPECT_EQ(lines("starts"), 6);
  EXPECT_NE(end.err.find("moraine supervise: failed: rank 0 ended with exit code 7; no such luck"),
            std::string::npos)
      << end.err;
}

TEST_F(Supervise, NamesAProgramThatIsNotThere) {
  const Ended end =
      run_program(folder.path(), {"supervise", "--out", folder.file("out"), "--", "/no/such"});
  EXPECT_EQ(end.exit_code, exit_code(Code::kNotFound));
  EXPECT_NE(end.err.find("start /no/such: No such file"), std::string::npos) << end.err;
}

// A pipe that nobody reads any more: what is told goes nowhere, and the program is kept alive.
TEST_F(Supervise, GoesOnWhereNobodyReadsWhatItSays) {
  run_shell(folder.path(),
            "cd '" + folder.path() +
                "'; { \"$M\" supervise --out out --set supervise.backoff_seconds=0.05 --set "
                "supervise.sensor_seconds=0 -- sh -c 'echo $$ >> starts; echo line; while [ ! -e "
                "gone ]; do sleep 0.01; done; [ $(wc -l < starts) -ge 3 ]'; echo $? > code; } 2>&1 "
                "| { head -n 1; exec <&-; touch gone; }");
  EXPECT_EQ(lines("starts"), 3);
  EXPECT_EQ(read("out/supervise/rank-0.out"), "line\nline\nline\n");
  EXPECT_EQ(read("code"), fmt::format("{}\n", exit_code(Code::kIo)));  // results are lost
}

TEST_F(Supervise, PassesASignalOn) {
  Program program(
      folder.path(),
      of_script("trap 'echo saved; exit 3' TERM; echo > ready; while :; do sleep 0.01; done"));
  while (read("ready").empty()) rest();
  program.send(SIGTERM);
  const Ended end = program.wait();
  EXPECT_EQ(end.exit_code, 3) << end.err;
  EXPECT_EQ(end.out, "saved\n");
  EXPECT_EQ(lines("starts"), 1);
}

TEST_F(Supervise, OneSupervisorInAFolder) {
  Program program(folder.path(), of_script("echo > ready; while :; do sleep 0.01; done"));
  while (read("ready").empty()) rest();
  const std::string second = folder.file("second");
  posix_file_system().make_directories(second);
  const Ended end = run_program(second, of_script("true"));
  EXPECT_EQ(end.exit_code, exit_code(Code::kInvalidArgument)) << end.err;
  EXPECT_EQ(lines("starts"), 1);
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().exit_code, 128 + SIGTERM);
}

TEST_F(Supervise, ASupervisorThatWasKilledFindsItsProcess) {
  const std::string script = "echo > ready; while [ ! -e go ]; do sleep 0.01; done; echo result";
  int64_t pid = 0;
  const auto forget_log = [&] { posix_file_system().remove_all(folder.file("child.err")); };
  for (int times = 0; times < 3; ++times) {
    forget_log();
    Program program(folder.path(), of_script(script));
    while (read("ready").empty()) rest();
    while (times > 0 && read("child.err").find("supervise.found") == std::string::npos) rest();
    EXPECT_TRUE(times == 0 || pid == pid_of(0));
    pid = pid_of(0);
    program.send(SIGKILL);
    EXPECT_EQ(program.wait().exit_code, -SIGKILL);
    EXPECT_EQ(::kill(static_cast<pid_t>(pid), 0), 0);  // it lives on
  }
  EXPECT_EQ(lines("starts"), 1);
  forget_log();
  Program program(folder.path(), of_script(script));
  while (read("child.err").find("supervise.found") == std::string::npos) rest();
  write_file(folder.file("go"), "");
  // How it ended is not known: sh has no page. So it is started once more.
  const Ended end = program.wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(lines("starts"), 2);
}

// Cut, of another kind, and with numbers that are none of this run: what was started is ended, and starts again.
TEST_F(Supervise, AStateThatIsDamagedIsToldAndLeftAlone) {
  const std::string script = "echo > ready; while [ ! -e go ]; do sleep 0.01; done; echo result";
  const std::string state = folder.file("out/supervise/state.json");
  const auto begin = [&] {
    posix_file_system().remove_all(folder.file("ready"));
    auto program = std::make_unique<Program>(folder.path(), of_script(script));
    while (read("ready").empty() && read("child.err").find("supervise.found") == std::string::npos)
      rest();
    return program;
  };
  std::unique_ptr<Program> program = begin();
  const auto changed = [](const std::string& text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.substr(0, at) + to + text.substr(at + from.size());
  };
  for (const std::string damage : {"cut", "empty", "{\"run\": {}}", "logs", "hosts", "ranks"}) {
    SCOPED_TRACE(damage);
    const int64_t pid = pid_of(0);
    program->send(SIGKILL);
    program->wait();
    std::string text = posix_file_system().read(state);
    if (damage == "cut") text.resize(text.size() / 2);
    if (damage == "empty") text.clear();
    if (damage.starts_with("{")) text = damage;
    if (damage == "logs") text = changed(text, "\"logs\": [", "\"logs\": [[]], \"logr\": [");
    if (damage == "hosts") text = changed(text, "\"successor\": -1", "\"successor\": 77");
    if (damage == "ranks") text = changed(text, "\"host\": 0", "\"host\": 4000000");
    write_file(state, text);
    posix_file_system().remove_all(folder.file("child.err"));
    program = begin();
    ASSERT_NE(read("child.err").find("supervise.state_failed"), std::string::npos);
    EXPECT_NE(pid, pid_of(0));
    const std::optional<ProcessStat> former = read_process_stat(pid);
    EXPECT_TRUE(!former || former->state == 'Z');  // nobody may have waited for it
  }
  write_file(folder.file("go"), "");
  EXPECT_EQ(program->wait().exit_code, 0);
}

// A program that beats, as training does, in this same file: its first process stops moving at step 50.
constexpr const char* kHowVariable = "MORAINE_TEST_HANG";

TEST(BeatingProgram, DISABLED_StopsMovingOnce) {
  const char* how = std::getenv(kHowVariable);
  if (how == nullptr) GTEST_SKIP() << "started by Supervise only";
  set_activity(Activity::kComputing);
  for (int64_t step = 1; step <= 100; ++step) {
    rest();
    heartbeat().step = step;
    heartbeat().step_seconds = 0.005;
    beat();
    if (step != 50 || posix_file_system().exists("hung")) continue;
    write_file("hung", "");
    if (std::string(how) == "stopped") ::raise(SIGSTOP);
    while (true) rest();
  }
}

TEST_F(Supervise, KillsWhatDoesNotMoveAndStartsItAgain) {
  for (const std::string how : {"hang", "stopped"}) {
    folder.clear();
    const Ended end =
        run_program(folder.path(),
                    {"supervise", "--out", folder.file("out"), "--set", "supervise.hang_seconds=2",
                     "--", "sh", "-c",
                     fmt::format("cd '{}'; export {}={}; exec '{}' "
                                 "--gtest_filter=BeatingProgram.* --gtest_also_run_disabled_tests",
                                 folder.path(), kHowVariable, how,
                                 std::filesystem::read_symlink("/proc/self/exe").string())});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const std::vector<std::string> want = {fmt::format("\"fault\":\"{}\",\"rank\":0", how),
                                           "\"level\":\"replace\"", "\"step\":50,",
                                           "\"first_step\":"};
    for (const std::string& part : want)
      EXPECT_NE(ledger().find(part), std::string::npos) << part << " in " << ledger();
    const Json entry = parse_json(ledger());
    EXPECT_GT(entry["phases"]["detection"].get<double>(), 2);
    EXPECT_GT(entry["seconds_lost"].get<double>(), entry["phases"]["detection"].get<double>());
  }
}

// Training runs.

class SuperviseRun : public Supervise {
 protected:
  SuperviseRun() {
    write_file(folder.file("run.toml"),
               tiny.toml("[train]\nslots = 4\nsequence = 32\nbatch_tokens = 256\nthreads = "
                         "1\ndtype = \"f32\"\nsteps = 300\n"
                         "[checkpoint]\nevery_steps = 50\nkeep = 2\n"
                         "[supervise]\nhang_seconds = 30.0\ngrace_seconds = 2.0\n"
                         "backoff_seconds = 0.05\nrestarts = 100\nsensor_seconds = 0\n"));
  }
  std::vector<std::string> of_run(int ranks) const {
    return {"supervise",        "--config", folder.file("run.toml"), "--out",
            folder.file("out"), "--ranks",  std::to_string(ranks)};
  }
  std::string quiet_hash() {
    const Ended end = run_program(folder.path(), {"train", "--config", folder.file("run.toml"),
                                                  "--out", folder.file("quiet")});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return value_of(end.out, "hash");
  }
  void wait_for_lines(int64_t count) const {
    while (lines("out/metrics.jsonl") < count) rest();
  }

  TinyRun tiny{folder.path()};
};

TEST_F(SuperviseRun, RanksThatAreKilledEndInTheQuietHash) {
  const std::string want = quiet_hash(), secret = folder.file("secret");
  write_file(secret, "sixteen bytes at least\n");
  std::vector<std::string> args = of_run(2);
  args.emplace_back("--set");
  args.push_back("supervise.secret_file=\"" + secret + "\"");
  Program program(folder.path(), args);
  wait_for_lines(60);
  const std::string words = posix_file_system().read(fmt::format("/proc/{}/cmdline", pid_of(1)));
  EXPECT_NE(words.find(std::string("--secret-file\0", 14) + secret), std::string::npos);
  ::kill(static_cast<pid_t>(pid_of(1)), SIGKILL);
  wait_for_lines(120);
  ::kill(static_cast<pid_t>(pid_of(0)), SIGKILL);
  const Ended end = program.wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(value_of(end.out, "hash"), want) << end.err;
  EXPECT_NE(ledger().find("\"fault\":\"killed\",\"rank\":1"), std::string::npos) << ledger();
  EXPECT_NE(ledger().find("\"fault\":\"killed\",\"rank\":0"), std::string::npos) << ledger();
}

TEST_F(SuperviseRun, ARankThatIsStoppedIsReplaced) {
  const std::string want = quiet_hash();
  std::vector<std::string> args = of_run(2);
  args.emplace_back("--set");
  args.emplace_back("supervise.hang_seconds=2");
  Program program(folder.path(), args);
  wait_for_lines(60);
  const auto page = HeartbeatFile::open(folder.file("out/supervise/rank-1.beat"));
  if (page->page().magic != HeartbeatPage::kMagic) {
    EXPECT_EQ(program.wait().exit_code, 0);
    GTEST_SKIP() << "this program does not beat while it trains: a hang cannot be seen";
  }
  ::kill(static_cast<pid_t>(pid_of(1)), SIGSTOP);
  const Ended end = program.wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(value_of(end.out, "hash"), want) << end.err;
  EXPECT_NE(ledger().find("\"fault\":\"stopped\",\"rank\":1"), std::string::npos) << ledger();
}

TEST_F(SuperviseRun, RanksGoOnWithoutASupervisor) {
  const std::string want = quiet_hash();
  for (int64_t at : {20, 60, 100}) {
    Program program(folder.path(), of_run(2));
    wait_for_lines(at);
    program.send(SIGKILL);
    EXPECT_EQ(program.wait().exit_code, -SIGKILL);
  }
  const std::string path = folder.file("out/supervise/state.json");
  Json state = parse_json(posix_file_system().read(path), path);
  state["view"]["begin"] = 12345.0;
  write_file(path, json_text(state));
  const Ended end = run_program(folder.path(), of_run(2));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(value_of(end.out, "hash"), want) << end.err;
  EXPECT_EQ(ledger(), "");  // nothing was lost
  state = parse_json(posix_file_system().read(path), path);
  EXPECT_EQ(state["view"]["begin"].get<double>(), 12345) << "the useful share goes on";
}

TEST_F(SuperviseRun, ASignalSavesAndTheSameCommandGoesOn) {
  const std::string want = quiet_hash();
  Program program(folder.path(), of_run(2));
  wait_for_lines(20);
  program.send(SIGTERM);
  const Ended stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, exit_code(Code::kInterrupted)) << stopped.err;
  const Ended end = run_program(folder.path(), of_run(2));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(value_of(end.out, "hash"), want) << end.err;
}

TEST_F(SuperviseRun, WhatAPersonMustLookAtStopsAtOnce) {
  std::vector<std::string> args = of_run(2);
  args.emplace_back("--set");
  args.emplace_back("train.slots=3");
  const Ended end = run_program(folder.path(), args);
  EXPECT_EQ(end.exit_code, exit_code(Code::kInvalidArgument)) << end.err;
  EXPECT_NE(end.err.find("slots"), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("start=2"), std::string::npos) << end.err;
}

// Before a process is started, of one rank and of many.
TEST_F(SuperviseRun, WhatRanksCouldNotMeetByIsRefused) {
  write_file(folder.file("short"), "abc\n");
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  // Would be read here, and leave nothing for ranks.
  const int pipe = open(folder.file("pipe").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(write(pipe, "sixteen bytes at least\n", 23), 23);
  for (const int ranks : {1, 2}) {
    const auto refused = [&](const std::string& set, Code code, const std::string& part) {
      std::vector<std::string> args = of_run(ranks);
      args.emplace_back("--set");
      args.push_back(set);
      const Ended end = run_program(folder.path(), args);
      EXPECT_EQ(end.exit_code, exit_code(code)) << end.err;
      EXPECT_NE(end.err.find(part), std::string::npos) << end.err;
      EXPECT_EQ(end.err.find("rank_started"), std::string::npos) << end.err;
    };
    const std::string secret = "supervise.secret_file=" + folder.file("");
    refused(secret + "none", Code::kNotFound, "there is no such file");
    refused(secret + "short", Code::kInvalidArgument, "wanted at least 16");
    refused("supervise.secret_file=/dev/zero", Code::kInvalidArgument, "more than 4096 bytes");
    refused(secret + "pipe", Code::kInvalidArgument, "it is a pipe");
    refused("supervise.rendezvous=nonsense", Code::kInvalidArgument, "wanted HOST:PORT");
  }
  close(pipe);
}

TEST(SuperviseTable, TheDocumentShowsTheTable) {
  const Ended end = run_program(::testing::TempDir(), {"supervise", "--explain"});
  const std::string page = posix_file_system().read(source_path("docs/supervisor.md"));
  EXPECT_NE(page.find(end.out), std::string::npos) << end.out;
  const Ended keys = run_program(::testing::TempDir(), {"supervise", "--document"});
  EXPECT_NE(page.find(keys.out), std::string::npos) << keys.out;
}

}  // namespace
}  // namespace moraine
