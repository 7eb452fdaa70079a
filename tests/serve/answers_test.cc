// Answers: what the built server says, against `eval score` and against itself in other company.
//
// Fails if a number is not the trainer's, if an answer depends on what else runs, on streaming or on the prefix cache,
// or if a form that was asked for is not kept.
#include <algorithm>
#include <set>
#include <thread>

#include "tests/serve/serving.h"

namespace moraine {
namespace {

using namespace testing;

using Answers = ServeTest;

TEST_F(Answers, LogprobsAreThoseOfEvalScore) {
  const auto server = serve();
  for (const int64_t tokens : {2, 17, 700}) {
    const Json prompt = prompt_of(static_cast<uint64_t>(tokens), tokens);
    std::string ids;
    for (const Json& id : prompt) ids += json_text(id) + " ";
    const Json want =
        parse_json(must({"eval", "score", "--model", file("model"), "--tokens", ids, "--json"}));
    for (int again = 0; again < 2; ++again) {
      const Json got =
          server->ask("/v1/completions",
                      {{"prompt", prompt}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}});
      // As text: to the last digit that is printed.
      EXPECT_EQ(json_text(got["choices"][0]["logprobs"]["token_logprobs"]),
                json_text(want["logprobs"]));
    }
  }
}

// Requests of mixed lengths and manners.
std::vector<Json> mixed_requests(const std::function<Json(uint64_t, int64_t)>& prompt_of) {
  std::vector<Json> requests;
  const int64_t lengths[] = {1, 5, 33, 64, 130, 257, 600, 900, 2000};
  for (const int64_t length : lengths) {
    const auto seed = static_cast<uint64_t>(length);
    requests.push_back({{"prompt", prompt_of(seed, length)},
                        {"max_tokens", 20 + length % 37},
                        {"temperature", length % 2 == 0 ? 0.9 : 1.0},
                        {"seed", length},
                        {"logprobs", length % 3},
                        {"ignore_eos", true},
                        {"frequency_penalty", length % 5 == 0 ? 0.5 : 0.0}});
  }
  return requests;
}

std::vector<Json> all_at_once(const ServeProgram& server, const std::vector<Json>& requests,
                              bool stream) {
  std::vector<Json> choices(requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] {
      choices[i] = stream ? choices_of(server.stream("/v1/completions", requests[i]))
                          : server.ask("/v1/completions", requests[i])["choices"];
    });
  }
  for (std::thread& thread : threads) thread.join();
  return choices;
}

TEST_F(Answers, AloneAndInCompanyStreamedOrWholeCachedOrNot) {
  const std::vector<Json> requests = mixed_requests(prompt_of);
  std::vector<Json> want;
  const auto server = serve();
  for (const Json& request : requests) {
    const Json first = server->ask("/v1/completions", request);
    EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    EXPECT_EQ(first["usage"]["completion_tokens"], request["max_tokens"]);
    want.push_back(first["choices"]);
    const Json second = server->ask("/v1/completions", request);
    // Full pages at least; the last prompt token is computed in any case.
    EXPECT_GE(second["usage"]["prompt_tokens_details"]["cached_tokens"].get<size_t>(),
              (request["prompt"].size() - 1) / 64 * 64);
    EXPECT_EQ(second["choices"], want.back());
    EXPECT_EQ(choices_of(server->stream("/v1/completions", request)), want.back());
  }
  // Nothing is known yet, and steps are small: prompts are cut in chunks, beside answers.
  for (const char* rows : {"512", "24"}) {
    const auto fresh = serve({"--rows", rows, "--sequences", "5"});
    EXPECT_EQ(all_at_once(*fresh, requests, false), want);
    EXPECT_EQ(all_at_once(*fresh, requests, true), want);
  }
}

TEST_F(Answers, ChoicesOfASeedAreDrawsOfTheirOwn) {
  const auto server = serve();
  Json request = {
      {"prompt", prompt_of(3, 70)}, {"max_tokens", 40}, {"seed", 11}, {"ignore_eos", true}};
  const auto choices = [&](int64_t n) {
    request["n"] = n;
    return server->ask("/v1/completions", request)["choices"];
  };
  const Json four = choices(4);
  std::set<std::string> texts;
  for (const Json& choice : four) texts.insert(choice["text"].get<std::string>());
  EXPECT_EQ(texts.size(), 4u);
  for (int64_t n = 1; n < 4; ++n) {
    const Json fewer = choices(n);
    ASSERT_EQ(fewer.size(), static_cast<size_t>(n));
    for (size_t i = 0; i < fewer.size(); ++i) EXPECT_EQ(fewer[i], four[i]);
  }
  request["n"] = 4;
  EXPECT_EQ(choices_of(server->stream("/v1/completions", request)), four);
}

// A run of `n` ASCII characters in the middle of a text.
std::string plain_part(const std::string& text, size_t n) {
  size_t run = 0;
  for (size_t i = text.size() / 3; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    run = c > 32 && c < 127 ? run + 1 : 0;
    if (run == n) return text.substr(i + 1 - n, n);
  }
  return "";
}

