// Fails if benches do not run on a small model, or count other bytes or flops than its shapes say.
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/test_folder.h"
#include "base/test_page.h"
#include "kernels/linear.h"
#include "model/config.h"
#include "model/model_directory.h"
#include "testing/places.h"
#include "tests/program.h"

namespace moraine {
namespace {

using namespace testing;

const char* const kModel = "tests/golden/native-tiny";
const char* const kTinyRun =
    "[model]\nhidden = 32\nlayers = 1\nheads = 2\nkv_heads = 1\nhead_dim = 16\nexpert_hidden = "
    "32\nrouter_hidden = 8\n[data]\ntrain = \"none\"\n[train]\nslots = 1\nsequence = 64\n"
    "batch_tokens = 128\nsteps = 2\n";

std::vector<Json> lines_of(const Ended& ended) {
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  std::vector<Json> lines;
  for (size_t at = 0; at < ended.out.size();) {
    const size_t end = ended.out.find('\n', at);
    lines.push_back(parse_json(ended.out.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

std::vector<Json> bench(const std::string& what, std::vector<std::string> more) {
  const TestFolder folder;
  more.insert(more.begin(), {"bench", what, "--model", source_path(kModel), "--json"});
  return lines_of(run_program(folder.path(), more));
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

// A folder of it.
std::string random_model(const TestFolder& folder, const std::string& shape) {
  const std::string config = folder.file("random.toml"), model = folder.file("random");
  posix_file_system().write_atomic(config,
                                   "[model]\nvocab_size = 64\nhidden = 32\nlayers = 1\n"
                                   "expert_hidden = 32\nrouter_hidden = 8\n" +
                                       shape);
  const Ended ended = run_program(folder.path(), {"import", "--random", config, "--out", model});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return model;
}

TEST(BenchProgram, PrefillTakesPromptsLongerThanAStep) {
  const TestFolder folder;
  const std::string model =
      random_model(folder, "heads = 2\nkv_heads = 1\nhead_dim = 16\nmax_positions = 2048\n");
  const std::vector<Json> lines =
      lines_of(run_program(folder.path(), {"bench", "prefill", "--model", model, "--json",
                                           "--prompts", "1,1100", "--rows", "512"}));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].at("tokens").get<int64_t>(), 1100);
  EXPECT_GT(lines[1].at("first_token_ms").get<double>(), 0);
  EXPECT_GT(lines[1].at("gflop_per_s").get<double>(), 0);
}

TEST(BenchProgram, MorePositionsThanTheModelWasMadeForAreRefusedByTheirFlags) {
  const TestFolder folder;
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"decode", "--context", "16777216"},
        std::vector<std::string>{"prefill", "--prompts", "16777216"}}) {
    std::vector<std::string> args = {"bench", "--model", source_path(kModel)};
    args.insert(args.end(), more.begin(), more.end());
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 10) << ended.err;
    EXPECT_NE(ended.err.find(more[1]), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("max_positions"), std::string::npos) << ended.err;
  }
}

TEST(BenchProgram, MoreSequencesThanAHeadTakesAtOnceAreRefused) {
  const TestFolder folder;
  const auto decode = [&](const char* sequences) {
    return run_program(folder.path(),
                       {"bench", "decode", "--model", source_path(kModel), "--context", "2",
                        "--steps", "1", "--concurrency", sequences});
  };
  EXPECT_EQ(decode("256").exit_code, 0);
  const Ended ended = decode("257");
  EXPECT_EQ(ended.exit_code, 10);
  EXPECT_NE(ended.err.find("--concurrency"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("256"), std::string::npos) << ended.err;
}

// It took what the kernel promised, until the kernel ended it without a word.
TEST(BenchProgram, ACacheThatIsLargerThanMemoryIsRefused) {
  const TestFolder folder;
  const std::string model =
      random_model(folder, "heads = 8\nkv_heads = 8\nhead_dim = 128\nmax_positions = 2097152\n");
  const Ended ended = run_program(folder.path(), {"bench", "decode", "--model", model, "--context",
                                                  "1048576", "--concurrency", "256"});
  EXPECT_EQ(ended.exit_code, 10);  // of 2 TiB of keys and values
  EXPECT_EQ(ended.out, "");
  for (const char* piece :
       {"open model ", "keys and values of 268", " are free; a shorter context"})
    EXPECT_NE(ended.err.find(piece), std::string::npos) << ended.err;
}

TEST(BenchProgram, ServeDrawsLatencyTargets) {
  const TestFolder folder;
  const auto serve = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "serve", "--model", source_path(kModel), "--prompt-tokens",
                               "8", "--new-tokens", "4", "--concurrency", "2", "--json", "--chart",
                               folder.file("s.html")});
    return run_program(folder.path(), more);
  };
  const std::vector<Json> lines = lines_of(serve({"--tpot-ms", "50,0"}));
  ASSERT_EQ(lines.size(), 6u);  // prefill, mixed, two targets, prefix, limits
  EXPECT_EQ(lines[2].at("tpot_target_ms").get<int64_t>(), 50);
  const std::string page = posix_file_system().read(folder.file("s.html"));
  expect_sound(page);
  EXPECT_NE(page.find("Throughput by latency target"), std::string::npos);
  const Ended none = serve({});
  EXPECT_EQ(none.exit_code, 10);
  EXPECT_EQ(none.out, "");
  EXPECT_NE(none.err.find("none is given; wanted --tpot-ms"), std::string::npos) << none.err;
}

