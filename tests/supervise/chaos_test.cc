// Chaos: a run under a supervisor, through real faults of every kind that needs no rights, ends in the quiet hash.
//
// Breaks if a fault reaches the answer, if the run does not end, or if the table does not say what was done.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/json.h"
#include "base/test_folder.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

class ChaosRun : public ::testing::Test {
 protected:
  ChaosRun() {
    write_file(folder.file("run.toml"),
               tiny.toml("[train]\nslots = 4\nsequence = 32\nbatch_tokens = 256\nthreads = 1\n"
                         "dtype = \"f32\"\nsteps = 1000\n"
                         "[checkpoint]\nevery_steps = 40\nkeep = 3\n"));
  }
  Ended chaos(const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> args = {"chaos", "--config",        folder.file("run.toml"),
                                     "--out", folder.file(name), "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(folder.path(), args);
  }

  TestFolder folder;
  TinyRun tiny{folder.path()};
};

TEST_F(ChaosRun, NothingOfAStormIsInTheAnswer) {
  const Ended end = chaos("storm", {"--ranks", "2", "--seed", "3", "--faults", "10",
                                    "--every-seconds", "0.4", "--hang-seconds", "2"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const Json result = parse_json(end.out);
  EXPECT_EQ(result.at("storm_hash"), result.at("quiet_hash")) << end.err;
  EXPECT_TRUE(result.at("equal").get<bool>());
  int64_t done = 0;
  for (const Json& row : result.at("faults")) {
    int64_t absorbed = 0;
    for (const auto& [level, count] : row.at("absorbed_at").items())
      absorbed += count.get<int64_t>();
    EXPECT_EQ(absorbed, row.at("done").get<int64_t>()) << row;
    done += absorbed;
  }
  EXPECT_GT(done, 0) << end.err;
}

// One fault, due in about an hour.
TEST_F(ChaosRun, AStormInWhichNothingWasDoneTestsNothing) {
  const Ended end = chaos("calm", {"--ranks", "1", "--faults", "1", "--every-seconds", "3600",
                                   "--set", "train.steps=3"});
  EXPECT_EQ(end.exit_code, exit_code(Code::kInvalidArgument)) << end.err;
  EXPECT_NE(end.err.find("nothing was tested"), std::string::npos) << end.err;
  const Json result = parse_json(end.out);
  EXPECT_TRUE(result.at("equal").get<bool>());
  EXPECT_FALSE(result.at("tested").get<bool>());
}

// The quiet run has the same mesh then. What replicas of experts a lost rank had goes with it.
TEST_F(ChaosRun, NorWhereExpertsAreOverRanks) {
  const Ended end = chaos("experts", {"--ranks",         "2",
                                      "--seed",          "3",
                                      "--faults",        "2",
                                      "--every-seconds", "0.3",
                                      "--hang-seconds",  "5",
                                      "--kind",          "kill",
                                      "--set",           "parallel.expert=2",
                                      "--set",           "parallel.placement=shuffled",
                                      "--set",           "parallel.placement_every_steps=1",
                                      "--set",           "train.steps=120"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(parse_json(end.out).at("equal").get<bool>()) << end.err;
}

TEST_F(ChaosRun, NorIsAnythingOfLinksThatAreCut) {
  if (getuid() != 0) GTEST_SKIP() << "needs root: network namespaces";
  const Ended end = chaos(
      "links",
      {"--ranks",  "2",          "--links",         "2",           "--seed",         "5",
       "--faults", "9",          "--every-seconds", "0.4",         "--hang-seconds", "5",
       "--kind",   "link-down",  "--kind",          "link-silent", "--kind",         "link-one-way",
       "--kind",   "link-large", "--kind",          "link-flap",   "--kind",         "link-drop",
       "--kind",   "kill"});
  if (end.exit_code == exit_code(Code::kInvalidArgument) &&
      end.err.find("namespace") != std::string::npos)
    GTEST_SKIP() << end.err;
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(parse_json(end.out).at("equal").get<bool>()) << end.err;
}

// Links are gone for longer than a rank may hang: operations are held, and no process is started again.
TEST_F(ChaosRun, NorIsAnythingOfHostsThatDoNotReachEachOther) {
  if (getuid() != 0) GTEST_SKIP() << "needs root: network namespaces";
  const Ended end = chaos("apart", {"--ranks", "2", "--links", "2", "--seed", "2", "--faults", "5",
                                    "--every-seconds", "0.35", "--hang-seconds", "1.5", "--kind",
                                    "links-all", "--set", "train.steps=500"});
  if (end.exit_code == exit_code(Code::kInvalidArgument) &&
      end.err.find("namespace") != std::string::npos)
    GTEST_SKIP() << end.err;
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const Json result = parse_json(end.out);
  EXPECT_TRUE(result.at("equal").get<bool>()) << end.err;
  int64_t held = 0;
  for (const Json& row : result.at("faults")) {
    for (const auto& [level, count] : row.at("absorbed_at").items()) {
      EXPECT_TRUE(level == "operation" || level == "link" || level == "run") << row << end.err;
      if (level == "operation") held += count.get<int64_t>();
    }
  }
  EXPECT_GE(held, 1) << end.err;
  EXPECT_GT(result.at("seconds_lost").get<double>(), 1) << end.err;
}

// With a slot for each rank, so that each is verified.
TEST_F(ChaosRun, NorIsAWrongBitOfWeightsOrGradients) {
  std::string quiet;
  for (const std::string kind : {"flip-weights", "flip-gradients"}) {
    std::vector<std::string> args = {"--ranks",         "2",
                                     "--seed",          "1",
                                     "--kind",          kind,
                                     "--hang-seconds",  "5",
                                     "--set",           "train.slots=2",
                                     "--every-seconds", "0.4",
                                     "--set",           "train.steps=400",
                                     "--faults",        "2"};
    if (!quiet.empty()) args.insert(args.end(), {"--quiet-hash", quiet});
    const Ended end = chaos(kind, args);
    ASSERT_EQ(end.exit_code, 0) << end.err;
    const Json result = parse_json(end.out);
    EXPECT_TRUE(result.at("equal").get<bool>()) << end.err;
    quiet = result.at("quiet_hash").text();
    EXPECT_TRUE(result.at("faults")[0].at("absorbed_at").contains("replace")) << end.out << end.err;
    EXPECT_NE(posix_file_system()
                  .read(folder.file(kind + "/storm/supervise/ledger.jsonl"))
                  .find("\"rank_diverged\""),
              std::string::npos);
  }
}

TEST_F(ChaosRun, WhatCannotWorkIsRefused) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    const Ended end = chaos("refused", more);
    EXPECT_EQ(end.exit_code, exit_code(Code::kInvalidArgument)) << end.err;
    EXPECT_NE(end.err.find(why), std::string::npos) << end.err;
  };
  refused({"--kind", "kil"}, "did you mean kill?");
  refused({"--kind", "flip-gradients"}, "found train.slots = 4 with 2 ranks; wanted one for each");
  refused({"--kind", "flip-gradients", "--ranks", "1", "--set", "train.slots=1"},
          "found --ranks 1; wanted another rank to compare with");
  refused({"--kind", "flip-gradients", "--set", "train.slots=2", "--set", "parallel.expert=2"},
          "found parallel.expert or parallel.context above 1");
  refused({"--kind", "flip-weights", "--set", "train.verify_every_steps=0"},
          "found train.verify_every_steps = 0; wanted it above 0");
  refused({"--every-seconds", "0"}, "wanted more than 0");
  refused({"--set", "train.slots=3"}, "must be a multiple of slots * sequence");
  refused({"--set", "data.train=nowhere"}, "wanted a run that ends well by itself");
}

}  // namespace
}  // namespace moraine
