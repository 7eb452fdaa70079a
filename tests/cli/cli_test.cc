// Cli: the built program from outside: exit codes, messages, and one model in every form it can
// have.
//
// Fails if a command crashes or forgets its exit code, if a form of a model computes another bit,
// or if hostile files get further than an error.
#include <fmt/ranges.h>  // fmt::join, in newer versions
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/test_folder.h"
#include "checkpoint/safetensors/file.h"
#include "testing/places.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

std::string golden(const std::string& name) { return testing::source_path("tests/golden/" + name); }

class Cli : public ::testing::Test {
 protected:
  Ended run(const std::vector<std::string>& args, int64_t memory_bytes = 0) const {
    return run_program(folder.path(), args, memory_bytes);
  }

  // The exit code, and every piece in the one line of stderr that says why.
  void expect_error(const std::vector<std::string>& args, int code,
                    const std::vector<std::string>& pieces) const {
    const Ended ended = run(args);
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    EXPECT_EQ(ended.out, "") << args[0];
    for (const std::string& piece : pieces)
      EXPECT_NE(ended.err.find(piece), std::string::npos)
          << "wanted " << piece << "\ngot " << ended.err;
  }
  std::string file(const std::string& name) const { return folder.file(name); }
  std::string must(const std::vector<std::string>& args) const {
    const Ended ended = run(args);
    EXPECT_EQ(ended.exit_code, 0) << args[0] << ": " << ended.err;
    return ended.out;
  }

  TestFolder folder;
  FileSystem& fs = posix_file_system();
};

TEST_F(Cli, HelpOfEveryCommand) {
  const std::vector<std::string> commands = listed_commands(folder.path());
  EXPECT_GE(commands.size(), 16u);
  for (const std::string& command : commands) {
    const std::string help = must({command, "--help"});
    EXPECT_NE(help.find("Exit codes:"), std::string::npos) << command;
    EXPECT_NE(help.find("--help"), std::string::npos) << command;
    EXPECT_EQ(must({command, "-h"}), help);
    EXPECT_EQ(must({"help", command}), help);
  }
  EXPECT_EQ(must({"-h"}), must({"--help"}));
  EXPECT_EQ(must({"help"}), must({"--help"}));
  expect_error({"help", "trian"}, 2, {"no command 'trian'"});
}

TEST_F(Cli, MistypedCommandsAndFlagsNameTheNearest) {
  expect_error({"trian"}, 2, {"no command 'trian'", "did you mean train?"});
  expect_error({"genrate", "--model", "x"}, 2, {"did you mean generate?"});
  expect_error({"train", "--confg", "x"}, 10,
               {"moraine train: ", "unknown argument --confg", "did you mean --config?"});
  expect_error({"generate", "--model", "x", "--top-q=1"}, 10, {"--top-q=1", "did you mean --top-"});
  expect_error({"generate"}, 10, {"--model", "required"});
  expect_error({"generate", "--modle", "x"}, 10, {"--modle", "did you mean --model?"});
  expect_error({"generate", "--model", "x", "Once upon"}, 10,
               {"unknown argument Once upon; a value stands behind its flag"});
  expect_error({"generate", "--model", "x", "--prompt", "a", "--tokens", "5"}, 10,
               {"--prompt and --tokens: wanted one of them"});
  expect_error({"eval", "score", "--model", "x", "--text", "a", "--tokens", "5"}, 10,
               {"--tokens and --text: wanted one of them"});
  expect_error({"generate", "--model", golden("native-tiny"), "--max-tokens", "x", "--tokens", "5"},
               10, {"--max-tokens"});
  expect_error({"generate", "--model", golden("native-tiny"), "--max-tokens=-1", "--tokens", "5"},
               10, {"--max-tokens"});
  expect_error({"eval", "perplexty", "--model", "x"}, 10, {"perplexity"});
  expect_error({"eval", "perplexity", "--model", "x", "--tokens", "5"}, 10,
               {"--tokens: eval perplexity does not heed it; it is of eval score"});
  expect_error({"export", "--model", "x", "--out", "y", "--layout", "natve"}, 10, {"native"});
  expect_error({"serve", "--model", golden("native-tiny"), "--rows", "8"}, 10,
               {"--rows 8: each of --sequences 16 has a row"});
  for (const char* wait : {"queue", "reload", "drain", "ping"})
    expect_error(
        {"serve", "--model", golden("native-tiny"), std::string("--") + wait + "-seconds", "1e10"},
        10, {std::string("--") + wait + "-seconds 10000000000: wanted 1000000000 at most"});
  expect_error({"train"}, 10, {"--config is missing"});
  expect_error({"train", "--config", "x", "--profile-steps", "3"}, 10,
               {"--profile-steps", "without --profile"});
  for (const char* steps : {"0", "-1", "1001", "many"}) {
    expect_error({"train", "--config", "x", "--profile", "--profile-steps", steps}, 10,
                 {"--profile-steps", steps});
  }
  EXPECT_EQ(run({}).exit_code, 2);
}

