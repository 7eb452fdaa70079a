// Eval: the built program's evaluation of texts, datasets and questions.
//
// Fails if a number is not the one that follows from log-probabilities of single tokens, or if a bad file is not named
// by its line.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/test_folder.h"
#include "model/model_directory.h"
#include "model/write_model.h"
#include "tests/program.h"
#include "tests/tiny_run.h"
#include "train/metrics.h"

namespace moraine {
namespace {

using namespace testing;

class EvalProgram : public ::testing::Test {
 protected:
  // A model of initial weights with a tokenizer of 300 tokens, of which 0 ends a text.
  void SetUp() override {
    folder.write("a.jsonl", tiny_text(7, 200));
    must({"tokenizer", "train", "--input", file("a.jsonl"), "--vocab-size", "300", "--out",
          file("tok")});
    ModelConfig config;
    config.hidden = 32, config.layers = 2, config.heads = 2, config.kv_heads = 1;
    config.head_dim = 16, config.experts = 4, config.expert_hidden = 24, config.router_hidden = 16;
    config.vocab_size = 300, config.max_positions = 128, config.init_std = 0.2;
    config.eos_id = 0;
    const ParameterTable table = build_parameters(config);
    std::vector<float> weights(static_cast<size_t>(table.total_count));
    const Tensor master = make_tensor(weights.data(), DType::kF32, {table.total_count});
    initialize_parameters(table, config, 1, master);
    const CheckpointFile tokenizer = {"tokenizer.json",
                                      posix_file_system().read(file("tok") + "/tokenizer.json")};
    write_model_directory(posix_file_system(), file("model"),
                          {.config = config,
                           .weights = weights_in(master),
                           .dtype = DType::kF32,
                           .language_files = {&tokenizer, 1}});
  }
  std::string file(const std::string& name) const { return folder.file(name); }
  Ended run(const std::vector<std::string>& args) const { return run_program(folder.path(), args); }
  std::string must(const std::vector<std::string>& args) const {
    const Ended ended = run(args);
    EXPECT_EQ(ended.exit_code, 0) << args[0] << ": " << ended.err;
    return ended.out;
  }
  Json eval(const std::string& action, std::vector<std::string> more) const {
    more.insert(more.begin(), {"eval", action, "--model", file("model"), "--json"});
    return parse_json(must(more));
  }
  void expect_refused(const std::vector<std::string>& args,
                      const std::vector<std::string>& pieces) {
    const Ended ended = run(args);
    EXPECT_EQ(ended.exit_code, 10) << ended.err;
    for (const std::string& piece : pieces)
      EXPECT_NE(ended.err.find(piece), std::string::npos) << piece << "\n" << ended.err;
  }
  // Sum of log-probabilities of the tokens of `text` past those of `context`.
  double sum(const std::string& context, const std::string& text) const {
    const Json whole = eval("score", {"--text", text}), part = eval("score", {"--text", context});
    double total = 0;
    for (size_t i = part["tokens"].size(); i < whole["tokens"].size(); ++i)
      total += whole["logprobs"][i].get<double>();
    return total;
  }