TEST(BenchProgram, AFlagOfAnotherBenchIsRefused) {
  const TestFolder folder;
  const auto refused = [&](const std::string& what, const std::vector<std::string>& flag,
                           const std::string& who) {
    std::vector<std::string> args = {"bench", what};
    args.insert(args.end(), flag.begin(), flag.end());
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 10) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(flag[0] + ": bench " + what + " does not heed it; it is of bench " +
                             who + "; leave it out"),
              std::string::npos)
        << ended.err;
  };
  refused("decode", {"--prompt-tokens", "100"}, "serve");
  refused("serve", {"--context", "100"}, "decode");
  refused("memory", {"--model", "m"}, "prefill, decode, serve, masks");
  refused("train", {"--machine", "m"}, "memory, gemm, comm, step, plan");
  refused("comm", {"--threads", "2"},
          "memory, gemm, train, step, plan, growth, experts, prefill, decode, serve, masks");
  refused("storage", {"--sealed"}, "rails");
  refused("rails", {"--of", "batch"}, "growth");
}

// Numbers of a shorter prompt, under the name of the longer one.
TEST(BenchProgram, ServeMeasuresThePromptThatItWasAskedFor) {
  const TestFolder folder;
  const std::string config = folder.file("short.toml"), model = folder.file("short");
  posix_file_system().write_atomic(
      config,
      "[model]\nvocab_size = 64\nhidden = 32\nlayers = 1\nhead_dim = 16\nexpert_hidden = 32\n"
      "router_hidden = 8\nmax_positions = 200\n");
  EXPECT_EQ(run_program(folder.path(), {"import", "--random", config, "--out", model}).exit_code,
            0);
  const auto serve = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "serve", "--model", model, "--concurrency", "1"});
    return run_program(folder.path(), more);
  };
  for (const auto& [more, piece] :
       {std::pair(std::vector<std::string>{"--prompt-tokens", "199"},
                  "--prompt-tokens 199 and --new-tokens 2 are 201 positions"),
        std::pair(std::vector<std::string>{"--new-tokens", "200"}, "--new-tokens 200 are 201"),
        std::pair(std::vector<std::string>{"--prompt-tokens", "150", "--new-tokens", "51"},
                  "was made for 200 (max_positions); lower one")}) {
    const Ended ended = serve(more);
    EXPECT_EQ(ended.exit_code, 10) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(piece), std::string::npos) << ended.err;
  }
  EXPECT_NE(serve({}).out.find(": 100 prompt tokens, 64 new ones"), std::string::npos);
  EXPECT_NE(serve({"--prompt-tokens", "150"}).out.find(": 150 prompt tokens, 50 new ones"),
            std::string::npos);
  EXPECT_NE(serve({"--new-tokens", "180"}).out.find(": 20 prompt tokens, 180 new ones"),
            std::string::npos);
}

TEST(BenchProgram, GrowthHasALineForEachValue) {
  const TestFolder folder;
  posix_file_system().write_atomic(folder.file("tiny.toml"), kTinyRun);
  const auto growth = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "growth", "--config", folder.file("tiny.toml"), "--steps",
                               "1", "--json"});
    return run_program(folder.path(), more);
  };
  const std::vector<Json> lines =
      lines_of(growth({"--of", "experts", "--of", "vocabulary", "--least", "128", "--most", "4096",
                       "--chart", folder.file("g.html")}));
  ASSERT_EQ(lines.size(), 4u);  // 128, 256, and 2048, 4096
  EXPECT_EQ(lines[0].at("value").get<int64_t>(), 128);
  EXPECT_FALSE(lines[0].at("slope").is_number());
  EXPECT_TRUE(lines[1].at("slope").is_number());
  for (const Json& line : lines) EXPECT_GT(line.at("token_us_floor").get<double>(), 0);
  // The head is most of the work of so small a model: twice the words, nearly twice the flops.
  const double few = lines[2].at("token_flops").get<double>(),
               many = lines[3].at("token_flops").get<double>();
  EXPECT_GT(many, few + 0.9 * 6 * 2048 * 32);
  std::string page = posix_file_system().read(folder.file("g.html"));
  const std::string config = folder.file("tiny.toml");
  page.replace(page.find(config), config.size(), "tiny.toml");  // its folder has a random name
  expect_sound(page);
  EXPECT_NE(page.find("as vocabulary grows"), std::string::npos);
  EXPECT_EQ(page.find("as batch grows"), std::string::npos);
}

