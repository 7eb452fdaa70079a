// Fails if a limit of what a request may hold is one off, or if what is beyond it is not named.
#include <gtest/gtest.h>

#include "server/test_server.h"

namespace moraine {
namespace {

using testing::kChat;
using testing::kCompletions;
using testing::TestServer;

Json message(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

Json copies(const Json& value, int64_t count) {
  Json list = Json::array();
  for (int64_t i = 0; i < count; ++i) list.push_back(value);
  return list;
}

Json tool(const std::string& name) {
  return {{"type", "function"}, {"function", {{"name", name}}}};
}

Json biases(int64_t count) {
  Json all = Json::object();
  for (int64_t i = 0; i < count; ++i) all[std::to_string(i)] = 1;
  return all;
}

struct LimitCase {
  const char* name;
  const char* path;
  int64_t limit;
  Json (*body)(int64_t count);  // without what every request of the endpoint has
  const char* param;            // of the error; in Anthropic's protocol the message begins with it
};

const LimitCase kCases[] = {
    {"prompts", kCompletions, 5,
     [](int64_t n) {
       return Json{{"prompt", copies("a", n)}};
     },
     "prompt"},
    {"prompts times choices", kCompletions, 4,
     [](int64_t n) {
       return Json{{"prompt", copies("a", n)}, {"n", 3}};
     },
     "n"},
    {"n", kCompletions, 12,
     [](int64_t n) {
       return Json{{"n", n}};
     },
     "n"},
    {"best_of", kCompletions, 12,
     [](int64_t n) {
       return Json{{"best_of", n}};
     },
     "best_of"},
    {"n of a conversation", kChat, 12,
     [](int64_t n) {
       return Json{{"n", n}};
     },
     "n"},
    {"stop strings", kCompletions, 3,
     [](int64_t n) {
       return Json{{"stop", copies("a", n)}};
     },
     "stop"},
    {"bytes of a stop string", kCompletions, 10,
     [](int64_t n) {
       return Json{{"stop", {"b", std::string(static_cast<size_t>(n), 'a')}}};
     },
     "stop[1]"},
    {"stop_sequences", "/v1/messages", 3,
     [](int64_t n) {
       return Json{{"stop_sequences", copies("a", n)}};
     },
     "stop_sequences"},
    {"logit_bias", kCompletions, 4,
     [](int64_t n) {
       return Json{{"logit_bias", biases(n)}};
     },
     "logit_bias"},
    {"logprobs", kCompletions, 20,
     [](int64_t n) {
       return Json{{"logprobs", n}};
     },
     "logprobs"},
    {"top_logprobs", kChat, 20,
     [](int64_t n) {
       return Json{{"logprobs", true}, {"top_logprobs", n}};
     },
     "top_logprobs"},
    {"messages", kChat, 6,
     [](int64_t n) {
       return Json{{"messages", copies(message("a"), n)}};
     },
     "messages"},
    {"messages of Anthropic's", "/v1/messages", 6,
     [](int64_t n) {
       return Json{{"messages", copies(message("a"), n)}};
     },
     "messages"},
    {"input", "/v1/responses", 6,
     [](int64_t n) {
       return Json{{"input", copies(message("a"), n)}};
     },
     "input"},
    {"tools", kChat, 3,
     [](int64_t n) {
       Json tools = Json::array();
       for (int64_t i = 0; i < n; ++i) tools.push_back(tool("f" + std::to_string(i)));
       return Json{{"tools", tools}};
     },
     "tools"},
    {"calls of a message", kChat, 3,
     [](int64_t n) {
       const Json call = {
           {"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
       return Json{
           {"messages", {message("a"), {{"role", "assistant"}, {"tool_calls", copies(call, n)}}}}};
     },
     "messages[1].tool_calls"},
    {"name of a tool", kChat, 64,
     [](int64_t n) {
       return Json{{"tools", Json::array({tool(std::string(static_cast<size_t>(n), 'f'))})}};
     },
     "tools[0].function.name"},
};

TEST(RequestLimits, AreTakenAtTheLimitAndRefusedBeyond) {
  AppOptions options;
  Limits& limits = options.http.limits;
  limits.prompts = 5;
  limits.choices = 12;
  limits.stops = 3;
  limits.stop_bytes = 10;
  limits.logit_biases = 4;
  limits.messages = 6;
  limits.tools = 3;
  TestServer server(std::move(options));
  for (const LimitCase& c : kCases) {
    const std::string path = c.path;
    for (const int64_t count : {c.limit, c.limit + 1}) {
      Json body = path == kCompletions      ? Json{{"prompt", "a"}}
                  : path == "/v1/responses" ? Json{{"input", "a"}}
                                            : Json{{"messages", Json::array({message("a")})}};
      if (path == "/v1/messages") body["max_tokens"] = 5;
      body.update(c.body(count));
      const Json answer = server.error(c.path, body);
      ASSERT_EQ(answer["status"], count == c.limit ? 200 : 400) << c.name << " " << count << answer;
      if (count == c.limit) continue;
      if (path == "/v1/messages") {
        EXPECT_EQ(answer["error"]["message"].get<std::string>().find(c.param), 0u) << answer;
      } else {
        EXPECT_EQ(answer["error"]["param"], c.param) << c.name << answer;
      }
    }
  }
}

// Choices x tokens x (each and those beside it), of what is not written as it comes.
TEST(RequestLimits, LogprobsOfAnAnswerAreBounded) {
  AppOptions options;
  options.http.limits.answer_logprobs = 600;
  TestServer server(std::move(options));
  const auto error = [&](const char* path, Json body, const Json& more) {
    body.update(more);
    return server.error(path, body);
  };
  const Json talk = {{"messages", Json::array({message("a")})}, {"logprobs", true}, {"n", 3}};
  EXPECT_EQ(error(kChat, talk, {{"top_logprobs", 19}, {"max_tokens", 10}})["status"], 200);
  EXPECT_EQ(error(kChat, talk, {{"max_tokens", 200}})["status"], 200);
  const Json beyond = error(kChat, talk, {{"top_logprobs", 19}, {"max_tokens", 11}});
  EXPECT_EQ(beyond["status"], 400);
  EXPECT_EQ(beyond["error"]["param"], "top_logprobs");
  EXPECT_EQ(error(kChat, talk, {{"max_tokens", 201}})["error"]["param"], "logprobs");
  EXPECT_EQ(error(kChat, talk, Json::object())["status"], 400) << "what there is room for";
  const Json text = {{"prompt", {"a", "b"}}, {"logprobs", 4}, {"best_of", 3}};
  EXPECT_EQ(error(kCompletions, text, {{"max_tokens", 20}})["status"], 200);
  EXPECT_EQ(error(kCompletions, text, {{"max_tokens", 21}})["error"]["param"], "logprobs");
  // A stream holds its prompt's, a request without log-probabilities none.
  const Json stream = {{"prompt", copies(1, 121)}, {"logprobs", 4}, {"stream", true}};
  EXPECT_EQ(server.post(kCompletions, stream).status, 200);
  EXPECT_EQ(error(kCompletions, stream, {{"echo", true}})["status"], 400);
  EXPECT_EQ(error(kCompletions, {{"prompt", "a"}, {"n", 3}}, {{"max_tokens", 900}})["status"], 200);
}

TEST(RequestLimits, PromptAndAnswerFitTheContext) {
  TestServer server;
  const auto ids = [](int64_t count) { return copies(1, count); };
  const auto status = [&](const char* path, const Json& body) {
    const Json answer = server.error(path, body);
    if (answer["status"] == 400) {
      EXPECT_EQ(answer["error"]["code"], "context_length_exceeded") << answer;
    }
    return answer["status"].get<int>();
  };
  EXPECT_EQ(status(kCompletions, {{"prompt", ids(999)}, {"max_tokens", 1}}), 200);
  EXPECT_EQ(status(kCompletions, {{"prompt", ids(999)}, {"max_tokens", 2}}), 400);
  EXPECT_EQ(status(kCompletions, {{"prompt", ids(1000)}, {"max_tokens", 1}}), 400);
  EXPECT_EQ(status(kCompletions, {{"prompt", ids(1)}, {"max_tokens", 999}}), 200);
  EXPECT_EQ(status(kCompletions, {{"prompt", ids(1)}, {"max_tokens", 1000}}), 400);
  // A conversation whose prompt has so many tokens.
  const auto talk = [&](int64_t tokens) {
    std::string text = "a";
    const auto count = [&] {
      return server.post_json("/tokenize", {{"messages", Json::array({message(text)})}})["count"]
          .get<int64_t>();
    };
    const int64_t frame = count();
    for (int64_t i = frame; i < tokens; ++i) text += "\x01";  // a token each
    EXPECT_EQ(count(), tokens);
    return Json{{"messages", Json::array({message(text)})}};
  };
  EXPECT_EQ(status(kChat, talk(999)), 200);
  EXPECT_EQ(server.generator->requests.back().max_tokens, 1) << "what there is room for";
  EXPECT_EQ(status(kChat, talk(1000)), 400);
}

// Whatever its tokens are: so it is not encoded. Only counting takes it.
TEST(RequestLimits, ATextThatCanNotFitIsRefusedByItsBytes) {
  TestServer server;
  const auto text_of = [](int64_t bytes) { return std::string(static_cast<size_t>(bytes), 'a'); };
  int64_t most = 0;  // that 1000 tokens might hold
  for (int64_t step = 1 << 22; step > 0; step /= 2) {
    if (!server.tokenizer->exceeds(text_of(most + step), 1000)) most += step;
  }
  ASSERT_LT(most, 4 << 20);
  const auto refused = [&](const char* path, const Json& body, const std::string& param,
                           const char* unit) {
    const Json error = server.error(path, body)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded") << error;
    EXPECT_EQ(error["param"], param) << error;
    EXPECT_NE(error["message"].text().find(unit), std::string::npos) << error;
  };
  refused(kCompletions, {{"prompt", {"a", text_of(most)}}}, "max_tokens", " tokens and ");
  refused(kCompletions, {{"prompt", {"a", text_of(most + 1)}}}, "prompt[1]", " bytes, ");
  const Json talk = Json::array({message(text_of(most + 1))});
  refused(kChat, {{"messages", talk}}, "messages", " bytes, ");
  refused("/v1/responses", {{"input", talk}}, "input", " bytes, ");
  for (const char* path : {"/tokenize", "/v1/messages/count_tokens"})
    EXPECT_EQ(server.post(path, {{"messages", talk}}).status, 200) << path;
}

}  // namespace
}  // namespace moraine
