// Chat prompt: breaking special tokens in messages, and encoding around the breaks.
#include "server/chat_prompt.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace moraine {
namespace {

// Calls f on every string of `json`, names of members included.
template <class F>
void each_text(const Json& json, const F& f) {
  if (json.is_string()) f(json.text());
  if (json.is_array()) {
    for (const Json& each : json) each_text(each, f);
  }
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      f(name);
      each_text(value, f);
    }
  }
}

Json changed(const Json& json, const std::function<std::string(const std::string&)>& f) {
  if (json.is_string()) return f(json.text());
  if (json.is_array()) {
    Json out = Json::array();
    for (const Json& each : json) out.push_back(changed(each, f));
    return out;
  }
  if (!json.is_object()) return json;
  Json out = Json::object();
  for (const auto& [name, value] : json.items()) out[f(name)] = changed(value, f);
  return out;
}

// `text` with `mark` behind the first character of each special token.
std::string broken(const std::string& text, const std::vector<std::string>& specials,
                   const std::string& mark) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool special = std::any_of(
        specials.begin(), specials.end(),
        [&](const std::string& each) { return text.compare(at, each.size(), each) == 0; });
    const size_t bytes = static_cast<size_t>(utf8_bytes_of_lead(text[at]));
    out.append(text, at, bytes);
    if (special) out += mark;
    at += bytes;
  }
  return out;
}

// A character that none of `parts` holds.
std::string unused_mark(const Conversation& conversation, const std::string& source) {
  constexpr int32_t kFirst = 0xF0000, kLast = 0xFFFFD;  // private use
  for (int32_t code = kFirst; code <= kLast; ++code) {
    std::string mark;
    append_utf8(code, &mark);
    bool used = source.find(mark) != std::string::npos;
    const auto look = [&](const std::string& text) {
      used = used || text.find(mark) != std::string::npos;
    };
    each_text(conversation.messages, look);
    each_text(conversation.tools, look);
    each_text(conversation.variables, look);
    if (!used) return mark;
  }
  throw_error(Code::kInvalidArgument,
              "the conversation holds every character of a private-use plane");
}

std::string without(std::string text, const std::string& mark) {
  for (size_t at; (at = text.find(mark)) != std::string::npos;) text.erase(at, mark.size());
  return text;
}

// Special tokens of the template are themselves; what lies between is ordinary.
std::vector<int32_t> encode_around(const std::string& text, const std::string& mark,
                                   const Tokenizer& tokenizer,
                                   const std::vector<std::string>& specials) {
  std::vector<int32_t> ids;
  size_t begin = 0;
  const auto ordinary = [&](size_t end) {
    if (end == begin) return;
    const auto part = tokenizer.encode_ordinary(without(text.substr(begin, end - begin), mark));
    ids.insert(ids.end(), part.begin(), part.end());
  };
  for (size_t at = 0; at < text.size();) {
    const auto found = std::find_if(specials.begin(), specials.end(), [&](const std::string& each) {
      return text.compare(at, each.size(), each) == 0;
    });
    // One of a single character is marked behind it.
    const bool marked = found != specials.end() &&
                        text.compare(at + found->size(), mark.size(), mark) == 0 &&
                        found->size() == static_cast<size_t>(utf8_bytes_of_lead((*found)[0]));
    if (found == specials.end() || marked) {
      ++at;
      continue;
    }
    ordinary(at);
    ids.push_back(tokenizer.id_of(*found));
    begin = at += found->size();
  }
  ordinary(text.size());
  return ids;
}

}  // namespace

std::vector<std::string> special_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int64_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const int32_t token = static_cast<int32_t>(id);
    if (tokenizer.is_special(token) && !tokenizer.token_text(token).empty())
      texts.emplace_back(tokenizer.token_text(token));
  }
  std::stable_sort(texts.begin(), texts.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return texts;
}

ChatPrompt chat_prompt(const ChatTemplate& chat, const Conversation& conversation,
                       const Tokenizer& tokenizer, const std::vector<std::string>& specials) {
  bool unsafe = false;
  const auto look = [&](const std::string& text) {
    unsafe = unsafe || std::any_of(specials.begin(), specials.end(), [&](const std::string& each) {
               return text.find(each) != std::string::npos;
             });
  };
  each_text(conversation.messages, look);
  each_text(conversation.tools, look);
  each_text(conversation.variables, look);
  if (!unsafe) {
    std::string text = chat.render(conversation);
    return {.tokens = tokenizer.encode(text, /*add_special_tokens=*/false),
            .text = std::move(text)};
  }
  const std::string mark = unused_mark(conversation, chat.source());
  const auto break_it = [&](const std::string& text) { return broken(text, specials, mark); };
  Conversation safe = conversation;
  safe.messages = changed(conversation.messages, break_it);
  safe.tools = changed(conversation.tools, break_it);
  safe.variables = changed(conversation.variables, break_it);
  const std::string text = chat.render(safe);
  return {.tokens = encode_around(text, mark, tokenizer, specials), .text = without(text, mark)};
}

}  // namespace moraine
