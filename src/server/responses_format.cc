// Responses format: response objects, and the events of their streams.
#include "server/responses_format.h"

#include <algorithm>

#include "base/clock.h"

namespace moraine {
namespace {

struct ResponsesWriter {
  ResponsesFormat format;
  std::string id = random_id("resp_");
  int64_t created = static_cast<int64_t>(unix_seconds());
  int64_t number = 0;           // of the next event
  Json output = Json::array();  // items that are complete
  Json item = nullptr;          // open, in a stream
  std::string item_text{};      // of it so far
  std::string item_key{};       // "message", "reasoning", "call 0"

  Json response(const char* status, Json items, Json usage) const {
    Json r = {{"id", id},
              {"object", "response"},
              {"created_at", created},
              {"status", status},
              {"error", nullptr},
              {"incomplete_details", nullptr},
              {"model", format.model->id},
              {"output", std::move(items)},
              {"previous_response_id", nullptr},
              {"store", false},
              {"truncation", "disabled"},
              {"usage", std::move(usage)}};
    r.update(format.echo);
    return r;
  }
  static Json usage_of(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
            {"output_tokens", usage.completion_tokens},
            {"output_tokens_details", {{"reasoning_tokens", 0}}},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  }
  static Json text_part(const std::string& text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }
  static Json reasoning_part(const std::string& text) {
    return {{"type", "reasoning_text"}, {"text", text}};
  }
  static Json message_item(Json parts, const char* status) {
    return {{"type", "message"},
            {"id", random_id("msg_")},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(parts)}};
  }
  static Json reasoning_item(Json parts) {
    return {{"type", "reasoning"},
            {"id", random_id("rs_")},
            {"summary", Json::array()},
            {"content", std::move(parts)}};
  }
  static Json call_item(const std::string& call_id, const std::string& name,
                        const std::string& arguments, const char* status) {
    return {{"type", "function_call"}, {"id", random_id("fc_")},
            {"call_id", call_id},      {"name", name},
            {"arguments", arguments},  {"status", status}};
  }
  std::string event(const std::string& type, Json members) {
    Json data = {{"type", type}, {"sequence_number", number++}};
    data.update(members);
    return sse_event(type, data);
  }
  // An event about the open item.
  std::string item_event(const std::string& type, Json members, bool part = true) {
    Json all = {{"item_id", item["id"]}, {"output_index", output.size()}};
    if (part) all["content_index"] = 0;
    all.update(members);
    return event(type, std::move(all));
  }
  std::string open_item(const std::string& key, Json opened) {
    std::string out = close_item();
    item_key = key;
    item = std::move(opened);
    item_text.clear();
    return out +
           event("response.output_item.added", {{"output_index", output.size()}, {"item", item}});
  }
  // `cut`: the answer ends within it.
  std::string close_item(bool cut = false) {
    if (item.is_null()) return "";
    std::string out;
    if (item_key == "message") {
      const Json part = text_part(item_text);
      out += item_event("response.output_text.done",
                        {{"text", item_text}, {"logprobs", Json::array()}});
      out += item_event("response.content_part.done", {{"part", part}});
      item["content"] = Json::array({part});
    } else if (item_key == "reasoning") {
      out += item_event("response.reasoning_text.done", {{"text", item_text}});
      item["content"] = Json::array({reasoning_part(item_text)});
    } else {
      out += item_event("response.function_call_arguments.done",
                        {{"name", item["name"]}, {"arguments", item_text}}, false);
      item["arguments"] = item_text;
    }
    if (item.contains("status")) item["status"] = cut ? "incomplete" : "completed";
    out += event("response.output_item.done", {{"output_index", output.size()}, {"item", item}});
    output.push_back(std::move(item));
    item = nullptr;
    item_key.clear();
    return out;
  }
  std::string open_message() {
    std::string out = open_item("message", message_item(Json::array(), "in_progress"));
    out += item_event("response.content_part.added", {{"part", text_part("")}});
    return out;
  }
  // Of all that was told: an answer without any has an empty message, as whole() gives it.
  std::string close_answer(bool cut) {
    std::string out = close_item(cut);
    const bool says = std::any_of(output.begin(), output.end(),
                                  [](const Json& done) { return done["type"] != "reasoning"; });
    if (says) return out;
    out += open_message();
    out += close_item(cut);
    return out;
  }
  std::string delta(const AnswerChoice& choice, const ReplyDelta& d) {
    std::string out;
    switch (d.kind) {
      case ReplyDelta::Kind::kContent:
        if (item_key != "message") out = open_message();
        item_text += d.text;
        return out + item_event("response.output_text.delta",
                                {{"delta", d.text}, {"logprobs", Json::array()}});
      case ReplyDelta::Kind::kReasoning:
        if (item_key != "reasoning") out = open_item("reasoning", reasoning_item(Json::array()));
        item_text += d.text;
        return out + item_event("response.reasoning_text.delta", {{"delta", d.text}});
      case ReplyDelta::Kind::kToolBegin:
        return open_item("call", call_item(choice.call_ids[static_cast<size_t>(d.tool_index)],
                                           d.text, "", "in_progress"));
      case ReplyDelta::Kind::kToolArguments:
        item_text += d.text;
        return item_event("response.function_call_arguments.delta", {{"delta", d.text}}, false);
      case ReplyDelta::Kind::kToolEnd:
        return close_item();
    }
    return out;
  }
  std::string begin() {
    const Json r = response("in_progress", Json::array(), nullptr);
    const std::string created_event = event("response.created", {{"response", r}});
    return created_event + event("response.in_progress", {{"response", r}});
  }
  Json finished(bool cut, Json items, const Usage& usage) const {
    Json r = response(cut ? "incomplete" : "completed", std::move(items), usage_of(usage));
    if (cut) r["incomplete_details"] = {{"reason", "max_output_tokens"}};
    return r;
  }
  Json whole(const AnswerChoice& choice, const Usage& usage) const {
    const bool cut = choice.finish == Finish::kLength;
    const char* status = cut ? "incomplete" : "completed";
    Json items = Json::array();
    const Reply& reply = choice.reply;
    if (!reply.reasoning.empty())
      items.push_back(reasoning_item(Json::array({reasoning_part(reply.reasoning)})));
    if (!reply.content.empty() || reply.calls.empty())
      items.push_back(message_item(Json::array({text_part(reply.content)}), status));
    for (size_t i = 0; i < reply.calls.size(); ++i)
      items.push_back(
          call_item(choice.call_ids[i], reply.calls[i].name, reply.calls[i].arguments, status));
    return finished(cut, std::move(items), usage);
  }
};

}  // namespace

