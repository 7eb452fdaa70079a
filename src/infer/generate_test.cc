// Fails if chunks, batch or sampling order change a token, a log-probability is not the scorer's to the bit, a
// stop string leaks, or a bad request is not refused.
#include "infer/generate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "infer/test_engine.h"
#include "model/loaded_model.h"
#include "testing/places.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

constexpr int64_t kPositions = 96;

std::unique_ptr<LoadedModel> load(const std::string& dtype, int64_t threads = 1,
                                  int64_t tokens = 64) {
  LoadOptions options;
  options.dtype = dtype;
  options.threads = threads;
  options.tokens = tokens;
  options.positions = kPositions;
  options.cache.pages = 6;
  options.cache.page_rows = 16;
  return LoadedModel::open(
      ModelDirectory::open(posix_file_system(), testing::source_path("tests/golden/native-tiny")),
      options);
}

GenerateResult run(LoadedModel& m, const Request& request, const Tokenizer* tokenizer = nullptr,
                   const std::function<void(const std::string&)>& on_text = {}) {
  return generate({m.ctx(), m.model(), m.cache(), tokenizer}, request, on_text);
}

Request request(double temperature = 1, int64_t max_tokens = 40) {
  Request r;
  for (int32_t i = 0; i < 37; ++i) r.prompt.push_back(3 + i * 29 % 300);
  r.max_tokens = max_tokens;
  r.sampling.temperature = temperature;
  r.sampling.seed = 5;
  return r;
}

class Generate : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, Generate, ::testing::Values("f32", "bf16"));

TEST_P(Generate, ChunksAndThreadsChangeNothing) {
  const auto m = load(GetParam()), two = load(GetParam(), 2);
  const GenerateResult want = run(*m, request());
  EXPECT_EQ(want.tokens.size(), 40u);
  EXPECT_EQ(want.finish_reason, "length");
  for (const int64_t chunk : {1, 2, 3, 7, 36, 37, 38}) {
    const GenerateResult got = run(*load(GetParam(), 1, chunk), request());
    EXPECT_EQ(got.tokens, want.tokens) << chunk;
    EXPECT_EQ(got.logprobs, want.logprobs) << chunk;
  }
  const GenerateResult got = run(*two, request());
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
}

TEST_P(Generate, TokensAreShownOneByOneWithoutATokenizer) {
  const auto m = load(GetParam());
  std::vector<std::string> shown;
  const GenerateResult got =
      run(*m, request(1, 5), nullptr, [&](const std::string& piece) { shown.push_back(piece); });
  ASSERT_EQ(got.tokens.size(), 5u);
  ASSERT_EQ(shown.size(), 5u);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(shown[i], fmt::format("{}{}", i > 0 ? " " : "", got.tokens[i]));
  EXPECT_EQ(got.text, "");
}

TEST_P(Generate, LogprobsAreTheScorersToTheBit) {
  const auto m = load(GetParam(), 1, kPositions);
  for (const double temperature : {0.0, 0.7, 1.5}) {
    const Request r = request(temperature);
    const GenerateResult got = run(*m, r);
    std::vector<int32_t> ids = r.prompt;
    ids.insert(ids.end(), got.tokens.begin(), got.tokens.end());
    const std::vector<double> scores = scores_of(m->ctx(), m->model(), ids);
    ASSERT_EQ(got.logprobs.size(), got.tokens.size());
    for (size_t i = 0; i < got.tokens.size(); ++i)
      EXPECT_EQ(got.logprobs[i], scores[r.prompt.size() - 1 + i]) << i;
  }
}

TEST_P(Generate, AnswersDependOnTheSeedAlone) {
  const auto m = load(GetParam());
  Request r = request();
  const GenerateResult first = run(*m, r);
  r.sampling.seed = 6;
  EXPECT_NE(run(*m, r).tokens, first.tokens);
  r.sampling.seed = 5;
  EXPECT_EQ(run(*m, r).tokens, first.tokens) << "the cache must not remember";
  r.max_tokens = 11;  // a shorter answer is the beginning of the longer one
  const GenerateResult shorter = run(*m, r);
  EXPECT_EQ(shorter.tokens, std::vector<int32_t>(first.tokens.begin(), first.tokens.begin() + 11));
  // Going on from there is the same text again.
  Request rest = r;
  rest.prompt.insert(rest.prompt.end(), shorter.tokens.begin(), shorter.tokens.end());
  rest.max_tokens = 29;
  EXPECT_EQ(run(*m, rest).tokens,
            std::vector<int32_t>(first.tokens.begin() + 11, first.tokens.end()));
}

TEST_P(Generate, EndTokenEndsAndIsNotPartOfTheAnswer) {
  const auto m = load(GetParam());
  Request r = request(0);
  const GenerateResult free = run(*m, r);
  r.end_ids = {free.tokens[9]};
  const auto first = std::find(free.tokens.begin(), free.tokens.end(), r.end_ids[0]);
  const GenerateResult got = run(*m, r);
  EXPECT_EQ(got.tokens, std::vector<int32_t>(free.tokens.begin(), first));
  EXPECT_EQ(got.logprobs.size(), got.tokens.size());
  EXPECT_EQ(got.finish_reason, "stop");
}