  TestFolder folder;
};

TEST_F(EvalProgram, ChoiceIsWhatTheTokensSay) {
  const std::vector<std::string> contexts = {"ab hov", "chm joty: ", "x", "zz q"};
  const std::vector<std::string> choices = {" abc", " hov joty", " a"};
  std::string lines;
  double hits = 0, hits_norm = 0;
  for (size_t q = 0; q < contexts.size(); ++q) {
    std::string context = contexts[q], kept = context;
    if (kept.back() == ' ') kept.pop_back();
    size_t best = 0, best_norm = 0;
    std::vector<double> values;
    for (const std::string& choice : choices) values.push_back(sum(kept, context + choice));
    for (size_t i = 1; i < choices.size(); ++i) {
      const auto norm = [&](size_t j) {
        return values[j] / static_cast<double>(choices[j].size());
      };
      if (values[i] > values[best]) best = i;
      if (norm(i) > norm(best_norm)) best_norm = i;
    }
    const size_t answer = q == 0 ? best : best_norm;
    hits += best == answer, hits_norm += best_norm == answer;
    lines +=
        json_text(Json({{"context", context}, {"choices", choices}, {"answer", answer}})) + "\n\n";
  }
  folder.write("q.jsonl", lines);
  const Json got = eval("choice", {"--input", file("q.jsonl")});
  EXPECT_EQ(got["questions"], 4);
  EXPECT_EQ(got["acc"], hits / 4);
  EXPECT_EQ(got["acc_norm"], hits_norm / 4);
  const double p = hits / 4;
  EXPECT_NEAR(got["acc_stderr"].get<double>(), std::sqrt(4 * p * (1 - p) / 3) / 2, 1e-15);
  EXPECT_EQ(got["truncated"], 0);
  EXPECT_EQ(got["bos"], false);
  EXPECT_EQ(value_of(must({"eval", "choice", "--model", file("model"), "--input", file("q.jsonl")}),
                     "acc"),
            fmt::format("{:.4f}", p));
  // One question has no deviation.
  folder.write("one.jsonl", lines.substr(0, lines.find('\n')));
  EXPECT_TRUE(eval("choice", {"--input", file("one.jsonl")})["acc_stderr"].is_null());
}

TEST_F(EvalProgram, ChoiceSaysWhatItCutsAndWhatIsWrong) {
  const std::string good = R"({"context": "ab", "choices": [" c", " d"], "answer": 0})";
  std::string words;
  for (int i = 0; i < 200; ++i) words += " " + std::to_string(i);
  folder.write("long.jsonl",
               good + "\n" +
                   json_text(Json({{"context", words}, {"choices", {" c", " d"}}, {"answer", 1}})) +
                   "\n");
  const Ended ended =
      run({"eval", "choice", "--model", file("model"), "--input", file("long.jsonl"), "--json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(parse_json(ended.out)["truncated"], 2);
  EXPECT_NE(ended.err.find("2 of 4 choices are longer than 127 tokens"), std::string::npos)
      << ended.err;
  EXPECT_NE(ended.err.find("long.jsonl, line 2"), std::string::npos) << ended.err;

  const auto refused = [&](const std::string& text, const std::vector<std::string>& pieces) {
    folder.write("bad.jsonl", text);
    expect_refused({"eval", "choice", "--model", file("model"), "--input", file("bad.jsonl")},
                   pieces);
  };
  refused(good + "\n\n{\"context\": 5}\n", {"bad.jsonl, line 3", "'context'", "wanted {"});
  refused(good + "\n{\"context\"", {"bad.jsonl, line 2"});
  refused("\n", {"no question in it"});
  refused(good + "\n\xff\n", {"line 2", "invalid UTF-8"});
  refused(json_text(Json({{"context", "a"}, {"choices", {words, " d"}}, {"answer", 1}})),
          {"line 1", "--max-length"});
  folder.write("a.txt", "text");
  expect_refused({"eval", "choice", "--model", file("model"), "--input", file("a.txt")},
                 {"a.txt", "wanted .jsonl"});
  expect_refused({"eval", "choice", "--model", file("model")}, {"--input is missing"});
  expect_refused({"eval", "choice", "--model", file("model"), "--input", file("long.jsonl"),
                  "--max-length", "129"},
                 {"129", "128 positions"});
}

TEST_F(EvalProgram, AFileThatIsReadIsToldOnceAtItsEnd) {
  ASSERT_EQ(run_shell(folder.path(), "gzip -k '" + file("a.jsonl") + "'").exit_code, 0);
  for (const std::string name : {"a.jsonl", "a.jsonl.gz"}) {
    const Ended ended =
        run({"eval", "perplexity", "--model", file("model"), "--input", file(name)});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const std::string bytes =
        format_count(static_cast<double>(posix_file_system().file_bytes(file(name))));
    const std::string all = fmt::format(": {}/{} B", bytes, bytes);
    const size_t at = ended.err.find(all);
    ASSERT_NE(at, std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find("eval ", at), std::string::npos) << ended.err;
  }
}

TEST_F(EvalProgram, PerplexityOfShardsAndWithABegin) {
  const std::string text = "ab hov joty chm";
  folder.write("t.txt", text);
  const std::vector<std::string> window = {"--context", "64"};
  const auto perplexity = [&](std::vector<std::string> more) {
    more.insert(more.end(), window.begin(), window.end());
    return eval("perplexity", more);
  };
  const Json plain = perplexity({"--input", file("t.txt")});
  const Json tokens = eval("score", {"--text", text});
  const double n = plain["tokens"].get<double>();
  EXPECT_EQ(plain["tokens"], tokens["tokens"].size());
  EXPECT_EQ(plain["bos"], false);
  EXPECT_NEAR(plain["loss"].get<double>() * n, std::log(300.0) - tokens["total"].get<double>(),
              1e-9);

  // Nothing that is scored is no perfect score.
  folder.write("empty.txt", "");
  const Json nothing = perplexity({"--input", file("empty.txt")});
  EXPECT_EQ(nothing["tokens"], 0);
  EXPECT_TRUE(nothing["loss"].is_null() && nothing["perplexity"].is_null());
  EXPECT_NE(must({"eval", "perplexity", "--model", file("model"), "--input", file("empty.txt")})
                .find("tokens=0 bytes=0 loss=N/A perplexity=N/A bits_per_byte=N/A"),
            std::string::npos);

  // The same text as a shard has its end as one token more.
  must({"data", "build", "--tokenizer", file("tok"), "--input", file("t.txt"), "--out",
        file("shards")});
  const Json shards = perplexity({"--data", file("shards")});
  EXPECT_EQ(shards["tokens"].get<double>(), n + 1);
  EXPECT_EQ(shards["data"], file("shards"));
  EXPECT_EQ(shards["bytes"], text.size());
  EXPECT_EQ(shards["documents"], 1);
  std::string ids;
  for (const Json& id : tokens["tokens"]) ids += json_text(id) + " ";
  EXPECT_NEAR(shards["loss"].get<double>() * (n + 1),
              std::log(300.0) - eval("score", {"--tokens", ids + "0"})["total"].get<double>(),
              1e-9);

  // This tokenizer has no token that begins a text.
  expect_refused(
      {"eval", "perplexity", "--model", file("model"), "--input", file("t.txt"), "--bos", "yes"},
      {"--bos yes"});
  must({"tokenizer", "train", "--input", file("a.jsonl"), "--vocab-size", "290", "--out",
        file("other")});
  must({"data", "build", "--tokenizer", file("other"), "--input", file("t.txt"), "--out",
        file("foreign")});
  expect_refused({"eval", "perplexity", "--model", file("model"), "--data", file("foreign")},
                 {"foreign", "another tokenizer"});
}

TEST_F(EvalProgram, CompareSaysHowFarAModelIsFromAnother) {
  const std::string model = file("model");
  must({"import", "--from", model, "--out", file("bf16"), "--dtype", "bf16"});
  const auto compare = [&](const std::string& other, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"eval",        "compare", "--model", other,
                                     "--reference", model,     "--input", file("a.jsonl"),
                                     "--context",   "64",      "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return parse_json(must(args));
  };
  const Json same = compare(model, {});
  EXPECT_EQ(same.at("kl").get<double>(), 0);
  EXPECT_EQ(same.at("top1_agreement").get<double>(), 1);
  EXPECT_EQ(same.at("route_flips").get<double>(), 0);
  EXPECT_EQ(same.at("route_flips_by_layer").size(), 2u);
  const Json other = compare(file("bf16"), {"--max-tokens", "500"});
  EXPECT_EQ(other.at("tokens").get<int64_t>(), 500);
  EXPECT_GT(other.at("kl").get<double>(), 0);
  EXPECT_LT(other.at("kl").get<double>(), 0.01);
  const std::string text = must({"eval", "compare", "--model", file("bf16"), "--reference", model,
                                 "--input", file("a.jsonl"), "--max-tokens", "100"});
  EXPECT_NE(text.find("tokens=100 loss_reference="), std::string::npos) << text;
  EXPECT_NE(text.find("route flips by layer, percent:"), std::string::npos) << text;
  expect_refused({"eval", "compare", "--model", model, "--input", file("a.jsonl")},
                 {"--reference DIR"});
  expect_refused({"eval", "compare", "--model", model, "--reference", model, "--input",
                  file("a.jsonl"), "--ranks", "2"},
                 {"one rank"});
  folder.write("empty.txt", "");
  expect_refused(
      {"eval", "compare", "--model", model, "--reference", model, "--input", file("empty.txt")},
      {"empty.txt", "no document of two tokens"});
}

// It was scored with a total of 0, and went on with words.
TEST_F(EvalProgram, PredictionsThatAreNotNumbersAreNoAnswer) {
  const ModelDirectory from = ModelDirectory::open(posix_file_system(), file("model"));
  const ParameterTable table = build_parameters(from.config());
  const int64_t bad = table.find("model.norm.weight")->offset;
  write_model_directory(posix_file_system(), file("nan"),
                        {.config = from.config(),
                         .weights =
                             [&](int64_t begin, const Tensor& out) {
                               from.read_elements(table, begin, out);
                               if (begin <= bad && bad < begin + out.count())
                                 out.as<float>()[bad - begin] = NAN;
                             },
                         .dtype = DType::kF32,
                         .language_files = from.language_files()});
  folder.write("q.jsonl", "{\"context\": \"a b\", \"choices\": [\" c\", \" d\"], \"answer\": 0}\n");
  const auto expect = [&](int code, std::vector<std::string> args) {
    args.insert(args.end(), {"--model", file("nan")});
    const Ended ended = run_program(folder.path(), args);
    EXPECT_EQ(ended.exit_code, code) << args[1] << ": " << ended.err;
    EXPECT_NE(ended.err.find("not a number"), std::string::npos) << ended.err;
  };
  expect(14, {"eval", "score", "--tokens", "1 2 3"});
  expect(14, {"eval", "perplexity", "--input", file("a.jsonl"), "--context", "16"});
  expect(14, {"eval", "choice", "--input", file("q.jsonl")});
  expect(10, {"generate", "--tokens", "1 2 3", "--max-tokens", "3"});
  expect(10, {"generate", "--tokens", "1 2 3", "--max-tokens", "3", "--json"});
  const Ended compared =
      run_program(folder.path(), {"eval", "compare", "--model", file("nan"), "--reference",
                                  file("model"), "--input", file("a.jsonl"), "--context", "16"});
  EXPECT_EQ(compared.exit_code, 14);
  EXPECT_NE(compared.err.find("the model that is compared are not"), std::string::npos)
      << compared.err;
}

}  // namespace
}  // namespace moraine
