// Completions: every field of /v1/completions, its answer and its errors.
// Fails if a field is misread or silently ignored, or if an answer has another form than OpenAI's.
#include "server/completions.h"

#include <gtest/gtest.h>

#include "server/chat_format.h"
#include "server/completions_format.h"
#include "server/test_server.h"

namespace moraine {
namespace {

using testing::SseStream;
using testing::TestServer;

const char* const kPath = "/v1/completions";

TEST(Completions, AnswersWithTextAndUsage) {
  TestServer server;
  const Json answer =
      server.post_json(kPath, {{"model", "tiny"}, {"prompt", "Once"}, {"max_tokens", 100}});
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "Hello world, this is text.");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], server.tokenizer->encode("Once", true).size());
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(answer["system_fingerprint"], "step-1");
}

TEST(Completions, TakesEveryKindOfPrompt) {
  TestServer server;
  for (const Json& prompt :
       {Json("ab"), Json({"ab", "cd"}), Json({1, 2, 3}), Json({{1, 2}, {3}})}) {
    const Json answer = server.post_json(kPath, {{"prompt", prompt}});
    const size_t count = prompt.is_array() && !prompt[0].is_number() ? prompt.size() : 1;
    ASSERT_EQ(answer["choices"].size(), count) << answer;
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(answer["choices"][i]["index"], i);
  }
  const auto& requests = server.generator->requests;
  EXPECT_EQ(requests[3].prompt, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_FALSE(requests[1].let_in);
  EXPECT_TRUE(requests[2].let_in) << "the second prompt is let in with the first";
  EXPECT_EQ(requests[1].others_tokens, requests[2].prompt.size()) << "which counts for both";
  EXPECT_EQ(requests[4].others_tokens, 1);
}

TEST(Completions, SpecialTokensInTextAreTokensUnlessToldOtherwise) {
  TestServer server;
  server.post(kPath, {{"prompt", "<|end|>"}});
  server.post(
      kPath,
      {{"prompt", "<|end|>"}, {"parse_special_tokens", false}, {"add_special_tokens", false}});
  const auto& requests = server.generator->requests;
  EXPECT_EQ(requests[0].prompt, (std::vector<int32_t>{server.tokenizer->id_of("<|end|>")}));
  EXPECT_EQ(requests[1].prompt, server.tokenizer->encode_ordinary("<|end|>"));
}

// Only text of special tokens is read in another way: what stands around a text is the tokenizer's own.
TEST(Completions, OrdinaryTextHasTheSameTokensAroundIt) {
  TestServer server;
  const auto prompts_of = [&](const std::string& text) {
    server.generator->requests.clear();
    for (const bool parse : {true, false})
      server.post(kPath, {{"prompt", text}, {"parse_special_tokens", parse}});
    return server.generator->requests;
  };
  const auto bare = prompts_of("ab");  // a tokenizer that puts nothing around a text
  ASSERT_EQ(bare.size(), 2u);
  EXPECT_EQ(bare[1].prompt, bare[0].prompt);

  auto model = server.model("step-2");
  model->tokenizer = Tokenizer::load(posix_file_system(),
                                     testing::source_path("tests/golden/tokenizer/llama3.json"));
  ASSERT_NE(model->tokenizer->encode("ab", true), model->tokenizer->encode("ab", false));
  server.app->model().replace(model);
  const auto framed = prompts_of("ab");
  EXPECT_EQ(framed[0].prompt, model->tokenizer->encode("ab", true));
  EXPECT_EQ(framed[1].prompt, framed[0].prompt);
  const Json tokens =
      server.post_json("/tokenize", {{"prompt", "ab"}, {"parse_special_tokens", false}});
  EXPECT_EQ(tokens["tokens"], Json(framed[0].prompt));
}

// Clients send it for the most likely token, as the protocol allows.
TEST(Completions, SpecialTokensOfAnAnswerShowIfTheyAreAskedFor) {
  TestServer server;
  server.generator->script = "a<|end|>b";
  EXPECT_EQ(server.post_json(kPath, {{"prompt", "x"}})["choices"][0]["text"], "ab");
  EXPECT_EQ(server.post_json(
                kPath, {{"prompt", "x"}, {"skip_special_tokens", false}})["choices"][0]["text"],
            "a<|end|>b");
}

TEST(Completions, ATopPOfZeroIsTheMostLikelyAlone) {
  TestServer server;
  EXPECT_EQ(server.post_json(kPath, {{"prompt", "a"}, {"top_p", 0}})["object"], "text_completion");
  ASSERT_EQ(server.generator->requests.size(), 1u);
  const SamplingOptions& s = server.generator->requests[0].sampling;
  check_sampling(s, server.tokenizer->vocabulary_size());
  const std::vector<float> logits = {0.5f, 2, 1.5f, 2};
  for (int64_t position = 0; position < 20; ++position)
    EXPECT_EQ(sample_token(logits, s, position), 1);
}

TEST(Completions, SamplingReachesTheEngine) {
  TestServer server;
  const Json body = {{"prompt", "a"},
                     {"temperature", 0.5},
                     {"top_p", 0.9},
                     {"top_k", 7},
                     {"min_p", 0.1},
                     {"seed", -3},
                     {"presence_penalty", 1},
                     {"frequency_penalty", -1},
                     {"repetition_penalty", 1.1},
                     {"logit_bias", {{"5", -100}}},
                     {"stop", {"world", "x"}},
                     {"max_tokens", 9},
                     {"n", 2}};
  const Json answer = server.post_json(kPath, body);
  EXPECT_EQ(answer["choices"][0]["text"], "Hello ");
  const auto& requests = server.generator->requests;
  ASSERT_EQ(requests.size(), 2u);
  const auto& s = requests[1].sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(s.presence_penalty, 1);
  EXPECT_EQ(s.frequency_penalty, -1);
  EXPECT_EQ(s.repetition_penalty, 1.1);
  ASSERT_EQ(s.logit_bias.size(), 1u);
  EXPECT_EQ(s.logit_bias[0].first, 5);
  EXPECT_EQ(requests[0].sampling.choice, 0);
  EXPECT_EQ(s.choice, 1);
  EXPECT_EQ(requests[1].stop, (std::vector<std::string>{"world", "x"}));
  EXPECT_EQ(requests[1].max_tokens, 9);
  EXPECT_EQ(requests[1].end_ids, (std::vector<int32_t>{0}));
}

TEST(Completions, EchoHasThePromptAndItsLogprobs) {
  TestServer server;
  const Json answer = server.post_json(
      kPath, {{"prompt", "Once more"}, {"echo", true}, {"logprobs", 2}, {"max_tokens", 1}});
  const Json& choice = answer["choices"][0];
  const size_t prompt = server.tokenizer->encode("Once more", true).size();
  const Json& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), prompt + 1);
  EXPECT_EQ(logprobs["token_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  EXPECT_GE(logprobs["top_logprobs"][1].size(), 2u);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  std::string text;
  for (const Json& token : logprobs["tokens"]) text += token.get<std::string>();
  EXPECT_EQ(text, choice["text"].get<std::string>());
  EXPECT_EQ(choice["finish_reason"], "length");
  for (const Json& token : logprobs["tokens"])
    EXPECT_TRUE(token == logprobs["tokens"][0] ||
                json_text(logprobs["top_logprobs"]).find(json_text(token)) != std::string::npos);
  const Json only = server.post_json(
      kPath, {{"prompt", "Once"}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}});
  EXPECT_EQ(only["choices"][0]["text"], "Once");
  EXPECT_EQ(only["choices"][0]["logprobs"]["top_logprobs"], nullptr);
}