TEST_F(Cli, MissingThings) {
  expect_error({"train", "--config", file("none.toml")}, 11, {"none.toml"});
  expect_error({"generate", "--model", file("none"), "--tokens", "5"}, 11,
               {"none", "no such directory"});
  expect_error({"inspect", file("none")}, 11, {"no such file or directory"});
  expect_error({"import", "--from", file("none"), "--out", file("x")}, 11, {"none"});
  expect_error(
      {"data", "build", "--tokenizer", file("none"), "--input", file("a.txt"), "--out", file("d")},
      11, {"none"});
  expect_error({"generate", "--model", folder.path(), "--tokens", "5"}, 11,
               {"neither manifest.json"});
  expect_error({"generate", "--model", golden("native-tiny"), "--prompt", "Hello"}, 10,
               {"no tokenizer", "--tokens"});
  expect_error({"generate", "--model", golden("native-tiny"), "--tokens", "5 x"}, 10,
               {"\"x\" is not a token id"});
  expect_error({"generate", "--model", golden("native-tiny"), "--tokens", "5 400"}, 10,
               {"token 400 is not in the vocabulary of 320"});
  expect_error(
      {"generate", "--model", golden("native-tiny"), "--tokens", "5", "--max-tokens", "1000"}, 10,
      {"positions"});
  expect_error({"generate", "--model", golden("native-tiny"), "--tokens", "5", "--dtype", "f16"},
               10, {"dtype f16", "f32 or bf16"});
  expect_error({"generate", "--model", golden("native-tiny"), "--tokens", "5", "--top-p", "7"}, 10,
               {"top_p = 7"});
  expect_error({"eval", "score", "--model", golden("native-tiny")}, 10, {"wanted --tokens"});
  expect_error({"eval", "perplexity", "--model", golden("native-tiny")}, 10,
               {"--input is missing"});
}

// Log-probabilities of fixed tokens by a model; as printed, so to the bit.
std::string score(const std::string& model, const Cli*,
                  const std::function<std::string(const std::vector<std::string>&)>& must) {
  std::string tokens;
  for (int i = 0; i < 60; ++i) tokens += std::to_string(3 + i * 53 % 250) + " ";
  return must({"eval", "score", "--model", model, "--tokens", tokens, "--json"});
}

