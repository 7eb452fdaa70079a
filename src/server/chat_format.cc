// Chat format: chat.completion objects, whole and in chunks.
#include "server/chat_format.h"

#include <map>

#include "base/clock.h"
#include "base/utf8.h"
#include "server/completions_format.h"
#include "server/repeated_event.h"

namespace moraine {
namespace {

struct ChatWriter {
  ChatFormat format;
  std::string id = random_id("chatcmpl-");
  int64_t created = static_cast<int64_t>(unix_seconds());
  std::map<int64_t, RepeatedEvent>
      text_events{};  // content of each choice, if there are no log-probabilities

  Json object(const char* kind, Json choices) const {
    return {{"id", id},
            {"object", kind},
            {"created", created},
            {"model", format.model->id},
            {"system_fingerprint", format.model->fingerprint},
            {"choices", std::move(choices)}};
  }
  Json token_json(int32_t token, double logprob) const {
    const std::string bytes = format.model->tokenizer->token_bytes(token);
    Json list = Json::array();
    for (char c : bytes) list.push_back(static_cast<uint8_t>(c));
    return {{"token", to_valid_utf8(bytes)},
            {"logprob", json_logprob(logprob)},
            {"bytes", std::move(list)}};
  }
  // Those of the tokens that the choice has kept, which are forgotten.
  Json take_logprobs(AnswerChoice& choice) const {
    if (format.logprobs < 0) return nullptr;
    Json content = Json::array();
    for (const TokenScore& score : choice.tokens) {
      Json token = token_json(score.chosen.token, score.chosen.logprob);
      token["top_logprobs"] = Json::array();
      for (const TokenLogprob& each : score.top)
        token["top_logprobs"].push_back(token_json(each.token, each.logprob));
      content.push_back(std::move(token));
    }
    choice.tokens.clear();
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  std::string chunk(const AnswerChoice& choice, Json delta, Json logprobs, Json finish) const {
    Json part = {{"index", choice.index},
                 {"delta", std::move(delta)},
                 {"logprobs", std::move(logprobs)},
                 {"finish_reason", std::move(finish)}};
    Json answer = object("chat.completion.chunk", Json::array());
    answer["choices"].push_back(std::move(part));
    if (format.include_usage) answer["usage"] = nullptr;
    return sse_event("", answer);
  }
  Json delta_json(const AnswerChoice& choice, const ReplyDelta& delta) const {
    const auto call = [&](Json function) {
      Json entry = {{"index", delta.tool_index}};
      if (delta.kind == ReplyDelta::Kind::kToolBegin) {
        entry["id"] = choice.call_ids[static_cast<size_t>(delta.tool_index)];
        entry["type"] = "function";
      }
      entry["function"] = std::move(function);
      Json list = Json::array();
      list.push_back(std::move(entry));
      return Json{{"tool_calls", std::move(list)}};
    };
    switch (delta.kind) {
      case ReplyDelta::Kind::kContent:
        return {{"content", delta.text}};
      case ReplyDelta::Kind::kReasoning:
        return {{"reasoning_content", delta.text}};
      case ReplyDelta::Kind::kToolBegin:
        return call({{"name", delta.text}, {"arguments", ""}});
      case ReplyDelta::Kind::kToolArguments:
        return call({{"arguments", delta.text}});
      case ReplyDelta::Kind::kToolEnd:
        return nullptr;
    }
    return nullptr;
  }
  std::string content_chunk(const AnswerChoice& choice, const std::string& text) {
    return text_events[choice.index].with(text, [&](const std::string& each) {
      return chunk(choice, {{"content", each}}, nullptr, nullptr);
    });
  }
  std::string deltas(AnswerChoice& choice, const Deltas& all) {
    std::string out;
    for (const ReplyDelta& delta : all) {
      if (delta.kind == ReplyDelta::Kind::kContent && format.logprobs < 0) {
        out += content_chunk(choice, delta.text);
        continue;
      }
      Json json = delta_json(choice, delta);
      if (!json.is_null()) out += chunk(choice, std::move(json), take_logprobs(choice), nullptr);
    }
    return out;
  }
  Json whole(std::vector<AnswerChoice>& choices, const Usage& usage) const {
    Json list = Json::array();
    for (AnswerChoice& choice : choices)
      list.push_back({{"index", choice.index},
                      {"message", assistant_message(choice)},
                      {"logprobs", take_logprobs(choice)},
                      {"finish_reason", finish_reason(choice)}});
    Json answer = object("chat.completion", std::move(list));
    answer["usage"] = usage_json(usage);
    return answer;
  }
  std::string end(const Usage& usage) const {
    std::string out;
    if (format.include_usage) {
      Json answer = object("chat.completion.chunk", Json::array());
      answer["usage"] = usage_json(usage);
      out = sse_event("", answer);
    }
    return out + "data: [DONE]\n\n";
  }
};

}  // namespace

Json assistant_message(const AnswerChoice& choice) {
  const Reply& reply = choice.reply;
  Json message = {{"role", "assistant"}, {"content", reply.content}, {"refusal", nullptr}};
  if (!reply.reasoning.empty()) message["reasoning_content"] = reply.reasoning;
  if (reply.calls.empty()) return message;
  if (reply.content.empty()) message["content"] = nullptr;
  Json calls = Json::array();
  for (size_t i = 0; i < reply.calls.size(); ++i)
    calls.push_back(
        {{"id", choice.call_ids[i]},
         {"type", "function"},
         {"function", {{"name", reply.calls[i].name}, {"arguments", reply.calls[i].arguments}}}});
  message["tool_calls"] = std::move(calls);
  return message;
}

AnswerFormat chat_format(ChatFormat format) {
  auto w = std::make_shared<ChatWriter>(ChatWriter{.format = std::move(format)});
  AnswerFormat f;
  f.logprobs = w->format.logprobs >= 0;
  f.parser = [w] { return std::make_unique<ReplyParser>(w->format.parser); };
  f.whole = [w](std::vector<AnswerChoice>& choices, const Usage& usage) {
    return w->whole(choices, usage);
  };
  f.begin = [] { return std::string(); };
  f.prompt = [w](AnswerChoice& choice) {
    return w->chunk(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  };
  f.delta = [w](AnswerChoice& choice, const Deltas& deltas) { return w->deltas(choice, deltas); };
  f.end_choice = [w](AnswerChoice& choice) {
    return w->chunk(choice, Json::object(), w->take_logprobs(choice), finish_reason(choice));
  };
  f.end = [w](const Usage& usage) { return w->end(usage); };
  f.failed = [](const RequestError& error) {
    return "data: " + error_body(ErrorShape::kOpenAi, error) + "\n\ndata: [DONE]\n\n";
  };
  return f;
}

}  // namespace moraine