TEST(Completions, AStreamIsTheSameTextInChunks) {
  TestServer server;
  const auto answer = server.post(kPath, {{"prompt", {"a", "b"}},
                                          {"n", 2},
                                          {"stream", true},
                                          {"max_tokens", 100},
                                          {"stream_options", {{"include_usage", true}}},
                                          {"logprobs", 1}});
  EXPECT_NE(answer.head.find("content-type: text/event-stream"), std::string::npos);
  const SseStream stream(answer.body);
  EXPECT_TRUE(stream.done);
  std::map<int, std::string> texts, tokens;
  std::map<int, int> ends;
  for (const Json& chunk : stream.data) {
    if (chunk["choices"].empty()) continue;
    EXPECT_EQ(chunk["usage"], nullptr);
    const Json& choice = chunk["choices"][0];
    const int index = choice["index"].get<int>();
    texts[index] += choice["text"].get<std::string>();
    for (const Json& token : choice["logprobs"]["tokens"])
      tokens[index] += token.get<std::string>();
    ends[index] += !choice["finish_reason"].is_null();
  }
  ASSERT_EQ(texts.size(), 4u);
  for (const auto& [index, text] : texts) {
    EXPECT_EQ(text, "Hello world, this is text.");
    EXPECT_EQ(tokens[index], text);
    EXPECT_EQ(ends[index], 1);
  }
  EXPECT_EQ(stream.data.back()["usage"]["completion_tokens"],
            4 * server.tokenizer->encode("Hello world, this is text.", false).size());
}

