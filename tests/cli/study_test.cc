// StudyProgram: a study of the built program, interrupted, gone on with, and asked for something else.
//
// Fails if a run is made twice or not at all, a signal loses one, another study's runs are mixed in, or a variant that
// fails ends the others.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "base/test_folder.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

const char* const kTrain =
    "[train]\nslots = 2\nsequence = 32\nbatch_tokens = 128\nsteps = 6\nthreads = 1\ndtype = "
    "\"f32\"\n";

class StudyProgram : public ::testing::Test {
 protected:
  std::vector<std::string> words(std::vector<std::string> more, const std::string& text = kTrain) {
    write_file(folder.file("base.toml"), tiny.toml(text));
    std::vector<std::string> all = {"study",
                                    "--config",
                                    folder.file("base.toml"),
                                    "--machine",
                                    tiny.root() + "/machine.json",
                                    "--out",
                                    folder.file("study"),
                                    "--seeds",
                                    "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string of(const std::string& name) const { return folder.file("study/" + name); }

  TestFolder folder;
  TinyRun tiny{folder.file("tiny")};
};

TEST_F(StudyProgram, ComparesAndGoesOn) {
  const std::vector<std::string> study =
      words({"--vary", "model.attention=gqa", "--side-by-side", "2", "--json"});
  const Ended first = run_program(folder.path(), study);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Json json = parse_json(first.out);
  ASSERT_EQ(json["variants"].size(), 2u);
  EXPECT_EQ(json["variants"][1]["variant"], "attention=gqa");
  EXPECT_EQ(json["variants"][1]["valid_loss"]["n"], 2);
  EXPECT_TRUE(json["variants"][1]["against_base"]["interval_95"].is_number());
  EXPECT_TRUE(posix_file_system().exists(of("study.html")));

  // What has ended is not made again, and says the same.
  const std::string metrics = of("base/seed-1/metrics.jsonl");
  const auto written = std::filesystem::last_write_time(metrics);
  const Ended again = run_program(folder.path(), study);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, first.out);
  EXPECT_EQ(std::filesystem::last_write_time(metrics), written);

  // Another config is another study.
  const Ended other = run_program(
      folder.path(), words({"--vary", "model.attention=gqa", "--set", "train.clip_norm=0.5"}));
  EXPECT_EQ(other.exit_code, 10) << other.err;
  EXPECT_NE(other.err.find("clip_norm"), std::string::npos) << other.err;
}

TEST_F(StudyProgram, ASignalLosesNothing) {
  const std::string longer =
      fmt::format("{}[checkpoint]\nevery_steps = 1000\n",
                  std::string(kTrain).replace(std::string(kTrain).find("= 6"), 3, "= 60"));
  const std::vector<std::string> study =
      words({"--vary", "model.residual=plain", "--json"}, longer);
  Program program(folder.path(), study);
  const std::string metrics = of("base/seed-1/metrics.jsonl");
  while (!posix_file_system().exists(metrics) || posix_file_system().file_bytes(metrics) == 0)
    usleep(1000);
  program.send(SIGTERM);
  const Ended stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 18) << stopped.err;
  EXPECT_TRUE(posix_file_system().exists(of("study.json")));
  const Ended rest = run_program(folder.path(), study);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  const std::string split = posix_file_system().read(of("base/seed-1.out"));

  posix_file_system().remove_all(folder.file("study"));
  const Ended whole = run_program(folder.path(), study);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto hash_of = [](const std::string& text) {
    const size_t at = text.rfind("hash=");
    return text.substr(at, 37);
  };
  EXPECT_EQ(hash_of(split), hash_of(posix_file_system().read(of("base/seed-1.out"))));
}

TEST_F(StudyProgram, AVariantThatFailsIsAResult) {
  const Ended ended = run_program(
      folder.path(),
      words({"--variant", "short: model.residual=plain, train.time_limit_seconds=0.000001",
             "--json"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json json = parse_json(ended.out);
  EXPECT_EQ(json["variants"][0]["valid_loss"]["n"], 2);
  EXPECT_EQ(json["variants"][1]["valid_loss"]["n"], 0);
  EXPECT_EQ(json["variants"][1]["runs"][0]["exit_code"], 18);
  EXPECT_NE(ended.err.find("short seed 1: exit code 18"), std::string::npos) << ended.err;
}

TEST_F(StudyProgram, RunsThatAllFailCompareNothing) {
  const std::vector<std::string> study = words(
      {"--vary", "model.attention=gqa", "--set", "train.time_limit_seconds=0.000001", "--json"});
  const Ended ended = run_program(folder.path(), study);
  EXPECT_EQ(ended.exit_code, 18) << ended.err;
  EXPECT_NE(ended.err.find("all 4 runs failed"), std::string::npos) << ended.err;
  EXPECT_EQ(parse_json(ended.out)["variants"].size(), 2u) << "the table is there all the same";
}

TEST_F(StudyProgram, RefusesWhatIsNoStudy) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& reason) {
    const Ended ended = run_program(folder.path(), words(more));
    EXPECT_EQ(ended.exit_code, 10) << ended.err;
    EXPECT_NE(ended.err.find(reason), std::string::npos) << ended.err;
  };
  refused({}, "nothing to compare");
  refused({"--vary", "model.attention=cca"}, "in other words");
  refused({"--vary", "model.expert_hidden=8"}, "--match");
  refused({"--vary", "model.atention=gqa"}, "attention");
  refused({"--vary", "model.attention=gqa", "--flops", "-1"}, "--flops");
  EXPECT_FALSE(posix_file_system().exists(folder.file("study")));
  const Ended dry =
      run_program(folder.path(), words({"--vary", "model.attention=gqa", "--dry-run"}));
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_NE(dry.out.find("attention=gqa"), std::string::npos);
  EXPECT_FALSE(posix_file_system().exists(folder.file("study")));
}

}  // namespace
}  // namespace moraine
