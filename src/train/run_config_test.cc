// Fails if the printed config reads back as another one, a rule between keys is not kept, a message
// does not name the key and the remedy, or broken text does anything but give an Error.
#include "train/run_config.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/file_system.h"
#include "base/random.h"
#include "testing/places.h"
#include "train/complete_config.h"

namespace moraine {
namespace {

RunConfig parse(const std::string& text) {
  return read_run_config(SettingsTable::parse(text, "run.toml"));
}

const char* const kData = "[data]\ntrain = \"d\"\n";

void expect_error(const std::string& text, const std::vector<std::string>& pieces) {
  try {
    parse(text);
    ADD_FAILURE() << "no error: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
    for (const std::string& piece : pieces) {
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos)
          << "wanted: " << piece << "\ngot:    " << e.what();
    }
  }
}

void expect_round_trip(const std::string& text) {
  const RunConfig config = parse(text);
  const std::string printed = print_run_config(config);
  RunConfig again;
  ASSERT_NO_THROW(again = parse(printed)) << printed;
  EXPECT_EQ(print_run_config(again), printed);
  EXPECT_EQ(answer_text(again), answer_text(config));
  ASSERT_EQ(again.phases.size(), config.phases.size());
  for (size_t p = 0; p < config.phases.size(); ++p) {
    const PhaseConfig &a = config.phases[p], &b = again.phases[p];
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.steps, b.steps);
    EXPECT_EQ(a.sequence, b.sequence);
    EXPECT_EQ(a.batch_tokens, b.batch_tokens);
    EXPECT_EQ(a.rope_theta, b.rope_theta);
    EXPECT_EQ(a.learning_rate, b.learning_rate);
    ASSERT_EQ(a.train.size(), b.train.size());
    for (size_t i = 0; i < a.train.size(); ++i) {
      EXPECT_EQ(a.train[i].path, b.train[i].path);
      EXPECT_EQ(a.train[i].weight, b.train[i].weight);
    }
  }
  EXPECT_EQ(again.report.sample_prompt, config.report.sample_prompt);
  EXPECT_EQ(again.data.valid, config.data.valid);
  EXPECT_EQ(again.optimizer.learning_rate, config.optimizer.learning_rate);
}

TEST(RunConfig, PrintedReadsBackTheSame) {
  expect_round_trip(std::string(kData) + "[train]\ntokens = 1000000\n");
  expect_round_trip(std::string(kData) +
                    "[train]\nsteps = 7\nramp_tokens = [100, 200]\nramp_batch_tokens = [4096, "
                    "8192]\ntime_limit_seconds = 1e-9\n");
  expect_round_trip("[model]\nshape = \"zaya1-74b\"\nexperts = 8\nsliding_layers = [1, 2]\n" +
                    std::string(kData) + "[train]\ntokens = 1\n");
  expect_round_trip(
      "[data]\ntrain = [{path = \"a b\", weight = 0.1}, {path = \"c,d]}\", weight = 3}]\nvalid = "
      "\"v\"\n"
      "[optimizer]\nlearning_rate = 0.1234567890123456789\neps = 1e-29\nmatrices = "
      "\"adamw\"\nbeta2 = 0.3\n"
      "[[phase]]\ntokens = 5\n"
      "[[phase]]\ntokens = 6\nsequence = 1024\nrope_theta = 1e6\nlearning_rate = 1e-3\ntrain = "
      "[{path = \"x\"}, {path = \"y\", weight = 1e-9}]\n"
      "[[phase]]\ntokens = 1000000000000000000\nbatch_tokens = 32768\ntrain = \"z\"\n");
}

