// Device: `generate`, `eval` and `train` on an emulated GPU, from outside.
//
// Fails if the answer is not the CPU's within rounding, if it depends on chunks, if a generation has not its own bits,
// if a model packed as integers is not what computes, if a run does not go on where it began, or if what has no
// kernel for GPUs, no GPU, a cut driver, or a flag that is not heeded, is not said at the start.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/test_folder.h"
#include "testing/places.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

using Args = std::vector<std::string>;

class DeviceCli : public ::testing::Test {
 protected:
  Ended run(Args args, const Args& more) const {
    args.insert(args.end(), more.begin(), more.end());
    args.insert(args.end(), {"--model", model});
    return run_program(folder.path(), args);
  }
  Json must(const Args& args, const Args& more) const {
    const Ended ended = run(args, more);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return parse_json(ended.out, "answer");
  }
  void expect_refused(const Args& args, const Args& more, const Args& pieces) const {
    const Ended ended = run(args, more);
    EXPECT_EQ(ended.exit_code, 10);
    for (const std::string& piece : pieces)
      EXPECT_NE(ended.err.find(piece), std::string::npos) << piece << "\n" << ended.err;
  }

  TestFolder folder;
  std::string model = source_path("tests/golden/native-tiny");
};

const Args kGenerate = {"generate", "--tokens",      "5 6 7 8 9", "--max-tokens",
                        "4",        "--temperature", "0",         "--json"};
const Args kScore = {"eval",    "score", "--tokens", "5 6 7 8 9 10 11 12 13 14 15 16 17",
                     "--dtype", "f32",   "--json"};

// A loss in f32 is within 2e-6 of the public implementation's (model/model_test.cc), on either.
TEST_F(DeviceCli, AnEmulatedGpuScoresAndContinuesAsTheCpuDoes) {
  const Json cpu = must(kScore, {}), gpu = must(kScore, {"--device", "emulated:cdna2"});
  EXPECT_NEAR(gpu["total"].get<double>() / 12, cpu["total"].get<double>() / 12, 2 * 2e-6);
  EXPECT_NE(gpu["logprobs"], cpu["logprobs"]);  // so it was not the CPU
  const Json plain = must(kGenerate, {"--dtype", "f32", "--device", "emulated:plain"}),
             other = must(kGenerate, {"--dtype", "f32"});
  EXPECT_EQ(plain["tokens"], other["tokens"]);
}

TEST_F(DeviceCli, AGenerationHasOneAnswerInAnyChunks) {
  const Args bf16 = {"--dtype", "bf16", "--device", "emulated:sm_80"};
  const Json whole = must(kGenerate, bf16);
  Args chunked = bf16;
  chunked.insert(chunked.end(), {"--chunk", "2"});
  EXPECT_EQ(must(kGenerate, chunked), whole);
  EXPECT_NE(must(kGenerate, {"--dtype", "bf16", "--device", "emulated:sm_90"})["logprobs"],
            whole["logprobs"]);
}

// Packs of integers are what computes there, alone and in chunks, for `generate` as for `eval`; the CPU's answer is as
// near as two roundings of rows to bf16 and to 8 bits let it be (model/packed_gpu_test.cc), which takes no other token.
TEST_F(DeviceCli, AModelPackedAsIntegersAnswers) {
  const Args device = {"--device", "emulated:sm_90"};
  const auto pack = [&](const char* type) {
    model = source_path("tests/golden/native-tiny");
    const Ended packed =
        run({"quantize", "--out", folder.file(type), "--type", type, "--no-report"}, {});
    EXPECT_EQ(packed.exit_code, 0) << packed.err;
    model = folder.file(type);
  };
  pack("q8");
  const Json q8 = must(kGenerate, device);
  EXPECT_EQ(q8["tokens"], must(kGenerate, {})["tokens"]);
  pack("q4");
  const Json q4 = must(kGenerate, device);
  EXPECT_EQ(q4["tokens"], must(kGenerate, {})["tokens"]);
  EXPECT_NE(q4["logprobs"], q8["logprobs"]);
  EXPECT_EQ(must(kGenerate, {device[0], device[1], "--chunk", "2"}), q4);
  EXPECT_EQ(must(kGenerate, {device[0], device[1], "--ranks", "2"}),
            q4);  // each has its experts' packs
  std::string tokens = "5 6 7 8 9";
  for (const Json& id : q4["tokens"]) tokens += " " + json_text(id);
  const Json scored = must({"eval", "score", "--tokens", tokens, "--json"}, device)["logprobs"];
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(scored[scored.size() - 4 + i], q4["logprobs"][i]) << i;
}