// Tokenizer, names of special tokens and chat template stand beside the weights, wherever these go.
TEST_F(Cli, WhatAModelSaysAboutTextGoesWithIt) {
  FileSystem& fs = posix_file_system();
  const std::string from = file("from");
  fs.make_directories(from);
  for (const char* name : {"config.json", "model.safetensors"})
    fs.write_atomic(join_path(from, name), fs.read(join_path(golden("native-tiny"), name)));
  const std::pair<const char*, const char*> texts[] = {
      {"tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}"},
      {"tokenizer_config.json", "{\"eos_token\": \"a\"}"},
      {"generation_config.json", "{\"eos_token_id\": [1, 106]}"},
      {"chat_template.jinja", "{{ messages[0].content }}"}};
  for (const auto& [name, text] : texts) fs.write_atomic(join_path(from, name), text);
  must({"import", "--from", from, "--out", file("model")});
  must({"export", "--model", file("model"), "--layout", "native", "--out", file("public")});
  for (const char* folder : {"model", "public"}) {
    for (const auto& [name, text] : texts)
      EXPECT_EQ(fs.read(join_path(file(folder), name)), text) << folder << " " << name;
  }
  // An export beside checkpoints would be read in their place.
  expect_error({"export", "--model", file("model"), "--out", file("model")}, 10,
               {"holds a checkpoint already"});
  fs.make_directories(file("run/step-3"));
  expect_error({"export", "--model", file("model"), "--out", file("run")}, 10,
               {"holds a run already"});
  const Ended refused = run({"generate", "--model", file("model"), "--prompt", "a", "--stop", ""});
  EXPECT_EQ(refused.exit_code, 10) << refused.err;
  EXPECT_EQ(refused.out, "");
}