TEST(RunConfig, OddTextReadsBackTheSame) {
  for (const char* text : {"plain", "it's", "say \\\"no\\\"", "both ' and \\\"", "back\\\\slash",
                           "tab\\tand\\nnew line", "\\n", "a\\nb\\nc", "'''", "\\\"\\\"\\\"",
                           "'''\\\"\\\"\\\"\\n", "\\u0001\\u007f", "# no comment", "[x]", "a = 1",
                           "\\u00e9\\U0001F600", " spaces ", "\\r\\n", "ends in \\\\"}) {
    SCOPED_TRACE(text);
    const std::string quoted = fmt::format("\"{}\"", text);
    expect_round_trip("[data]\ntrain = " + quoted + "\nvalid = " + quoted +
                      "\n[train]\ntokens = 1\n[report]\nsample_prompt = " + quoted + "\n");
    expect_round_trip("[data]\ntrain = [{path = " + quoted +
                      ", weight = 2}, {path = \"other\"}]\n[[phase]]\ntokens = "
                      "1\n[[phase]]\ntokens = 1\ntrain = " +
                      quoted + "\n");
  }
}

TEST(RunConfig, ShapesThatNoKernelHoldsAreRefused) {
  const std::string length = std::string(kData) + "[train]\ntokens = 1\n";
  expect_error(length + "[model]\nexperts = 20000\n", {"model", "20001", "16384"});
  expect_error(length + "[model]\nheads = 4096\nhead_dim = 64\n",
               {"3 * (heads + kv_heads)", "786816", "524288"});
  expect_error(length + "[model]\nattention = \"gqa\"\nheads = 4096\nhead_dim = 64\n",
               {"model", "262272 channels"});
  expect_error(length + "[model]\nhidden = 200000\n", {"4 * hidden", "800000", "524288"});
  expect_error(length + "[model]\nrouter_hidden = 300000\n", {"2 * router_hidden", "524288"});
}

// A run of an earlier version goes on; what a person writes has the key of now.
TEST(RunConfig, FormerKeysAreRefusedWithTheKeyOfNowAndReadFromWhatWasSaved) {
  const std::string text = std::string(kData) +
                           "[train]\ntokens = 1048576\n"
                           "[parallel]\nwire = \"bf16\"\n";
  expect_error(text, {"run.toml:6: parallel.wire", "called \"parallel.reduce_dtype\" now"});
  const RunConfig saved = read_saved_config(text, "saved");
  EXPECT_EQ(saved.parallel.reduce_dtype, ReduceDType::kBF16);
  const std::string printed = print_run_config(saved);
  EXPECT_NE(printed.find("reduce_dtype = 'bf16'"), std::string::npos) << printed;
  EXPECT_EQ(printed.find("wire"), std::string::npos) << printed;
  EXPECT_EQ(parse(printed).parallel.reduce_dtype, ReduceDType::kBF16);
}

TEST(RunConfig, UnknownKeysNameTheNearest) {
  expect_error(std::string(kData) + "[train]\ntokens = 1\nbatch_token = 5\n",
               {"run.toml:5: train.batch_token", "unknown key", "did you mean \"batch_tokens\"?"});
  expect_error(std::string(kData) + "[trian]\ntokens = 1\n",
               {"run.toml:3: trian", "did you mean \"train\"?"});
  expect_error("[model]\nhiden = 8\n" + std::string(kData),
               {"run.toml:2: model.hiden", "\"hidden\""});
  expect_error("[data]\ntrian = \"x\"\n", {"data.trian", "\"train\""});
  expect_error("[data]\ntrain = [{path = \"a\", wight = 2}]\n",
               {"data.train[0].wight", "\"weight\""});
  expect_error(std::string(kData) + "[[phase]]\ntokens = 1\nrope_teta = 5\n",
               {"phase[0].rope_teta", "\"rope_theta\""});
  expect_error(std::string(kData) + "[optimizer]\nmatrices = \"moun\"\n[train]\ntokens = 1\n",
               {"optimizer.matrices = \"moun\"", "\"muon\", \"adamw\"", "nearest: \"muon\""});
}

