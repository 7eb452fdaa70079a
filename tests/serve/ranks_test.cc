// Ranks: a server whose experts, or cache, are divided among ranks.
//
// Fails if divided experts, or a head in two stages, change a bit of an answer, if a shared cache changes more than
// rounding or holds no more than one rank could, or if a server on ranks does not end, or ends with its second process.
#include <cmath>

#include "comm/rails/rail_address.h"
#include "tests/serve/serving.h"

namespace moraine {
namespace {

using namespace testing;

using Ranks = ServeTest;

TEST_F(Ranks, DividedExpertsAnswerAsOneRankDoes) {
  const auto one = serve(), three = serve({"--ranks", "3"}),
             slots = serve({"--ranks", "2", "--low-latency", "on"}),
             collectives = serve({"--ranks", "2", "--low-latency", "off"}),
             placed = serve({"--ranks", "3", "--placement", "balanced", "--placement-every-steps",
                             "1", "--placement-gate", "0"});
  for (const int64_t length : {1, 64, 300}) {
    const Json request = {{"prompt", prompt_of(static_cast<uint64_t>(length), length)},
                          {"max_tokens", 20},
                          {"n", 3},
                          {"seed", length},
                          {"logprobs", 1}};
    const Json want = one->ask("/v1/completions", request)["choices"];
    for (const auto& server : {&*three, &*slots, &*collectives, &*placed})
      EXPECT_EQ(server->ask("/v1/completions", request)["choices"], want);
  }
  EXPECT_EQ(three->metric("moraine_expert_guests"), 0);
  EXPECT_GT(placed->metric("moraine_expert_guests"), 0);
  EXPECT_GT(placed->metric("moraine_expert_placements"), 0);
  EXPECT_GE(placed->metric("moraine_expert_home_load_over_mean"), 1);
  for (const auto& server : {&*three, &*slots, &*collectives, &*placed})
    EXPECT_EQ(server->end().exit_code, 0) << server->log();
  EXPECT_NE(slots->log().find("experts.low_latency rows=128 "), std::string::npos) << slots->log();
  EXPECT_NE(collectives->log().find("experts.low_latency rows=0 "), std::string::npos);
  EXPECT_NE(placed->log().find("experts.placed step="), std::string::npos) << placed->log();
}

// Ranks beyond the first have no copy of the head, and draw nothing.
TEST_F(Ranks, AHeadInTwoStagesAnswersAsAFullOne) {
  write_model(128);  // of fewer inputs a copy in 8 bits, with whole blocks, saves nothing
  const auto full = serve({"--head", "full"}), alone = serve({"--head", "two-stage"}),
             ranks = serve({"--head", "two-stage", "--ranks", "3"});
  for (const double temperature : {0.0, 1.0}) {
    for (const int64_t length : {1, 64, 300}) {
      const Json request = {{"prompt", prompt_of(static_cast<uint64_t>(length), length)},
                            {"max_tokens", 20},
                            {"temperature", temperature},
                            {"n", 2},
                            {"seed", length}};
      const Json want = full->ask("/v1/completions", request)["choices"];
      EXPECT_EQ(alone->ask("/v1/completions", request)["choices"], want);
      EXPECT_EQ(ranks->ask("/v1/completions", request)["choices"], want);
    }
  }
  EXPECT_EQ(full->metric("moraine_head_rows_two_stage"), 0);
  EXPECT_GT(full->metric("moraine_head_rows_full"), 0);
  for (const auto& server : {&*alone, &*ranks}) {
    EXPECT_GT(server->metric("moraine_head_rows_two_stage"), 0);
    EXPECT_GT(server->metric("moraine_head_panel_share"), 0);
    EXPECT_LT(server->metric("moraine_head_panel_share"), 1);
  }
  EXPECT_EQ(ranks->end().exit_code, 0) << ranks->log();
}

TEST_F(Ranks, ASharedCacheHoldsWhatNoRankCould) {
  const std::vector<std::string> small = {"--context", "8192", "--cache-mib", "2"};
  std::vector<std::string> shared = small;
  shared.insert(shared.end(), {"--ranks", "2", "--share-cache"});
  EXPECT_THROW(serve(small), Error);
  const auto one = serve(), two = serve(shared);
  const Json request = {
      {"prompt", prompt_of(1, 7000)}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 0}};
  const Json want = one->ask("/v1/completions", request)["choices"][0]["logprobs"],
             got = two->ask("/v1/completions", request)["choices"][0]["logprobs"];
  double most = 0;
  for (size_t i = 1; i < 7000; ++i)
    most = std::max(most, std::abs(got["token_logprobs"][i].get<double>() -
                                   want["token_logprobs"][i].get<double>()));
  EXPECT_GT(most, 0);
  EXPECT_LE(most, 256 * std::numeric_limits<float>::epsilon());
  EXPECT_EQ(two->end().exit_code, 0) << two->log();
}

// Processes that meet at a rendezvous, as `srun` or a service of each host would end them: all at once.
TEST_F(Ranks, ASignalToAnotherProcessThanTheFirstCutsNoAnswer) {
  const auto one = serve();
  ::setenv("MORAINE_HOST_MEMORY", "off", 1);
  const std::vector<std::string> job = {"--rendezvous", free_local_address(), "--ranks", "2",
                                        "--rank"};
  std::vector<std::string> first = job,
                           second = {"serve", "--model",     file("model"), "--threads",
                                     "1",     "--cache-mib", "64"};
  first.push_back("0");
  second.insert(second.end(), job.begin(), job.end());
  second.push_back("1");
  posix_file_system().make_directories(file("second"));
  Program other(file("second"), second);
  const auto two = serve(first);
  ::unsetenv("MORAINE_HOST_MEMORY");
  other.send(SIGTERM);
  for (const int64_t length : {1, 64, 300}) {
    const Json request = {{"prompt", prompt_of(static_cast<uint64_t>(length), length)},
                          {"max_tokens", 20},
                          {"seed", length},
                          {"logprobs", 1}};
    EXPECT_EQ(two->ask("/v1/completions", request)["choices"],
              one->ask("/v1/completions", request)["choices"]);
  }
  EXPECT_EQ(two->end().exit_code, 0) << two->log();
  const Ended ended = other.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

TEST_F(Ranks, MoreThanThereAreExpertsIsRefused) { EXPECT_THROW(serve({"--ranks", "5"}), Error); }

// By name and with the exit code that one rank has.
TEST_F(Ranks, WhatOneRankRefusesSeveralRefuseAlike) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--dtype", "f16"},
                                               {"--deadline-seconds", "0"},
                                               {"--deadline-seconds", "-1"},
                                               {"--deadline-seconds", "nan"}}) {
    std::vector<std::string> args = {"serve",       "--port",  "0", "--model",
                                     file("model"), "--ranks", "2"};
    args.insert(args.end(), more.begin(), more.end());
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 10) << more[1] << ": " << ended.err;
    EXPECT_NE(ended.err.find(more[0].substr(2) + " " + more[1]), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace moraine
