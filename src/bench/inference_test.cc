// BenchInference: fails if a long measurement is silent, or tells less than all of a line before it prints it.
#include "bench/inference.h"

#include <gtest/gtest.h>

#include <tuple>

#include "testing/places.h"

namespace moraine {
namespace {

using Told = std::vector<std::tuple<std::string, int64_t, int64_t>>;

TEST(BenchInference, TellsHowFarALineIs) {
  Told told;
  BenchInferenceOptions o{.model_path = testing::source_path("tests/golden/native-tiny"),
                          .threads = 1,
                          .prompts = {250},
                          .sequences = {2},
                          .context = 8,
                          .steps = 3};
  o.progress = [&](const std::string& line, int64_t done, int64_t total) {
    told.emplace_back(line, done, total);
  };
  ::testing::internal::CaptureStdout();
  bench_prefill(o);
  bench_decode(o);
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(
      told,
      (Told{
          {"prefill 250", 250, 250}, {"decode 2", 1, 3}, {"decode 2", 2, 3}, {"decode 2", 3, 3}}));
}

}  // namespace
}  // namespace moraine