TEST(Completions, BestOfKeepsTheLikeliest) {
  TestServer server;
  const Json answer = server.post_json(kPath, {{"prompt", "a"}, {"n", 1}, {"best_of", 3}});
  EXPECT_EQ(answer["choices"].size(), 1u);
  EXPECT_EQ(server.generator->requests.size(), 3u);
}

TEST(Completions, AnErrorInTheMiddleIsSaid) {
  TestServer server;
  server.generator->failure = "broken";
  EXPECT_EQ(server.post(kPath, {{"prompt", "a"}, {"max_tokens", 100}}).status, 500);
  const SseStream stream(
      server.post(kPath, {{"prompt", "a"}, {"stream", true}, {"max_tokens", 100}}).body);
  EXPECT_EQ(stream.data.back()["error"]["type"], "server_error");
}

TEST(Completions, BadFieldsAreNamed) {
  TestServer server;
  const auto bad = [&](const Json& change, const std::string& param) {
    Json body = {{"prompt", "a"}};
    body.update(change);
    const Json answer = server.error(kPath, body);
    EXPECT_EQ(answer["status"].get<int>() / 100, 4) << body;
    EXPECT_EQ(answer["error"]["param"], param) << answer;
    EXPECT_EQ(answer["error"]["type"], "invalid_request_error");
  };
  bad({{"prompt", nullptr}}, "prompt");
  bad({{"prompt", Json::array()}}, "prompt");
  bad({{"prompt", {{"a", 1}}}}, "prompt");
  bad({{"prompt", {1, "a"}}}, "prompt[1]");
  bad({{"prompt", {100000}}}, "prompt[0]");
  bad({{"prompt", {-1}}}, "prompt[0]");
  bad({{"prompt", {"a", 5}}}, "prompt[1]");
  bad({{"temperature", 2.1}}, "temperature");
  bad({{"temperature", "hot"}}, "temperature");
  bad({{"top_p", -0.1}}, "top_p");
  bad({{"top_k", 1.5}}, "top_k");
  bad({{"min_p", 2}}, "min_p");
  bad({{"seed", 1e30}}, "seed");
  bad({{"seed", 18446744073709551615u}}, "seed");
  bad({{"n", 0}}, "n");
  bad({{"n", 129}}, "n");
  bad({{"n", 3}, {"best_of", 2}}, "best_of");
  bad({{"best_of", 2}, {"stream", true}}, "best_of");
  bad({{"max_tokens", 0}}, "max_tokens");
  bad({{"max_tokens", 1000}}, "max_tokens");
  bad({{"logprobs", 21}}, "logprobs");
  bad({{"logprobs", true}}, "logprobs");
  bad({{"echo", 1}}, "echo");
  bad({{"stop", 1}}, "stop");
  bad({{"stop", {"a", 1}}}, "stop[1]");
  bad({{"stop", ""}}, "stop[0]");
  bad({{"stop", std::vector<std::string>(17, "a")}}, "stop");
  bad({{"logit_bias", {{"x", 1}}}}, "logit_bias");
  bad({{"logit_bias", {{"1", 101}}}}, "logit_bias.1");
  bad({{"presence_penalty", 3}}, "presence_penalty");
  bad({{"suffix", "b"}}, "suffix");
  bad({{"use_beam_search", true}}, "use_beam_search");
  bad({{"stream_options", {{"include_usage", true}}}}, "stream_options");
  bad({{"stream", true}, {"stream_options", {{"x", true}}}}, "stream_options.x");
  bad({{"model", "other"}}, "model");
  bad({{"temprature", 1}}, "temprature");
  EXPECT_EQ(server.generator->requests.size(), 0u);
}