// Ranks divide experts, of which each has its own in its device's memory.
TEST_F(DeviceCli, RanksHaveTheAnswerOfOne) {
  const auto on = [](Args args, const char* device, const char* ranks) {
    args.insert(args.end(), {"--device", device, "--ranks", ranks});
    return args;
  };
  const Args bf16 = {"--dtype", "bf16"};
  const Json one = must(on(kGenerate, "emulated:cdna3", "1"), bf16);
  for (const char* ranks : {"2", "4"})
    EXPECT_EQ(must(on(kGenerate, "emulated:cdna3", ranks), bf16), one) << ranks;
  EXPECT_EQ(must(on(kScore, "emulated:sm_90", "2"), {}),
            must(on(kScore, "emulated:sm_90", "1"), {}));
  expect_refused(on(kGenerate, "emulated:plain", "2"), {"--share-cache"},
                 {"a model on a GPU", "tree_attention", "--device cpu"});
}

// The flag is a key of the run's config, which a run that goes on must have as well.
TEST_F(DeviceCli, ARunTrainsOnAnEmulatedGpuAndStaysThere) {
  const TinyRun tiny(folder.path() + "/tiny");
  write_file(folder.path() + "/run.toml",
             tiny.toml("[train]\nsteps = 1\nslots = 1\nsequence = 16\nbatch_tokens = 16\n"
                       "threads = 1\n[optimizer]\nmatrices = \"adamw\"\n"));
  const auto train = [&](const Args& more) {
    Args args = {"train", "--config",  folder.path() + "/run.toml",         "--out",
                 "out",   "--machine", folder.path() + "/tiny/machine.json"};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(folder.path(), args);
  };
  const Ended first = train({"--device", "emulated:cdna3"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.out.find("done step=1"), std::string::npos) << first.out;
  EXPECT_NE(first.err.find("device: emulated cdna3, wave 64"), std::string::npos) << first.err;
  const Ended elsewhere = train({});
  EXPECT_EQ(elsewhere.exit_code, 10);
  EXPECT_NE(elsewhere.err.find("a run must go on as it began"), std::string::npos) << elsewhere.err;
  const Ended planned = train({"--device", "emulated:cdna3", "--set", "parallel.plan=\"auto\""});
  EXPECT_EQ(planned.exit_code, 10);
  EXPECT_NE(planned.err.find("works on the CPU alone"), std::string::npos) << planned.err;
}

// What a run draws in between is what `generate` draws from its checkpoint, on the same GPU.
TEST_F(DeviceCli, ARunsSampleIsGenerates) {
  const auto must_run = [&](const Args& args) {
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended;
  };
  const auto file = [&](const char* name) { return folder.file(name); };
  write_file(file("a.jsonl"), tiny_text(7, 200));
  must_run({"tokenizer", "train", "--input", file("a.jsonl"), "--vocab-size", "300", "--special",
            "<|endoftext|>", "--out", file("tok")});
  must_run({"data", "build", "--tokenizer", file("tok"), "--input", file("a.jsonl"), "--out",
            file("d")});
  write_file(file("run.toml"),
             "[model]\nhidden = 16\nlayers = 1\nheads = 2\nkv_heads = 1\nhead_dim = 8\n"
             "experts = 2\nexpert_hidden = 8\nrouter_hidden = 8\n[data]\ntrain = \"" +
                 file("d") + "\"\ntokenizer = \"" + file("tok") +
                 "\"\n[train]\nsteps = 1\nslots = 1\nsequence = 16\nbatch_tokens = 16\n"
                 "threads = 1\ndtype = \"bf16\"\nseed = 5\n[optimizer]\nmatrices = \"adamw\"\n"
                 "[report]\nsample_every_steps = 1\nsample_tokens = 4\n"
                 "sample_prompt = \"ab hov\"\n");
  const Args device = {"--device", "emulated:cdna3"};
  const TinyRun tiny(file("tiny"));  // its machine file
  const Ended trained = must_run({"train", "--config", file("run.toml"), "--out", file("run"),
                                  "--machine", file("tiny/machine.json"), device[0], device[1]});
  const Ended drawn = must_run({"generate", "--model", file("run"), "--prompt", "ab hov",
                                "--max-tokens", "4", "--temperature", "0.8", "--top-p", "0.95",
                                "--seed", "5", "--dtype", "bf16", device[0], device[1]});
  EXPECT_GT(drawn.out.size(), std::string("ab hov\n").size());
  EXPECT_NE(trained.err.find("--- sample at step 1\n" + drawn.out + "---\n"), std::string::npos)
      << trained.err << drawn.out;
}

TEST_F(DeviceCli, WhatIsNotThereIsSaidAtTheStart) {
  expect_refused(kGenerate, {"--device", "warp"}, {"device warp", "emulated:RULE"});
  expect_refused(kGenerate, {"--device", "emulated:plain", "--head", "two-stage"},
                 {"a model on a GPU", "linear_forward_panels", "--device cpu"});
  const Ended gpu = run(kGenerate, {"--device", "gpu"});
  if (gpu.err.find("no driver is on this machine") == std::string::npos) {
    // A machine with a driver: the program has no kernels for it.
    EXPECT_NE(gpu.err.find("this program has no kernels in it"), std::string::npos) << gpu.err;
  }
  EXPECT_NE(gpu.exit_code, 0);
}

// A flag that is not heeded is no flag: whoever gave it would read numbers of the CPU as a device's.
TEST_F(DeviceCli, AFlagThatIsNotHeededIsRefused) {
  const std::string config = folder.file("run.toml");
  for (const char* device : {"foo", "emulated:cdna3"}) {
    for (const char* what : {"train", "decode", "serve", "plan"}) {
      const Ended bench = run_program(folder.path(), {"bench", what, "--device", device});
      EXPECT_EQ(bench.exit_code, 10) << what;
      for (const std::string& piece :
           {std::string("--device ") + device, std::string("bench ") + what,
            std::string("bench gpu alone takes a device")})
        EXPECT_NE(bench.err.find(piece), std::string::npos) << piece << "\n" << bench.err;
    }
    for (const char* action : {"memory", "step", "shape", "cluster", "reliability"}) {
      const Ended plan =
          run_program(folder.path(), {"plan", action, "--config", config, "--device", device});
      EXPECT_EQ(plan.exit_code, 10) << action;
      EXPECT_NE(plan.err.find("plan memory --model DIR alone takes a device"), std::string::npos)
          << plan.err;
    }
  }
  expect_refused({"plan", "memory"}, {"--device", "foo"}, {"device foo", "emulated:RULE"});
}

// As of an installation that broke off; the loader would end the process by a signal.
TEST_F(DeviceCli, ADriverThatIsCutIsNamed) {
  const std::string lib = folder.file("lib"), driver = lib + "/libcuda.so.1";
  const Ended cut =
      run_shell(folder.path(), "mkdir '" + lib + "'\nhead -c 5000 \"$M\" > '" + driver +
                                   "'\nLD_LIBRARY_PATH='" + lib + "' \"$M\" bench gpu");
  EXPECT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_NE(cut.out.find(driver + ": the file is cut: it has 5000 bytes"), std::string::npos)
      << cut.out << cut.err;
  EXPECT_EQ(cut.out.find("use --device cpu"), std::string::npos) << cut.out;
}

}  // namespace
}  // namespace moraine