TEST(RunConfig, WrongTypesAndRanges) {
  expect_error(std::string(kData) + "[train]\ntokens = \"1\"\n",
               {"run.toml:4: train.tokens", "found a string, wanted an integer"});
  expect_error(std::string(kData) + "[train]\ntokens = 1.5\n",
               {"train.tokens", "wanted an integer"});
  expect_error(std::string(kData) + "[train]\ntokens = 1\nclip_norm = nan\n",
               {"train.clip_norm = nan", "allowed is from 0"});
  expect_error(std::string(kData) + "[train]\ntokens = 1\ndtype = 5\n",
               {"train.dtype", "wanted text in quotes"});
  expect_error(std::string(kData) + "[optimizer]\nnesterov = 1\n",
               {"optimizer.nesterov", "wanted true or false"});
  expect_error(std::string(kData) + "[train]\ntokens = 1\nramp_tokens = 5\n",
               {"train.ramp_tokens", "wanted a list of integers"});
  expect_error("train = 5\n" + std::string(kData), {"run.toml:1: train", "wanted a table"});
  expect_error("phase = 5\n" + std::string(kData), {"phase", "wanted a list of tables"});
  expect_error("phase = [1]\n" + std::string(kData), {"phase", "wanted a list of tables"});
  expect_error("[data]\ntrain = 5\n", {"data.train", "wanted a list of tables"});
  expect_error("[data]\ntrain = [{weight = 1}]\n", {"data.train[0].path", "missing"});
  expect_error("[data]\ntrain = [{path = \"a\", weight = 0}]\n",
               {"data.train[0].weight = 0", "allowed is from"});
  expect_error(std::string(kData) + "[train]\ntokens = -1\n",
               {"train.tokens = -1", "allowed is from 0"});
  expect_error(std::string(kData) + "[train]\ntokens = 99999999999999999999\n", {"run.toml:4"});
  expect_error(std::string(kData) + "[parallel]\nexpert = 0\n[train]\ntokens = 1\n",
               {"parallel.expert = 0", "allowed is from 1 to 65536"});
  expect_error("[train\n", {"run.toml:1"});
}

TEST(RunConfig, RulesBetweenKeys) {
  const std::string data = kData;
  expect_error(data + "[train]\ntokens = 1\ndevice = \"warp\"\n",
               {"run.toml:5: train.device = warp", "emulated:RULE"});
  expect_error(
      data + "[train]\ntokens = 1\nslots = 2\nsequence = 10\nbatch_tokens = 50\n",
      {"train.batch_tokens = 50", "a multiple of slots * sequence = 2 * 10 = 20", "nearest: 60"});
  expect_error(data + "[train]\ntokens = 1\nslots = 2\nsequence = 10\nbatch_tokens = 3\n",
               {"nearest: 20"});
  expect_error(data + "[train]\ntokens = 1\nsteps = 1\n", {"train.steps", "one of the two"});
  expect_error(data + "[train]\nslots = 8\n", {"how long is the run?"});
  expect_error(data + "[train]\ntokens = 1\n[[phase]]\ntokens = 1\n",
               {"train.tokens", "each phase has its own tokens"});
  expect_error(data + "[[phase]]\nsequence = 512\n", {"phase[0].tokens is missing"});
  expect_error("[train]\ntokens = 1\n", {"data.train", "wanted a dataset directory"});
  expect_error(data + "[train]\ntokens = 1\nramp_tokens = [1]\n",
               {"ramp_tokens", "1 entries, but ramp_batch_tokens has 0"});
  expect_error(
      data + "[train]\ntokens = 1\nramp_tokens = [5, 5]\nramp_batch_tokens = [4096, 4096]\n",
      {"ramp_tokens", "must ascend"});
  expect_error(data + "[train]\ntokens = 1\nramp_tokens = [5]\nramp_batch_tokens = [4097]\n",
               {"ramp_batch_tokens = 4097", "nearest: 4096"});
  expect_error(data + "[train]\ntokens = 1\nmicro_sequences = 3\n",
               {"train.micro_sequences = 3", "a slot has 4 sequences"});
  expect_error(data + "[[phase]]\ntokens = 1\nbatch_tokens = 4097\n",
               {"phase[0].batch_tokens = 4097"});
  expect_error(data + "[[phase]]\ntokens = 1\nsequence = 4096\n",
               {"phase[0].sequence: train.batch_tokens = 16384", "8 * 4096"});
  expect_error(data +
                   "[train]\nramp_tokens = [5]\nramp_batch_tokens = [4096]\n[[phase]]\ntokens = "
                   "1\nsequence = 2048\n",
               {"phase[0].sequence: train.ramp_batch_tokens = 4096", "8 * 2048"});
  expect_error(data + "[train]\nsteps = 1000000000000000000\n", {"tokens; the limit is 1e+18"});
  expect_error("[model]\nheads = 4\nkv_heads = 3\n" + data,
               {"run.toml", "model", "heads = 4 is not divisible by kv_heads = 3"});
  expect_error("[model]\nhead_dim = 10\n" + data,
               {"rotary_fraction = 0.5 of head_dim = 10 rotates 5 channels", "must be even"});
  expect_error("[model]\nhead_dim = 3\nkv_heads = 1\nrotary_fraction = 0.6667\n" + data,
               {"kv_heads * head_dim = 3 is odd"});
  expect_error("[model]\nlayers = 4096\nexperts = 257\n" + data,
               {"layers = 4096 of experts = 257 have 1052672 experts; the limit is 1048576"});
  expect_error("[model]\nexperts = 2\nexperts_per_token = 3\n" + data,
               {"experts_per_token = 3 is more than experts = 2"});
  expect_error("[model]\nsliding_layers = [1]\n" + data, {"sliding_window = 0"});
  expect_error("[model]\nlayers = 2\nsliding_window = 4\nsliding_layers = [2]\n" + data,
               {"sliding_layers holds 2, but layers = 2"});
  expect_error("[model]\nshape = \"zaya1-9b\"\n" + data,
               {"model.shape", "unknown shape \"zaya1-9b\"", "zaya1-8b"});
}

