// Fails if the benches of inference do not run on a small model, or count other bytes than its shapes say.
#include <gtest/gtest.h>

#include "base/json.h"
#include "checkpoint/test_folder.h"
#include "kernels/linear.h"
#include "model/config.h"
#include "model/model_directory.h"
#include "testing/places.h"
#include "tests/program.h"

namespace moraine {
namespace {

using namespace testing;

const char* const kModel = "tests/golden/native-tiny";

std::vector<Json> bench(const std::string& what, std::vector<std::string> more) {
  const TestFolder folder;
  more.insert(more.begin(), {"bench", what, "--model", source_path(kModel), "--json"});
  const Ended ended = run_program(folder.path(), more);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  std::vector<Json> lines;
  for (size_t at = 0; at < ended.out.size();) {
    const size_t end = ended.out.find('\n', at);
    lines.push_back(parse_json(ended.out.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

TEST(BenchProgram, DecodeCountsTheBytesOfAStep) {
  const std::vector<Json> lines =
      bench("decode", {"--concurrency", "1,32", "--context", "64", "--steps", "2"});
  ASSERT_EQ(lines.size(), 2u);
  const ModelConfig c = ModelDirectory::open(posix_file_system(), source_path(kModel)).config();
  const auto pack = [](int64_t n, int64_t k) {
    return static_cast<double>(packed_bytes(DType::kF32, 1, n, k));
  };
  const double R = static_cast<double>(c.layers), experts = static_cast<double>(c.experts);
  const double expert = pack(2 * c.expert_hidden, c.hidden) + pack(c.hidden, c.expert_hidden);
  const double keys = static_cast<double>(2 * 65 * c.kv_heads * c.head_dim * 4) * R;
  double always = pack(c.vocab_size, c.hidden);  // the head
  always += R * (pack(c.qkv_width(), c.hidden) + pack(c.hidden, c.heads * c.head_dim));
  always += R * static_cast<double>(
                    packed_bytes(DType::kF32, c.conv_groups(), c.head_dim, 2 * c.head_dim));
  always += R * (pack(c.router_hidden, c.hidden) + 2 * pack(c.router_hidden, c.router_hidden) +
                 pack(c.classes(), c.router_hidden));
  // Of one row an expert in each layer, or none where it skips; of many each expert at most once.
  const double one = lines[0].at("step_bytes").get<double>(),
               many = lines[1].at("step_bytes").get<double>();
  EXPECT_GE(one, always + keys);
  EXPECT_LE(one, always + keys + R * expert);
  EXPECT_GE(many, one + 31 * keys);
  EXPECT_LE(many, always + 32 * keys + R * experts * expert);
  for (const Json& line : lines) EXPECT_GT(line.at("gb_s").get<double>(), 0);
}

TEST(BenchProgram, PrefillTakesPromptsLongerThanAChunk) {
  const std::vector<Json> lines = bench("prefill", {"--prompts", "1,250"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].at("tokens").get<int64_t>(), 250);
  EXPECT_GT(lines[1].at("first_token_ms").get<double>(), 0);
  EXPECT_GT(lines[1].at("gflop_per_s").get<double>(), 0);
}

}  // namespace
}  // namespace moraine