TEST_F(Answers, TextEndsBeforeAStopString) {
  const auto server = serve();
  int found = 0;
  for (int64_t seed = 0; seed < 6; ++seed) {
    Json request = {{"prompt", "ab hov"}, {"max_tokens", 150}, {"seed", seed}};
    const std::string text =
        server->ask("/v1/completions", request)["choices"][0]["text"].get<std::string>();
    const std::string stop = plain_part(text, 2);
    if (stop.empty()) continue;
    ++found;
    request["stop"] = {"never there", stop};
    const Json choice = server->ask("/v1/completions", request)["choices"][0];
    EXPECT_EQ(choice["text"], text.substr(0, text.find(stop)));
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choices_of(server->stream("/v1/completions", request))[0], choice);
  }
  EXPECT_GE(found, 3);
  // Anthropic's protocol says which; streamed and whole.
  Json request = {{"max_tokens", 150}, {"temperature", 0}};
  std::string stop;
  for (int question = 0; stop.empty() && question < 20; ++question) {
    request["messages"] = {{{"role", "user"}, {"content", "hov" + std::to_string(question)}}};
    const Json content = server->ask("/v1/messages", request)["content"];
    if (!content.empty()) stop = plain_part(content[0]["text"].get<std::string>(), 2);
  }
  request["stop_sequences"] = {"never there", stop};
  const Json message = server->ask("/v1/messages", request);
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], stop);
  Json delta;
  for (const Json& event : server->stream("/v1/messages", request)) {
    if (event["type"] == "message_delta") delta = event["delta"];
  }
  EXPECT_EQ(delta, Json({{"stop_reason", "stop_sequence"}, {"stop_sequence", stop}}));
}

Json conversation(const std::string& text) { return {{{"role", "user"}, {"content", text}}}; }

TEST_F(Answers, ASchemaHoldsAtTemperatureOne) {
  const Json schema = {
      {"type", "object"},
      {"properties",
       {{"name", {{"type", "string"}, {"maxLength", 12}}},
        {"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 120}}},
        {"colour", {{"enum", {"red", "green", "blue"}}}},
        {"tags",
         {{"type", "array"}, {"items", {{"type", "boolean"}}}, {"minItems", 1}, {"maxItems", 3}}}}},
      {"required", {"name", "age", "colour", "tags"}},
      {"additionalProperties", false}};
  const auto server = serve();
  for (int64_t seed = 0; seed < 6; ++seed) {
    Json request = {
        {"messages", conversation("Who is there?")},
        {"temperature", 1},
        {"seed", seed},
        {"max_tokens", 1500},
        {"response_format",
         {{"type", "json_schema"}, {"json_schema", {{"name", "person"}, {"schema", schema}}}}}};
    const Json answer = server->ask("/v1/chat/completions", request);
    const std::string text = answer["choices"][0]["message"]["content"].get<std::string>();
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop") << text;
    const Json person = parse_json_or_null(text);
    ASSERT_TRUE(person.is_object()) << text;
    EXPECT_EQ(person.size(), 4u) << text;
    EXPECT_TRUE(person["name"].is_string()) << text;
    ASSERT_TRUE(person["age"].is_number_integer()) << text;
    EXPECT_TRUE(person["age"].get<double>() >= 0 && person["age"].get<double>() <= 120) << text;
    EXPECT_TRUE(std::set<std::string>({"red", "green", "blue"}).contains(person["colour"].text()))
        << text;
    ASSERT_TRUE(person["tags"].is_array()) << text;
    EXPECT_TRUE(person["tags"].size() >= 1 && person["tags"].size() <= 3) << text;
    for (const Json& tag : person["tags"]) EXPECT_TRUE(tag.is_boolean()) << text;
    std::string streamed;
    for (const Json& chunk : server->stream("/v1/chat/completions", request)) {
      if (!chunk["choices"].empty()) streamed += chunk["choices"][0]["delta"].value("content", "");
    }
    EXPECT_EQ(streamed, text);
  }
}

TEST_F(Answers, ACallThatIsRequiredComesAndParses) {
  const auto server = serve();
  const Json tool = {{"type", "function"},
                     {"function",
                      {{"name", "weather"},
                       {"parameters",
                        {{"type", "object"},
                         {"properties",
                          {{"city", {{"type", "string"}, {"maxLength", 10}}},
                           {"days", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}}},
                         {"required", {"city", "days"}},
                         {"additionalProperties", false}}}}}};
  for (int64_t seed = 0; seed < 4; ++seed) {
    const Json request = {{"messages", conversation("Will it rain?")},
                          {"tools", {tool}},
                          {"tool_choice", "required"},
                          {"parallel_tool_calls", false},
                          {"temperature", 1},
                          {"seed", seed},
                          {"max_tokens", 1500}};
    const Json choice = server->ask("/v1/chat/completions", request)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
    const Json& function = choice["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], "weather");
    const Json arguments = parse_json_or_null(function["arguments"].get<std::string>());
    ASSERT_TRUE(arguments.is_object()) << choice;
    EXPECT_TRUE(arguments["city"].is_string()) << choice;
    EXPECT_TRUE(arguments["days"].get<double>() >= 1 && arguments["days"].get<double>() <= 9)
        << choice;
  }
}

}  // namespace
}  // namespace moraine
