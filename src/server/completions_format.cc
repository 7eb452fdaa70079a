// Completions format: text_completion objects, whole and in chunks.
#include "server/completions_format.h"

#include <fmt/format.h>

#include <map>

#include "base/clock.h"
#include "base/utf8.h"
#include "server/repeated_event.h"
#include "tokenizer/decoder.h"

namespace moraine {
namespace {

int64_t characters(const std::string& text) {
  int64_t count = 0;
  for (char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

// A token as a name: its text within a text, or its bytes where they are no text, so that two tokens never have one
// name.
std::string token_name(const Tokenizer& tokenizer, int32_t id) {
  const std::string bytes = tokenizer.token_bytes(id);
  if (first_invalid_utf8(bytes) < 0 && !bytes.empty()) return bytes;
  if (bytes.empty()) return std::string(tokenizer.token_text(id));
  std::string name = "bytes:";
  for (char c : bytes) name += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return name;
}

// Where in a text a token begins.
struct TextPlace {
  int64_t characters = 0;
  DecoderState state{};
};

struct CompletionsWriter {
  CompletionsFormat format;
  std::string id = random_id("cmpl-");
  int64_t created = static_cast<int64_t>(unix_seconds());
  std::vector<TextPlace> places{};  // of each choice's next token
  std::map<int64_t, RepeatedEvent>
      text_events{};  // of each choice, if there are no log-probabilities

  Json object(Json choices) const {
    return {{"id", id},
            {"object", "text_completion"},
            {"created", created},
            {"model", format.model->id},
            {"system_fingerprint", format.model->fingerprint},
            {"choices", std::move(choices)}};
  }
  Json top_of(const TokenScore& score) const {
    Json top = Json::object();
    for (const TokenLogprob& each : score.top)
      top[token_name(*format.model->tokenizer, each.token)] = json_logprob(each.logprob);
    const std::string name = token_name(*format.model->tokenizer, score.chosen.token);
    if (!top.contains(name)) top[name] = json_logprob(score.chosen.logprob);
    return top;
  }
  // That a token adds to a text; names of special tokens are not a part of it where it begins.
  int64_t characters_of(int32_t token, DecoderState* state) const {
    const Tokenizer& tokenizer = *format.model->tokenizer;
    if (tokenizer.is_special(token)) return characters(tokenizer.token_bytes(token));
    std::string text;
    tokenizer.decode_next(token, /*skip_special=*/true, state, &text);
    return characters(text);
  }
  // Adds tokens to {"tokens", "token_logprobs", "top_logprobs", "text_offset"}.
  void add_token(const TokenScore& score, bool first_of_prompt, TextPlace* place, Json* out) const {
    Json& o = *out;
    const std::string name = token_name(*format.model->tokenizer, score.chosen.token);
    o["tokens"].push_back(name);
    o["token_logprobs"].push_back(first_of_prompt ? Json(nullptr)
                                                  : Json(json_logprob(score.chosen.logprob)));
    if (format.logprobs > 0)
      o["top_logprobs"].push_back(first_of_prompt ? Json(nullptr) : top_of(score));
    o["text_offset"].push_back(place->characters);
    place->characters += characters_of(score.chosen.token, &place->state);
  }
  Json no_tokens() const {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", format.logprobs > 0 ? Json::array() : Json(nullptr)},
            {"text_offset", Json::array()}};
  }
  TextPlace& place_of(const AnswerChoice& choice) {
    TextPlace begun;
    if (!format.echo) begun.state.tokens = 1, begun.state.at_start = false;
    if (places.size() <= static_cast<size_t>(choice.index))
      places.resize(static_cast<size_t>(choice.index) + 1, begun);
    return places[static_cast<size_t>(choice.index)];
  }
  Json logprobs_of(AnswerChoice& choice, bool with_prompt, bool with_answer) {
    if (format.logprobs < 0) return nullptr;
    Json out = no_tokens();
    TextPlace& place = place_of(choice);
    if (with_prompt) {
      add_token({.chosen = {.token = choice.first_token}, .top = {}}, true, &place, &out);
      for (const TokenScore& score : choice.prompt.scores) add_token(score, false, &place, &out);
    }
    if (with_answer) {
      for (const TokenScore& score : choice.tokens) add_token(score, false, &place, &out);
      choice.tokens.clear();
    }
    return out;
  }
  const std::string& prompt_text(const AnswerChoice& choice) const {
    return format.prompt_texts[static_cast<size_t>(choice.prompt_index)];
  }
  Json whole(std::vector<AnswerChoice>& choices, const Usage& usage) {
    Json list = Json::array();
    places.clear();
    for (AnswerChoice& choice : choices) {
      const std::string text = (format.echo ? prompt_text(choice) : "") + choice.text;
      list.push_back({{"index", choice.index},
                      {"text", text},
                      {"logprobs", logprobs_of(choice, format.echo, true)},
                      {"finish_reason", finish_reason(choice)}});
    }
    Json answer = object(std::move(list));
    answer["usage"] = usage_json(usage);
    return answer;
  }
  std::string chunk(const AnswerChoice& choice, const std::string& text, Json logprobs,
                    Json finish) {
    Json answer = object(Json::array({{{"index", choice.index},
                                       {"text", text},
                                       {"logprobs", std::move(logprobs)},
                                       {"finish_reason", std::move(finish)}}}));
    if (format.include_usage) answer["usage"] = nullptr;
    return sse_event("", answer);
  }
  std::string text_chunk(AnswerChoice& choice, const std::string& text) {
    if (format.logprobs >= 0) return chunk(choice, text, logprobs_of(choice, false, true), nullptr);
    return text_events[choice.index].with(
        text, [&](const std::string& each) { return chunk(choice, each, nullptr, nullptr); });
  }
  std::string end(const Usage& usage) const {
    std::string out;
    if (format.include_usage) {
      Json answer = object(Json::array());
      answer["usage"] = usage_json(usage);
      out = sse_event("", answer);
    }
    return out + "data: [DONE]\n\n";
  }
};

}  // namespace

AnswerFormat completions_format(CompletionsFormat format) {
  auto w = std::make_shared<CompletionsWriter>(CompletionsWriter{.format = std::move(format)});
  AnswerFormat f;
  f.logprobs = w->format.logprobs >= 0;
  f.whole = [w](std::vector<AnswerChoice>& choices, const Usage& usage) {
    return w->whole(choices, usage);
  };
  f.begin = [] { return std::string(); };
  f.prompt = [w](AnswerChoice& choice) {
    return w->format.echo ? w->chunk(choice, w->prompt_text(choice),
                                     w->logprobs_of(choice, true, false), nullptr)
                          : "";
  };
  f.delta = [w](AnswerChoice& choice, const Deltas& deltas) {
    std::string text;
    for (const ReplyDelta& delta : deltas) text += delta.text;
    if (text.empty()) return std::string();  // its tokens go with the next text
    return w->text_chunk(choice, text);
  };
  f.end_choice = [w](AnswerChoice& choice) {
    return w->chunk(choice, "", w->logprobs_of(choice, false, true), finish_reason(choice));
  };
  f.end = [w](const Usage& usage) { return w->end(usage); };
  f.failed = [](const RequestError& error) {
    return "data: " + error_body(ErrorShape::kOpenAi, error) + "\n\ndata: [DONE]\n\n";
  };
  return f;
}

bool read_stream_options(JsonFields& fields, bool stream) {
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return false;
  if (!stream) fields.fail("stream_options", "is only for streams: 'stream' is not true");
  JsonFields members(*options, fields.place_of("stream_options"));
  const bool usage = members.boolean("include_usage", false);
  members.ignore({"include_obfuscation", "continuous_usage_stats"});
  members.done();
  return usage;
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

}  // namespace moraine
