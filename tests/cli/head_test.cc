// Head: the head of a model in two stages, from outside: the same tokens, and memory that is planned.
//
// Fails if --head changes an answer, of f32, bf16 or packed models, alone or on ranks, or if a copy is not planned, or
// planned where there is none.
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/test_folder.h"
#include "tests/program.h"

namespace moraine {
namespace {

using namespace testing;

// Enough words that few of them matter for a draw.
constexpr const char* kConfig = R"(
[data]
train = "none"
[model]
vocab_size = 4001
hidden = 136
layers = 2
heads = 4
kv_heads = 2
head_dim = 8
experts = 2
expert_hidden = 24
router_hidden = 12
init_std = 0.1
max_positions = 128
)";

class HeadCli : public ::testing::Test {
 protected:
  HeadCli() { folder.write("config.toml", kConfig); }
  std::string must(const std::vector<std::string>& args) const {
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 0) << args[0] << ": " << ended.err;
    return ended.out;
  }
  std::string make(const std::string& name, const char* dtype) const {
    must({"import", "--random", folder.file("config.toml"), "--out", folder.file(name), "--dtype",
          dtype});
    return folder.file(name);
  }
  std::string answers(const std::string& model, const std::string& head,
                      const std::string& ranks) const {
    std::string all;
    for (const std::vector<std::string>& draws : {std::vector<std::string>{"--temperature", "0"},
                                                  {"--seed", "5"},
                                                  {"--top-k", "7"},
                                                  {"--top-p", "0.9"}}) {
      std::vector<std::string> args = {"generate", "--model", model, "--tokens",
                                       "5 6 7",    "--head",  head,  "--max-tokens",
                                       "20",       "--ranks", ranks};
      args.insert(args.end(), draws.begin(), draws.end());
      all += must(args);
    }
    return all;
  }
  // Bytes of the buffer that a plan has for the copy.
  int64_t planned(const std::string& model, const std::string& head) const {
    const Json plan =
        parse_json(must({"plan", "memory", "--model", model, "--head", head, "--json"}), "plan");
    int64_t bytes = 0;
    for (const Json& row : plan["buffers"]) {
      if (row["name"] == "head.coarse") bytes += row["bytes"].get<int64_t>();
    }
    return bytes;
  }
  TestFolder folder;
};

constexpr int64_t kCopyBytes = int64_t{126} * 2 * (32 * 128 + 64);  // panels, blocks, bytes of each

TEST_F(HeadCli, TwoStagesGiveTheSameTokens) {
  const std::string f32 = make("f32", "f32"), bf16 = make("bf16", "bf16"),
                    packed = folder.file("packed");
  must({"quantize", "--model", bf16, "--out", packed, "--type", "bf16"});
  for (const std::string& model : {f32, bf16, packed}) {
    const std::string want = answers(model, "full", "1");
    EXPECT_GT(want.size(), 80u);
    for (const char* ranks : {"1", "2"})
      EXPECT_EQ(answers(model, "two-stage", ranks), want) << model << " on " << ranks;
    EXPECT_EQ(answers(model, "auto", "1"), want) << model;
    EXPECT_EQ(planned(model, "two-stage"), kCopyBytes) << model;
    EXPECT_EQ(planned(model, "full"), 0) << model;
    EXPECT_EQ(planned(model, "auto"), 0) << model;  // a head that any cache holds
  }
}

TEST_F(HeadCli, AnotherNameIsRefused) {
  const Ended ended =
      run_program(folder.path(), {"generate", "--model", "x", "--tokens", "5", "--head", "half"});
  EXPECT_EQ(ended.exit_code, 10) << ended.err;
  EXPECT_NE(ended.err.find("two-stage"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace moraine
