// BenchInference: fails if a measurement of several steps is silent, or does not tell the end of a line.
#include "bench/inference.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "base/test_folder.h"
#include "model/write_model.h"

namespace moraine {
namespace {

using Told = std::vector<std::tuple<std::string, int64_t, int64_t>>;

// A small model of zeros for more positions than a chunk of a prompt has rows.
std::string write_zeros(const testing::TestFolder& folder) {
  const std::string path = folder.file("model");
  ModelConfig config;
  config.vocab_size = 64, config.hidden = 32, config.layers = 1;
  config.heads = 2, config.kv_heads = 1, config.head_dim = 16;
  config.experts = 2, config.expert_hidden = 32, config.router_hidden = 8;
  config.max_positions = 1024;
  const auto zeros = [](int64_t, const Tensor& out) {
    std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
  };
  write_model_directory(
      posix_file_system(), path,
      {.config = config, .weights = zeros, .dtype = DType::kF32, .language_files = {}});
  return path;
}

TEST(BenchInference, TellsHowFarALineIs) {
  const testing::TestFolder folder;
  Told told;
  BenchInferenceOptions o{.model_path = write_zeros(folder),
                          .dtype = "f32",
                          .threads = 1,
                          .prompts = {600},
                          .rows = 512,
                          .sequences = {2},
                          .context = 8,
                          .steps = 2};
  o.progress = [&](const std::string& line, int64_t done, int64_t total) {
    told.emplace_back(line, done, total);
  };
  ::testing::internal::CaptureStdout();
  bench_prefill(o);
  bench_decode(o);
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(told, (Told{{"prefill 600", 0, 600},
                        {"prefill 600", 512, 600},
                        {"prefill 600", 600, 600},
                        {"decode 2", 0, 2},
                        {"decode 2", 1, 2},
                        {"decode 2", 2, 2}}));
}

}  // namespace
}  // namespace moraine