TEST(Completions, HarmlessFieldsAreIgnored) {
  TestServer server;
  EXPECT_EQ(
      server
          .post(kPath, {{"prompt", "a"}, {"user", "u"}, {"suffix", nullptr}, {"logprobs", nullptr}})
          .status,
      200);
}

TEST(Completions, StrangeBodiesAreRefused) {
  AppOptions options;
  options.http.limits.json_depth = 10;
  options.http.limits.json_values = 1000;
  options.http.limits.json_members = 20;
  TestServer server(std::move(options));
  const auto status = [&](const std::string& body) {
    return testing::TestClient(server.port()).post(kPath, body).status;
  };
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status("[]"), 400);
  EXPECT_EQ(status("{\"prompt\":"), 400);
  EXPECT_EQ(status("{\"prompt\":\"\xff\"}"), 400);
  EXPECT_EQ(status("{\"prompt\":\"\xed\xa0\x80\"}"), 400);
  EXPECT_EQ(status("{\"prompt\":1e999}"), 400);
  const auto nested = [](int depth) {
    return "{\"prompt\":\"a\",\"metadata\":" + std::string(depth, '[') + std::string(depth, ']') +
           "}";
  };
  EXPECT_EQ(status(nested(9)), 200);
  EXPECT_EQ(status(nested(10)), 400);
  EXPECT_EQ(status(std::string(1 << 20, '[')), 400);
  const auto many = [](int values) {
    std::string list = "1";
    for (int i = 1; i < values; ++i) list += ",1";
    return "{\"prompt\":\"a\",\"metadata\":[" + list + "]}";
  };
  EXPECT_EQ(status(many(997)), 200);
  EXPECT_EQ(status(many(998)), 400);
  const auto members = [](int count) {
    std::string list = "\"0\":1";
    for (int i = 1; i < count; ++i) list += ",\"" + std::to_string(i) + "\":1";
    return "{\"prompt\":\"a\",\"metadata\":{" + list + "}}";
  };
  EXPECT_EQ(status(members(20)), 200);
  EXPECT_EQ(status(members(21)), 400);
}

// The names and bytes of tokens within a text: "the" and " the" are two.
TEST(Completions, TokensOfSpacedWordsKeepTheirSpaces) {
  auto model = std::make_shared<ServedModel>();
  model->tokenizer = Tokenizer::load(posix_file_system(),
                                     testing::source_path("tests/golden/tokenizer/llama2.json"));
  const auto named = [&](bool echo) {
    const std::vector<int32_t> ids = model->tokenizer->encode("a the and", false);
    std::vector<AnswerChoice> choices(1);
    choices[0].first_token = ids[0];
    for (const int32_t id : ids) {
      if (!echo || id != ids[0]) choices[0].tokens.push_back({.chosen = {.token = id}, .top = {}});
    }
    const AnswerFormat format =
        completions_format({.model = model, .echo = echo, .logprobs = 0, .prompt_texts = {"a"}});
    return format.whole(choices, {})["choices"][0]["logprobs"];
  };
  const auto join = [](const Json& tokens) {
    std::string text;
    for (const Json& token : tokens) text += token.get<std::string>();
    return text;
  };
  for (const bool echo : {false, true}) {
    const Json logprobs = named(echo);
    EXPECT_EQ(join(logprobs["tokens"]), " a the and") << echo;
    const std::string text = echo ? "a the and" : " a the and";  // the beginning of it, or not
    for (size_t i = 1; i < logprobs["tokens"].size(); ++i) {
      const std::string& token = logprobs["tokens"][i].text();
      EXPECT_EQ(text.substr(logprobs["text_offset"][i].get<size_t>(), token.size()), token);
    }
  }
  ASSERT_GE(model->tokenizer->id_of("\u2581the"), 0);
  AnswerChoice choice;
  choice.tokens.push_back({.chosen = {.token = model->tokenizer->id_of("\u2581the")}, .top = {}});
  std::vector<AnswerChoice> choices;
  choices.push_back(std::move(choice));
  const Json chat = chat_format({.model = model, .logprobs = 0}).whole(choices, {});
  const Json& token = chat["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(token["token"], " the");
  EXPECT_EQ(token["bytes"], Json::array({32, 116, 104, 101}));
}

}  // namespace
}  // namespace moraine
