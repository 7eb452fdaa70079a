// Messages format: message objects, and the events of their streams.
#include "server/messages_format.h"

#include <algorithm>

#include "server/repeated_event.h"

namespace moraine {
namespace {

struct Stop {
  const char* reason = "end_turn";
  Json sequence = nullptr;  // that ended the text, if the request named it
};

Stop stop_of(const AnswerChoice& choice, const std::vector<std::string>& named) {
  const std::string reason = finish_reason(choice);
  if (reason == "length") return {.reason = "max_tokens"};
  if (reason == "tool_calls") return {.reason = "tool_use"};
  if (std::find(named.begin(), named.end(), choice.stop) == named.end()) return {};
  return {.reason = "stop_sequence", .sequence = choice.stop};
}

// Arguments as an object; what is none (an answer that was cut) as an empty one.
Json input_of(const std::string& arguments) {
  Json input = parse_json_or_null(arguments);
  return input.is_object() ? input : Json::object();
}

struct MessagesWriter {
  MessagesFormat format;
  std::string id = random_id("msg_");
  int64_t block = -1;          // open, in a stream
  std::string open_block{};    // "text", "thinking", "tool 0"; empty: none
  RepeatedEvent text_event{};  // of the open block, if it is text

  Json message(Json content, const Stop* stop, const Usage& usage) const {
    return {{"id", id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", format.model->id},
            {"content", std::move(content)},
            {"stop_reason", stop == nullptr ? Json() : Json(stop->reason)},
            {"stop_sequence", stop == nullptr ? Json() : stop->sequence},
            {"usage",
             {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", usage.cached_tokens},
              {"output_tokens", usage.completion_tokens}}}};
  }
  static std::string event(const char* type, Json members) {
    Json data = {{"type", type}};
    data.update(members);
    return sse_event(type, data);
  }
  std::string close_block() {
    if (open_block.empty()) return "";
    open_block.clear();
    text_event = {};
    return event("content_block_stop", {{"index", block}});
  }
  // Ends the block before, if it is another one.
  std::string in_block(const std::string& name, Json start) {
    if (open_block == name) return "";
    std::string out = close_block();
    open_block = name;
    out += event("content_block_start", {{"index", ++block}, {"content_block", std::move(start)}});
    return out;
  }
  std::string delta_event(Json delta) const {
    return event("content_block_delta", {{"index", block}, {"delta", std::move(delta)}});
  }
  std::string delta(const AnswerChoice& choice, const ReplyDelta& d) {
    std::string out;
    switch (d.kind) {
      case ReplyDelta::Kind::kContent:
        out = in_block("text", {{"type", "text"}, {"text", ""}});
        return out + text_event.with(d.text, [&](const std::string& each) {
          return delta_event({{"type", "text_delta"}, {"text", each}});
        });
      case ReplyDelta::Kind::kReasoning:
        out = in_block("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
        return out + delta_event({{"type", "thinking_delta"}, {"thinking", d.text}});
      case ReplyDelta::Kind::kToolBegin:
        return in_block("tool " + std::to_string(d.tool_index),
                        {{"type", "tool_use"},
                         {"id", choice.call_ids[static_cast<size_t>(d.tool_index)]},
                         {"name", d.text},
                         {"input", Json::object()}});
      case ReplyDelta::Kind::kToolArguments:
        return delta_event({{"type", "input_json_delta"}, {"partial_json", d.text}});
      case ReplyDelta::Kind::kToolEnd:
        return close_block();
    }
    return "";
  }
  std::string begin(const AnswerChoice& choice) const {
    const Usage usage{.prompt_tokens = format.prompt_tokens,
                      .cached_tokens = choice.prompt.cached_tokens};
    return event("message_start", {{"message", message(Json::array(), nullptr, usage)}});
  }
  Json whole(const AnswerChoice& choice, const Usage& usage) const {
    Json content = Json::array();
    if (!choice.reply.reasoning.empty())
      content.push_back(
          {{"type", "thinking"}, {"thinking", choice.reply.reasoning}, {"signature", ""}});
    if (!choice.reply.content.empty())
      content.push_back({{"type", "text"}, {"text", choice.reply.content}});
    for (size_t i = 0; i < choice.reply.calls.size(); ++i)
      content.push_back({{"type", "tool_use"},
                         {"id", choice.call_ids[i]},
                         {"name", choice.reply.calls[i].name},
                         {"input", input_of(choice.reply.calls[i].arguments)}});
    const Stop stop = stop_of(choice, format.stops);
    return message(std::move(content), &stop, usage);
  }
};

}  // namespace

AnswerFormat messages_format(MessagesFormat format) {
  auto w = std::make_shared<MessagesWriter>(MessagesWriter{.format = std::move(format)});
  auto stop = std::make_shared<Stop>();
  AnswerFormat f;
  f.errors = ErrorShape::kAnthropic;
  f.parser = [w] { return std::make_unique<ReplyParser>(w->format.parser); };
  f.whole = [w](std::vector<AnswerChoice>& choices, const Usage& usage) {
    return w->whole(choices[0], usage);
  };
  f.ping = MessagesWriter::event("ping", Json::object());
  f.begin = [] { return std::string(); };
  f.prompt = [w](AnswerChoice& choice) { return w->begin(choice); };
  f.delta = [w](AnswerChoice& choice, const Deltas& deltas) {
    std::string out;
    for (const ReplyDelta& d : deltas) out += w->delta(choice, d);
    return out;
  };
  f.end_choice = [w, stop](AnswerChoice& choice) {
    *stop = stop_of(choice, w->format.stops);
    return w->close_block();
  };
  f.end = [stop](const Usage& usage) {
    return MessagesWriter::event(
               "message_delta",
               {{"delta", {{"stop_reason", stop->reason}, {"stop_sequence", stop->sequence}}},
                {"usage", {{"output_tokens", usage.completion_tokens}}}}) +
           MessagesWriter::event("message_stop", Json::object());
  };
  f.failed = [](const RequestError& error) {
    return "event: error\ndata: " + error_body(ErrorShape::kAnthropic, error) + "\n\n";
  };
  return f;
}

}  // namespace moraine