AnswerFormat responses_format(ResponsesFormat format) {
  auto w = std::make_shared<ResponsesWriter>(ResponsesWriter{.format = std::move(format)});
  auto cut = std::make_shared<bool>(false);
  AnswerFormat f;
  f.parser = [w] { return std::make_unique<ReplyParser>(w->format.parser); };
  f.whole = [w](std::vector<AnswerChoice>& choices, const Usage& usage) {
    return w->whole(choices[0], usage);
  };
  f.begin = [w] { return w->begin(); };
  f.prompt = [](AnswerChoice&) { return std::string(); };
  f.delta = [w](AnswerChoice& choice, const Deltas& deltas) {
    std::string out;
    for (const ReplyDelta& d : deltas) out += w->delta(choice, d);
    return out;
  };
  f.end_choice = [w, cut](AnswerChoice& choice) {
    *cut = choice.finish == Finish::kLength;
    return w->close_answer(*cut);
  };
  f.end = [w, cut](const Usage& usage) {
    return w->event(*cut ? "response.incomplete" : "response.completed",
                    {{"response", w->finished(*cut, w->output, usage)}});
  };
  f.failed = [w](const RequestError& error) {
    return w->event("error",
                    {{"code", error.api_code()}, {"message", error.what()}, {"param", nullptr}});
  };
  return f;
}

}  // namespace moraine