TEST(BenchProgram, GrowthRefusesBeforeItPrints) {
  const TestFolder folder;
  posix_file_system().write_atomic(folder.file("tiny.toml"), kTinyRun);
  const auto refused = [&](std::vector<std::string> more, const std::string& piece) {
    more.insert(more.begin(), {"bench", "growth", "--config", folder.file("tiny.toml")});
    const Ended ended = run_program(folder.path(), more);
    EXPECT_EQ(ended.exit_code, 10);
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(piece), std::string::npos) << ended.err;
  };
  refused({"--of", "experts", "--least", "9", "--most", "15"},
          "--least 9 --most 15: there lies no value of experts (4 to 256); each is twice");
  // What is asked for by name is not left out without a word.
  refused({"--of", "experts", "batch", "--most", "16"}, "no value of batch (2048 to 65536)");
  refused({"--most", "2"}, "of sequence (1024 to 32768), experts (4 to 256), batch");
  refused({"--of", "width"}, "--of width: wanted sequence");
  refused({"--ranks", "2"}, "--ranks: bench growth does not heed it");
  refused({"--set", "model.layers=0"}, "model.layers");
}

TEST(BenchProgram, APlaceThatCanNotBeWrittenIsFoundBeforeMeasuring) {
  const TestFolder folder;
  posix_file_system().write_atomic(folder.file("tiny.toml"), kTinyRun);
  const std::string model = source_path(kModel), config = folder.file("tiny.toml");
  const std::vector<std::vector<std::string>> all = {
      {"bench", "serve", "--model", model, "--tpot-ms", "0", "--chart"},
      {"bench", "growth", "--config", config, "--of", "experts", "--chart"},
      {"bench", "memory", "--machine"},
      {"bench", "gemm", "--machine"},
      {"bench", "comm", "--machine"},
      {"bench", "step", "--config", config, "--machine"},
      {"bench", "plan", "--config", config, "--machine"},
      {"tokenizer", "train", "--input", config, "--vocab-size", "300", "--out"}};
  for (std::vector<std::string> args : all) {
    args.push_back(config + "/page.html");  // its folder is a file
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 10) << args[1] << ": " << ended.err;
    EXPECT_EQ(ended.out, "") << args[1];
    EXPECT_NE(ended.err.find(config + "/page.html: "), std::string::npos) << ended.err;
  }
}

// It took what the kernel promised, until the kernel ended it without a word.
TEST(BenchProgram, ARunThatTakesMoreThanThereIsIsRefused) {
  const TestFolder folder;
  posix_file_system().write_atomic(folder.file("tiny.toml"), kTinyRun);
  const auto train = [&](const std::string& experts) {
    return run_program(folder.path(),
                       {"bench", "train", "--config", folder.file("tiny.toml"), "--steps", "1",
                        "--set", "model.expert_hidden=8192", "--set", "model.experts=" + experts});
  };
  EXPECT_EQ(train("4").exit_code, 0);
  const Ended ended = train("16000");  // 50 GB of weights, four times that to train
  EXPECT_EQ(ended.exit_code, 10);
  EXPECT_NE(ended.err.find("take memory: the run plans"), std::string::npos) << ended.err;
}

// A rank counts its own operations; what all ranks did is held against what all of them could do.
TEST(BenchProgram, RanksTogetherComputeWhatOneDoes) {
  const TestFolder folder;
  posix_file_system().write_atomic(folder.file("tiny.toml"), kTinyRun);
  const auto operations = [&](const std::string& ranks) {
    const Json step =
        lines_of(run_program(folder.path(), {"bench", "train", "--config", folder.file("tiny.toml"),
                                             "--steps", "2", "--set", "train.slots=2", "--ranks",
                                             ranks, "--threads", "1", "--json"}))
            .at(0);
    EXPECT_GT(step.at("peak_gflop_per_s").get<double>(), 0);
    EXPECT_GT(step.at("percent_of_peak").get<double>(), 0);
    return step.at("gflop_per_s").get<double>() * step.at("step_ms_median").get<double>();
  };
  const double one = operations("1");
  EXPECT_NEAR(operations("2"), one, 0.02 * one);
}

}  // namespace
}  // namespace moraine