// The first made every weight NaN, the second stopped at a check.
TEST(RunConfig, ARateWithoutItsUnitAndABatchBeyondCountingAreRefused) {
  expect_error(std::string(kData) +
                   "[optimizer]\nlearning_rate = 0\n[[phase]]\ntokens = 1\nlearning_rate = 1e-3\n",
               {"phase[0].learning_rate = 0.001", "optimizer.learning_rate, which is 0"});
  expect_error(
      std::string(kData) + "[train]\nsteps = 1\nbatch_tokens = 72057594037927936\n",
      {"train.batch_tokens = 72057594037927936", "9007199254740992 positions; at most 4294967296"});
}

TEST(RunConfig, SequencesFitTheModelsPositions) {
  const std::string model = "[model]\nmax_positions = 512\n" + std::string(kData);
  EXPECT_NO_THROW(check_positions(parse(model + "[train]\ntokens = 1\nsequence = 512\n")));
  const auto refused = [&](const std::string& text, const std::string& piece) {
    const RunConfig config = parse(model + text);  // a saved one is still read
    try {
      check_positions(config);
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  };
  refused(
      "[train]\ntokens = 1\nsequence = 1024\n",
      "train.sequence = 1024: the model is for documents of at most model.max_positions = 512;");
  refused("[[phase]]\ntokens = 1\n[[phase]]\ntokens = 1\nsequence = 1024\n",
          "phase[1].sequence = 1024");
  refused("[train]\ntokens = 1\nsequence = 1024\ninit = \"m\"\n", "512 (of train.init = m)");
}

TEST(RunConfig, SetWinsOverTheFile) {
  SettingsTable settings =
      SettingsTable::parse(std::string(kData) + "[train]\ntokens = 1\n", "run.toml");
  settings.set("train.tokens=5");
  settings.set("model.hidden=64");
  settings.set("train.dtype=f32");
  settings.set("data.valid=some path");
  settings.set("optimizer.learning_rate=1e-3");
  const RunConfig config = read_run_config(settings);
  EXPECT_EQ(config.train.tokens, 5);
  EXPECT_EQ(config.train.dtype, Precision::kF32);
  EXPECT_EQ(config.data.valid, "some path");
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
  for (const char* bad : {"", "=", "x", "=5", ".=1", "train.=1", "..=1", "train.tokens.x=1"})
    EXPECT_THROW(settings.set(bad), Error) << bad;
}

// What must not matter for resuming does not; everything else does.
TEST(RunConfig, AnswerTextHoldsWhatDecidesTheAnswer) {
  const std::string text = std::string(kData) + "[train]\ntokens = 1000\n";
  const RunConfig base = parse(text);
  const std::string want = answer_text(base);
  const auto changed = [&](const std::function<void(RunConfig&)>& change) {
    RunConfig c = base;
    change(c);
    return answer_text(c) != want;
  };
  EXPECT_FALSE(changed([](RunConfig& c) { c.train.threads = 5; }));
  EXPECT_FALSE(changed([](RunConfig& c) { c.train.recompute = Recompute::kLayer; }));
  EXPECT_FALSE(changed([](RunConfig& c) { c.train.time_limit_seconds = 5; }));
  EXPECT_FALSE(changed([](RunConfig& c) { c.report.valid_every_steps = 5; }));
  EXPECT_FALSE(changed([](RunConfig& c) { c.checkpoint.keep = 5; }));
  EXPECT_FALSE(
      changed([](RunConfig& c) { c.data.train[0].path = c.phases[0].train[0].path = "e"; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.train.tokens = 5; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.train.seed = 5; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.train.dtype = Precision::kF32; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.train.slots = 4; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.train.device = "emulated:sm_90"; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.train.micro_sequences = 1; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.model.hidden = 5; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.optimizer.beta1 = 0.5; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.spike.sigma = 5; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.data.train[0].weight = 5; }));
  EXPECT_TRUE(changed([](RunConfig& c) { c.data.pack = false; }));
}

// Cut, flipped and shuffled text of real configs: a config or an Error.
TEST(RunConfig, BrokenTextGivesAnErrorOnly) {
  const std::string text =
      "# A run.\n[model]\nhidden = 256\nlayers = 6\nattention = \"cca\"\n\n[data]\ntrain = "
      "\"data/demo/train\"\nvalid = 'v'\npack = true\n\n"
      "[train]\nslots = 4\nsequence = 512\nbatch_tokens = 16384\nramp_tokens = "
      "[500_000]\nramp_batch_tokens = [8192]\n\n"
      "[optimizer]\nlearning_rate = 4e-3\n\n[report]\nvalid_every_steps = 50 # "
      "often\n\n[[phase]]\ntokens = 11_000_000\n"
      "[[phase]]\ntokens = 5\nsequence = 1024\nrope_theta = 1e6\ntrain = [{path = \"x\", weight = "
      "2}, {path = 'y'}]\n";
  ASSERT_NO_THROW(parse(text));
  int64_t configs = 0, errors = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    std::string broken = text;
    uint64_t index = 0;
    const auto below = [&](uint64_t n) { return random_below(n, seed, Stream::kTest, 9, index++); };
    for (uint64_t edits = 1 + below(4); edits > 0 && !broken.empty(); --edits) {
      const size_t at = below(broken.size());
      switch (below(5)) {
        case 0:
          broken.resize(at + 1);
          break;
        case 1:
          broken[at] = static_cast<char>(below(256));
          break;
        case 2:
          broken.erase(at, below(20));
          break;
        case 3:
          broken.insert(at, broken.substr(below(broken.size()), below(30)));
          break;
        default:
          broken[at] = "[]{}=\"'\n,.0-9e"[below(14)];
          break;
      }
    }
    try {
      print_run_config(parse(broken));
      ++configs;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument) << e.what();
      EXPECT_FALSE(std::string(e.what()).empty());
      ++errors;
    }
  }
  EXPECT_GT(configs, 50);
  EXPECT_GT(errors, 1000);
}

TEST(RunConfig, DocumentedKeysAreThePage) {
  EXPECT_EQ(document_run_config(),
            posix_file_system().read(testing::source_path("docs/configuration.md")));
}

TEST(RunConfig, ARunThatBeganWithoutAWarmUpOfTheBiasesGoesOnWithoutOne) {
  const std::string began =
      "[data]\ntrain = \"none\"\n[train]\nsteps = 2\n[optimizer]\nmomentum = 0.9\n";
  EXPECT_EQ(read_saved_config(began, "saved").optimizer.balance_warmup_steps, 0);
  EXPECT_EQ(read_run_config(SettingsTable::parse(began, "new")).optimizer.balance_warmup_steps,
            100);
  const std::string later = began + "balance_warmup_steps = 7\n";
  EXPECT_EQ(read_saved_config(later, "saved").optimizer.balance_warmup_steps, 7);
}

}  // namespace
}  // namespace moraine