TEST_P(Generate, LimitsAndRefusals) {
  const auto m = load(GetParam());
  EXPECT_TRUE(run(*m, request(1, 0)).tokens.empty());
  EXPECT_EQ(run(*m, request(1, 0)).finish_reason, "length");
  EXPECT_EQ(run(*m, request(1, kPositions - 37)).tokens.size(),
            static_cast<size_t>(kPositions - 37));
  const auto refused = [&](const char* piece, const std::function<void(Request&)>& change) {
    Request r = request();
    change(r);
    try {
      run(*m, r);
      ADD_FAILURE() << piece;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  };
  refused("more than the 96 positions", [](Request& r) { r.max_tokens = kPositions - 36; });
  refused("more than the 96 positions", [](Request& r) { r.max_tokens = INT64_MAX; });
  refused("more than the 96 positions", [](Request& r) { r.prompt.resize(1000, 5); });
  refused("the prompt is empty", [](Request& r) { r.prompt.clear(); });
  refused("token 320 is not in the vocabulary of 320", [](Request& r) { r.prompt[3] = 320; });
  refused("token -1 is not in the vocabulary", [](Request& r) { r.prompt[3] = -1; });
  refused("max_tokens = -1", [](Request& r) { r.max_tokens = -1; });
  refused("stop strings need a tokenizer", [](Request& r) { r.stop = {"x"}; });
  refused("a stop string is empty", [](Request& r) { r.stop = {""}; });
  refused("top_p = 2", [](Request& r) { r.sampling.top_p = 2; });
}

// A tokenizer whose token i is a letter or two, so that stop strings cross tokens.
std::unique_ptr<Tokenizer> letters() {
  std::string vocabulary;
  for (int i = 0; i < 320; ++i) {
    std::string text = {static_cast<char>('a' + i % 3), static_cast<char>('a' + i / 3 % 26),
                        static_cast<char>('a' + i / 78)};
    vocabulary += fmt::format("{}\"{}\":{}", i == 0 ? "" : ",", text, i);
  }
  return Tokenizer::parse(
      "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"post_"
      "processor\":null,"
      "\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"vocab\":{" +
          vocabulary + "},\"merges\":[]}}",
      "letters");
}

// As Llama 2's: the first space of a text is dropped, of which an answer is no beginning.
TEST_P(Generate, TheTextIsWhatTheAnswerAddsToThePrompts) {
  std::string vocabulary = "\"▁a\":0,\"b\":1";
  for (int i = 2; i < 320; ++i) vocabulary += fmt::format(",\"▁w{}\":{}", i, i);
  const auto tokenizer = Tokenizer::parse(
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,
      "decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},
      {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
      "model":{"type":"BPE","vocab":{)" +
          vocabulary + R"(},"merges":[]}})",
      "words");
  const auto m = load(GetParam());
  const GenerateResult got = run(*m, request(), tokenizer.get());
  const std::vector<int32_t> prompt = request().prompt;
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), got.tokens.begin(), got.tokens.end());
  EXPECT_EQ(tokenizer->decode(prompt, true) + got.text, tokenizer->decode(all, true));
  ASSERT_GT(got.tokens.front(), 1);
  EXPECT_EQ(got.text[0], ' ');
}

TEST_P(Generate, StopStringsCutTheTextAndNeverLeak) {
  const auto m = load(GetParam());
  const auto tokenizer = letters();
  const GenerateResult free = run(*m, request(), tokenizer.get());
  ASSERT_EQ(free.text, tokenizer->decode(free.tokens, true));
  ASSERT_EQ(free.text.size(), 120u);
  for (size_t at = 0; at < 100; at += 3) {
    for (const size_t length : {1, 2, 4, 9}) {
      Request r = request();
      r.stop = {"never found", free.text.substr(at, length)};
      std::string streamed;
      const GenerateResult got = run(*m, r, tokenizer.get(), [&](const std::string& piece) {
        EXPECT_FALSE(piece.empty());
        streamed += piece;
      });
      EXPECT_EQ(got.text, free.text.substr(0, free.text.find(r.stop[1]))) << r.stop[1];
      EXPECT_EQ(streamed, got.text);
      EXPECT_EQ(got.finish_reason, "stop");
      EXPECT_EQ(got.tokens, std::vector<int32_t>(
                                free.tokens.begin(),
                                free.tokens.begin() + static_cast<int64_t>(got.tokens.size())));
    }
  }
  // One that begins but does not come: held back, then given out.
  Request r = request();
  r.stop = {free.text.substr(110) + "?"};
  std::string streamed;
  const auto show = [&](const std::string& piece) { streamed += piece; };
  EXPECT_EQ(run(*m, r, tokenizer.get(), show).text, free.text);
  EXPECT_EQ(streamed, free.text);
}

}  // namespace
}  // namespace moraine