// What a killed export has left is no part of the next one, and two at once are not one.
TEST_F(Cli, AnExportIsWholeOrNotThere) {
  FileSystem& fs = posix_file_system();
  const std::vector<std::string> args = {"export", "--model", golden("native-tiny"), "--out",
                                         file("public")};
  fs.make_directories(file("public.partial/made"));
  fs.write_atomic(file("public.partial/made/model-00001-of-00009.safetensors"), "cut");
  must(args);
  EXPECT_EQ(fs.list(file("public")),
            (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_FALSE(fs.exists(file("public.partial")));
  expect_error(args, 10, {"holds a model already"});
  fs.make_directories(file("mine"));
  fs.write_atomic(file("mine/notes.txt"), "mine");
  expect_error({"export", "--model", golden("native-tiny"), "--out", file("mine")}, 10,
               {"holds other files already"});
  fs.remove_all(file("mine/notes.txt"));  // an empty one is as good as none
  must({"export", "--model", golden("native-tiny"), "--out", file("mine")});
}

TEST_F(Cli, AnImportRefusesWhatWouldNotWorkLater) {
  FileSystem& fs = posix_file_system();
  const auto random = [&](const std::string& text) {
    fs.write_atomic(file("c.toml"), text);
    return std::vector<std::string>{"import", "--random", file("c.toml"), "--out", file("random")};
  };
  expect_error(random("[modle]\nlayers = 2\n[model]\nvocab_size = 50\n"), 10,
               {"c.toml:1: modle", "did you mean \"model\""});
  expect_error(random("[model]\nvocab_size = 50\n[train]\nsede = 5\n"), 10,
               {"train.sede: unknown key"});
  expect_error(random("[model]\nvocab_size = 50\neos_id = 50\n"), 10,
               {"eos_id = 50 is no token of vocab_size = 50"});
  const std::string from = file("from");
  fs.make_directories(from);
  for (const char* name : {"config.json", "model.safetensors"})
    fs.write_atomic(join_path(from, name), fs.read(join_path(golden("native-tiny"), name)));
  fs.write_atomic(join_path(from, "tokenizer.json"), "junk");
  expect_error({"import", "--from", from, "--out", file("junk")}, 12,
               {from, "tokenizer.json", "to import the model without text, remove its"});
  EXPECT_FALSE(fs.exists(file("junk")));
}

TEST_F(Cli, OneModelInEveryFormGivesTheSameBits) {
  const auto m = [&](const std::vector<std::string>& args) { return must(args); };
  for (const char* name : {"native-tiny", "legacy-tiny", "native-tiny-bf16", "native-swa"}) {
    SCOPED_TRACE(name);
    const std::string n = name, want = score(golden(n), this, m);
    EXPECT_GT(want.size(), 500u);
    must({"import", "--from", golden(n), "--out", file(n)});
    EXPECT_EQ(score(file(n), this, m), want);
    expect_error({"import", "--from", golden(n), "--out", file(n)}, 10, {"exists already"});
    for (const char* layout : {"native", "legacy"}) {
      const std::string out = file(n + "-" + layout);
      const Ended ended = run({"export", "--model", file(n), "--layout", layout, "--out", out});
      if (ended.exit_code == 10 && n == "native-swa")
        continue;  // the older layout knows no windows
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      EXPECT_EQ(score(out, this, m), want) << layout;
      must({"import", "--from", out, "--out", out + "-again"});
      EXPECT_EQ(score(out + "-again", this, m), want) << layout;
    }
    const std::string shards = file(n + "-shards");
    must({"export", "--model", golden(n), "--shard-mib", "1", "--out", shards});
    EXPECT_EQ(score(shards, this, m), want);
    EXPECT_EQ(score(golden(n), this,
                    [&](std::vector<std::string> args) {
                      args.insert(args.end(), {"--threads", "2"});
                      return must(args);
                    }),
              want);
  }
  // The golden legacy folder holds the weights of the native one.
  EXPECT_EQ(score(golden("legacy-tiny"), this, m), score(golden("native-tiny"), this, m));
}

TEST_F(Cli, GreedyTokensAreThoseOfThePublicCode) {
  for (const char* name : {"native-tiny", "legacy-tiny", "native-swa"}) {
    const SafetensorsFile expected =
        SafetensorsFile::open(fs, golden(name) + "/expected.safetensors");
    const SafetensorsEntry &ids = expected.get("input_ids"), &greedy = expected.get("greedy_ids");
    for (int64_t row = 0; row < ids.shape[0]; ++row) {
      const auto values = [&](const SafetensorsEntry& entry) {
        const int64_t* begin = reinterpret_cast<const int64_t*>(entry.data) + row * entry.shape[1];
        return std::vector<int64_t>(begin, begin + entry.shape[1]);
      };
      // The reference went on after the end token; eos ends the answer here.
      std::vector<int64_t> want = values(greedy);
      want.erase(std::find(want.begin(), want.end(), 1), want.end());
      const Json answer =
          parse_json(must({"generate", "--model", golden(name), "--tokens",
                           fmt::format("{}", fmt::join(values(ids), " ")), "--temperature", "0",
                           "--max-tokens", std::to_string(greedy.shape[1]), "--json"}));
      EXPECT_EQ(answer["tokens"].get<std::vector<int64_t>>(), want) << name << " row " << row;
      EXPECT_EQ(answer["logprobs"].size(), want.size());
      EXPECT_EQ(answer["text"], "");
    }
  }
}

// Text to tokenizer to data to a model to text, as in the README.
TEST_F(Cli, FromTextToAnswers) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += tiny_text(static_cast<uint64_t>(i), 1).substr(10, 60) + "\n";
  folder.write("a.txt", text);
  folder.write("b.jsonl", tiny_text(7, 300));
  must({"tokenizer", "train", "--input", file("a.txt"), "--input", file("b.jsonl"), "--vocab-size",
        "300", "--out", file("tok")});
  must({"data", "build", "--tokenizer", file("tok"), "--input", file("b.jsonl"), "--out",
        file("data"), "--valid-fraction", "0.2", "--seed", "3"});
  const std::string data_hash = must({"inspect", file("data") + "/train", "--hash"});
  EXPECT_EQ(data_hash.size(), 33u);
  must({"inspect", file("data") + "/train"});
  Machine machine;
  machine.isa = "test";
  machine.threads = 1;
  machine.f32_gflops = 10, machine.bf16_gflops = 20;
  machine.read_gb_s = machine.copy_gb_s = 10;
  machine.measured_utc = utc_now();
  save_machine(fs, file("machine.json"), machine);
  folder.write("run.toml",
               "[model]\nhidden = 32\nlayers = 2\nheads = 2\nkv_heads = 1\nhead_dim = 16\nexperts "
               "= 4\nexpert_hidden = 24\nrouter_hidden = 16\n"
               "[data]\ntrain = \"" +
                   file("data") + "/train\"\nvalid = \"" + file("data") +
                   "/valid\"\ntokenizer = \"" + file("tok") +
                   "\"\n"
                   "[train]\nslots = 2\nsequence = 32\nbatch_tokens = 128\nsteps = "
                   "6\n[report]\nvalid_tokens = 128\nsample_every_steps = 3\nsample_tokens = 8\n");
  const std::vector<std::string> train = {"train",     "--config",           file("run.toml"),
                                          "--machine", file("machine.json"), "--out"};
  const auto with = [](std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  must({"plan", "memory", "--config", file("run.toml")});
  const Json memory = parse_json(must({"plan", "memory", "--config", file("run.toml"), "--json"}));
  EXPECT_GT(memory["bytes"].get<int64_t>(), 100000);
  const std::string line = must(with(train, {file("run"), "--set", "train.threads=1"}));
  const std::string hash = value_of(line, "hash");
  EXPECT_EQ(hash.size(), 32u);
  EXPECT_EQ(value_of(must(with(train, {file("run2"), "--set", "train.threads=2"})), "hash"), hash);
  EXPECT_EQ(must({"inspect", value_of(line, "checkpoint"), "--hash"}), hash + "\n");
  EXPECT_NE(must({"inspect", file("run")}).find("ok"), std::string::npos);
  must({"inspect", value_of(line, "checkpoint"), "--json"});
  EXPECT_TRUE(fs.exists(file("run") + "/report.html"));

  // The run, its checkpoint and its export answer alike.
  const std::vector<std::string> ask = {"--prompt", "ab",      "--max-tokens", "12",     "--seed",
                                        "4",        "--dtype", "f32",          "--json", "--model"};
  const std::string answer = must(with(with({"generate"}, ask), {file("run")}));
  EXPECT_EQ(must(with(with({"generate"}, ask), {value_of(line, "checkpoint")})), answer);
  must({"export", "--model", file("run"), "--out", file("public"), "--dtype", "f32"});
  const std::string plain = must({"generate", "--model", file("run"), "--prompt", "ab",
                                  "--max-tokens", "12", "--seed", "4", "--dtype", "f32"});
  EXPECT_EQ(plain, "ab" + parse_json(answer)["text"].get<std::string>() + "\n");
  write_file(file("caf\xe9.jsonl"), fs.read(file("b.jsonl")));  // a name in another encoding
  const Json p = parse_json(must({"eval", "perplexity", "--model", file("run"), "--input",
                                  file("caf\xe9.jsonl"), "--context", "32", "--json"}));
  EXPECT_GT(p["bits_per_byte"].get<double>(), 1);
  EXPECT_LT(p["bits_per_byte"].get<double>(), 9);
  EXPECT_NEAR(p["perplexity"].get<double>(), std::exp(p["loss"].get<double>()),
              1e-6 * p["perplexity"].get<double>());
  expect_error({"eval", "perplexity", "--model", file("run"), "--input", file("b.jsonl"),
                "--context", "32", "--stride", "64"},
               10, {"--stride 64 is more than --context 32"});

  // Adapting begins with the run's weights, and changes them.
  std::string toml = fs.read(file("run.toml"));
  toml = toml.substr(toml.find("[data]"));
  folder.write("adapt.toml", toml.replace(toml.find("steps = 6"), 9,
                                          "steps = 2\ninit = \"" + file("run") + "\""));
  const std::string adapted = must({"train", "--config", file("adapt.toml"), "--machine",
                                    file("machine.json"), "--out", file("adapted")});
  EXPECT_NE(value_of(adapted, "hash"), hash);
  EXPECT_LT(std::stod(value_of(adapted, "loss")), std::log(300.0));
  const auto total = [&](const std::string& model) {
    return parse_json(must({"eval", "score", "--model", model, "--tokens", "5 6 7 8", "--dtype",
                            "f32", "--json"}))["total"]
        .get<double>();
  };
  EXPECT_NE(total(file("adapted")), total(file("run")));
  // With a rate of almost nothing it computes almost the run's numbers.
  must({"train", "--config", file("adapt.toml"), "--machine", file("machine.json"), "--out",
        file("still"), "--set", "optimizer.learning_rate=1e-12", "--set",
        "optimizer.balance_learning_rate=1e-12"});
  EXPECT_NEAR(total(file("still")), total(file("run")), 1e-6);
}

// A public folder too: train.init from a golden model.
TEST_F(Cli, AdaptsAPublicModel) {
  const TinyRun tiny(file("tiny"));
  folder.write("adapt.toml", "[data]\ntrain = \"" + tiny.root() + "/a\"\n[train]\ninit = \"" +
                                 golden("native-tiny") +
                                 "\"\nslots = 2\nsequence = 32\nbatch_tokens = 128\nsteps = "
                                 "3\ndtype = \"f32\"\n[optimizer]\nlearning_rate = 1e-3\n");
  const std::string line = must({"train", "--config", file("adapt.toml"), "--machine",
                                 tiny.root() + "/machine.json", "--out", file("out")});
  // Another shape is not that model's, whatever else is said of it.
  for (const char* other : {"model.hidden=16", "model.rope_theta=1234", "model.vocab_size=320"})
    expect_error(
        {"train", "--config", file("adapt.toml"), "--machine", tiny.root() + "/machine.json",
         "--out", file("other"), "--set", "model.vocab_size=300", "--set", other},
        10, {"the shape comes with the model: leave [model] out"});
  EXPECT_FALSE(posix_file_system().exists(file("other")));
  const auto m = [&](const std::vector<std::string>& args) { return must(args); };
  EXPECT_NE(score(file("out"), this, m), score(golden("native-tiny"), this, m));
  EXPECT_EQ(must({"inspect", value_of(line, "checkpoint"), "--hash"}),
            value_of(line, "hash") + "\n");
}

// ---------------------------------------------------------------------------------- hostile files

constexpr int64_t kLittleMemory =
    int64_t{2} << 30;  // of address space; what a tiny model needs, threads included

class Hostile : public Cli {
 protected:
  void SetUp() override {
    fs.make_directories(file("m"));
    for (const char* name : {"config.json", "model.safetensors"})
      folder.write(std::string("m/") + name, fs.read(golden("native-tiny") + "/" + name));
  }
  // An error of the program, not a crash, in little memory.
  void expect_refused(const std::vector<std::string>& args) const {
    const Ended ended = run(args, kLittleMemory);
    EXPECT_TRUE(ended.exit_code >= 10 && ended.exit_code <= 13) << ended.exit_code << "\n"
                                                                << ended.err;
    EXPECT_NE(("\n" + ended.err).find("\nmoraine " + args[0] + ": "), std::string::npos)
        << ended.err;
    EXPECT_EQ(ended.err.find("out of memory"), std::string::npos) << ended.err;
  }
  void expect_all_refuse() const {
    expect_refused(
        {"generate", "--model", file("m"), "--tokens", "5", "--threads", "1", "--max-tokens", "4"});
    expect_refused({"import", "--from", file("m"), "--out", file("imported")});
    EXPECT_FALSE(fs.exists(file("imported")));
  }
};

TEST_F(Hostile, TheModelItselfIsFine) {
  EXPECT_EQ(run({"generate", "--model", file("m"), "--tokens", "5", "--threads", "1",
                 "--max-tokens", "4"},
                kLittleMemory)
                .exit_code,
            0);
}

TEST_F(Hostile, CutAndEmptyWeights) {
  const std::string bytes = fs.read(file("m/model.safetensors"));
  for (const size_t n :
       {size_t{0}, size_t{7}, size_t{8}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    SCOPED_TRACE(n);
    folder.write("m/model.safetensors", bytes.substr(0, n));
    expect_all_refuse();
    expect_refused({"inspect", file("m")});
  }
  for (const char* header : {"\xff\xff\xff\xff\xff\xff\xff\x7f", "\xff\xff\xff\x05\0\0\0\0{}"}) {
    folder.write("m/model.safetensors", std::string(header, 8) + "{\"a\":");
    expect_all_refuse();
  }
  fs.remove_all(file("m/model.safetensors"));
  expect_all_refuse();
}

// What a file says goes to the terminal as one line of text.
TEST_F(Hostile, NamesInMessagesMoveNoCursor) {
  const std::string header =
      R"({"a\u001b[2J\nforged":{"dtype":"F32","shape":[5],"data_offsets":[0,4]}})";
  const int64_t bytes = static_cast<int64_t>(header.size());
  folder.write("m/model.safetensors",
               std::string(reinterpret_cast<const char*>(&bytes), 8) + header + "1234");
  expect_error({"inspect", file("m")}, 12, {"a\\x1b[2J\\nforged", "needs 20"});
}

TEST_F(Hostile, AbsurdConfigs) {
  const std::string good = fs.read(file("m/config.json"));
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "num_experts", "moe_intermediate_size", "router_hidden_size", "vocab_size",
        "max_position_embeddings", "rms_norm_eps", "rope_parameters", "layer_types", "model_type",
        "num_experts_per_tok"}) {
    for (const char* value : {"0", "-1", "3", "1000000000", "9223372036854775807", "1e300", "null",
                              "\"x\"", "[]", "{}", "true"}) {
      Json config = parse_json(good);
      config[key] = parse_json(value);
      folder.write("m/config.json", json_text(config));
      const Ended ended = run({"generate", "--model", file("m"), "--tokens", "5", "--threads", "1",
                               "--max-tokens", "2"},
                              kLittleMemory);
      EXPECT_TRUE(ended.exit_code == 0 || (ended.exit_code >= 10 && ended.exit_code <= 13))
          << key << " = " << value << ": " << ended.exit_code << "\n"
          << ended.err;
      EXPECT_EQ(ended.err.find("out of memory"), std::string::npos)
          << key << " = " << value << ": " << ended.err;
    }
  }
  for (const char* text : {"", "{", "[]", "5", "null", "{}", "{\"model_type\":\"zaya\"}",
                           "{\"model_type\":\"llama\"}", "\xff\xfe"}) {
    SCOPED_TRACE(text);
    folder.write("m/config.json", text);
    expect_all_refuse();
  }
  folder.write("m/config.json", std::string(200000, '['));
  expect_all_refuse();
}

// Numbers that no double holds, and values that are printed in a message.
TEST_F(Hostile, UncaughtJson) {
  const std::string good = fs.read(file("m/config.json"));
  const auto with = [&](const std::string& member) {
    return "{" + member + "," + good.substr(good.find('{') + 1);
  };
  for (const std::string& text : {with("\"x\": 1e999"), with("\"x\": -1e999")}) {
    folder.write("m/config.json", text);
    expect_all_refuse();
  }
  Json config = parse_json(good);
  config.erase("hidden_act");
  std::string text = json_text(config);
  text = "{\"hidden_act\": " + std::string(100'000, '[') + std::string(100'000, ']') + "," +
         text.substr(1);
  folder.write("m/config.json", text);
  expect_all_refuse();
  expect_error({"train", "--config", file("none.toml"), "--machine", "x"}, 11, {"none.toml"});
}

// A kilobyte that describes 33 million tensors.
TEST_F(Hostile, AConfigOfMoreTensorsThanTheFilesHold) {
  for (const char* name : {"config.json", "model.safetensors"})
    folder.write(std::string("m/") + name, fs.read(golden("legacy-tiny") + "/" + name));
  Json config = parse_json(fs.read(file("m/config.json")));
  config["num_hidden_layers"] = 512;
  config["num_experts"] = 4000;
  folder.write("m/config.json", json_text(config));
  const Ended ended = run({"generate", "--model", file("m"), "--tokens", "5"}, kLittleMemory);
  EXPECT_EQ(ended.exit_code, 10);
  EXPECT_NE(ended.err.find("at least 2048000 tensors"), std::string::npos) << ended.err;
}

TEST_F(Hostile, ForeignFoldersAreNotRemoved) {
  fs.make_directories(file("new.partial"));
  folder.write("new.partial/diary", "mine");
  expect_error({"import", "--from", file("m"), "--out", file("new")}, 10,
               {"diary", "none of ours"});
  EXPECT_EQ(fs.read(file("new.partial/diary")), "mine");
  EXPECT_FALSE(fs.exists(file("new")));
}

// Bits flipped in the config and in the header of the weights: an answer or an Error.
TEST_F(Hostile, FlippedBytes) {
  const std::string config = fs.read(file("m/config.json")),
                    weights = fs.read(file("m/model.safetensors"));
  int refused = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    std::string c = config, w = weights;
    std::string& broken = seed % 2 == 0 ? c : w;
    for (uint64_t i = 0; i < 1 + seed % 3; ++i) {
      const size_t at =
          random_below(std::min<uint64_t>(broken.size(), 9000), seed, Stream::kTest, 4, 2 * i);
      broken[at] =
          static_cast<char>(broken[at] ^ (1 << random_below(8, seed, Stream::kTest, 4, 2 * i + 1)));
    }
    folder.write("m/config.json", c);
    folder.write("m/model.safetensors", w);
    const Ended ended = run(
        {"generate", "--model", file("m"), "--tokens", "5", "--threads", "1", "--max-tokens", "2"},
        kLittleMemory);
    EXPECT_TRUE(ended.exit_code == 0 || (ended.exit_code >= 10 && ended.exit_code <= 13))
        << "seed " << seed << ": " << ended.exit_code << "\n"
        << ended.err;
    refused += ended.exit_code != 0;
  }
  EXPECT_GT(refused, 60);
}

TEST_F(Hostile, BrokenTokenizersAndConfigsOfRuns) {
  for (const char* text : {"{", "[]", "{}", "{\"model\":{\"type\":\"BPE\"}}", "\xff"}) {
    folder.write("m/tokenizer.json", text);
    expect_refused({"generate", "--model", file("m"), "--tokens", "5"});
  }
  folder.write("run.toml",
               "[model]\nhidden = 1048576\nlayers = 4096\nexperts = 65536\nexpert_hidden = "
               "1048576\n[data]\ntrain = \"x\"\n[train]\nsteps = 1\n");
  expect_refused({"plan", "memory", "--config", file("run.toml")});
  expect_refused({"train", "--config", file("run.toml"), "--out", file("out")});
  folder.write("run.toml", std::string(100000, '['));
  expect_refused({"train", "--config", file("run.toml"), "--out", file("out")});
  folder.write("run.toml", "");
  expect_refused({"train", "--config", file("run.toml"), "--out", file("out")});
  fs.make_directories(file("run/step-5"));
  folder.write("run/step-5/manifest.json", "{\"version\": 1}");
  expect_refused({"generate", "--model", file("run"), "--tokens", "5"});
  expect_refused({"inspect", file("run/step-5")});
}

}  // namespace
}  // namespace moraine
