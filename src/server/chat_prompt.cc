// Chat prompt: breaking special tokens in messages, and encoding around the breaks.
#include "server/chat_prompt.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

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
std::string broken(const std::string& text, const SpecialTexts& specials, const std::string& mark) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = static_cast<size_t>(utf8_bytes_of_lead(text[at]));
    out.append(text, at, bytes);
    if (!specials.begins(text, at).empty()) out += mark;
    at += bytes;
  }
  return out;
}

// The characters of a private-use plane that texts hold.
class PrivateCharacters {
 public:
  void look(std::string_view text) {
    constexpr char kLead = '\xF3';
    for (size_t at = text.find(kLead); at != text.npos; at = text.find(kLead, at + 1)) {
      if (at + 4 > text.size()) return;
      const auto bits = [&](size_t i) { return static_cast<uint8_t>(text[at + i]) & 0x3F; };
      const int32_t code = 3 << 18 | bits(1) << 12 | bits(2) << 6 | bits(3);
      if (code >= kFirst && code <= kLast) used_[static_cast<size_t>(code - kFirst)] = true;
    }
  }
  // The first that none of them holds, in UTF-8.
  std::string unused() const {
    const auto found = std::find(used_.begin(), used_.end(), false);
    if (found == used_.end())
      throw_error(Code::kInvalidArgument,
                  "the conversation holds every character of a private-use plane");
    std::string mark;
    append_utf8(kFirst + static_cast<int32_t>(found - used_.begin()), &mark);
    return mark;
  }

 private:
  static constexpr int32_t kFirst = 0xF0000, kLast = 0xFFFFD;
  std::vector<bool> used_ = std::vector<bool>(kLast - kFirst + 1);
};

std::string unused_mark(const Conversation& conversation, const std::string& source) {
  PrivateCharacters characters;
  const auto look = [&](const std::string& text) { characters.look(text); };
  look(source);
  each_text(conversation.messages, look);
  each_text(conversation.tools, look);
  each_text(conversation.variables, look);
  return characters.unused();
}

std::string without(std::string_view text, const std::string& mark) {
  std::string out;
  size_t begin = 0;
  for (size_t at; (at = text.find(mark, begin)) != text.npos; begin = at + mark.size())
    out += text.substr(begin, at - begin);
  out += text.substr(begin);
  return out;
}

// Special tokens of the template are themselves; what lies between is ordinary.
std::vector<int32_t> encode_around(std::string_view text, const std::string& mark,
                                   const Tokenizer& tokenizer, const SpecialTexts& specials) {
  std::vector<int32_t> ids;
  size_t begin = 0;
  const auto ordinary = [&](size_t end) {
    if (end == begin) return;
    const auto part = tokenizer.encode_ordinary(without(text.substr(begin, end - begin), mark));
    ids.insert(ids.end(), part.begin(), part.end());
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view found = specials.begins(text, at);
    // One of a single character is marked behind it.
    const bool marked = !found.empty() && text.substr(at + found.size()).starts_with(mark) &&
                        found.size() == static_cast<size_t>(utf8_bytes_of_lead(found[0]));
    if (found.empty() || marked) {
      ++at;
      continue;
    }
    ordinary(at);
    ids.push_back(tokenizer.id_of(std::string(found)));
    begin = at += found.size();
  }
  ordinary(text.size());
  return ids;
}

}  // namespace

ChatPrompt chat_prompt(const ChatTemplate& chat, const Conversation& conversation,
                       const Tokenizer& tokenizer, const SpecialTexts& specials,
                       const std::function<void(const std::string& text)>& check) {
  bool unsafe = false;
  const auto look = [&](const std::string& text) { unsafe = unsafe || specials.is_in(text); };
  each_text(conversation.messages, look);
  each_text(conversation.tools, look);
  each_text(conversation.variables, look);
  if (!unsafe) {
    std::string text = chat.render(conversation);
    if (check) check(text);
    return {.tokens = tokenizer.encode(text, /*add_special_tokens=*/false),
            .text = std::move(text)};
  }
  const std::string mark = unused_mark(conversation, chat.source());
  const auto break_it = [&](const std::string& text) { return broken(text, specials, mark); };
  Conversation safe = conversation;
  safe.messages = changed(conversation.messages, break_it);
  safe.tools = changed(conversation.tools, break_it);
  safe.variables = changed(conversation.variables, break_it);
  const std::string marked = chat.render(safe);
  std::string text = without(marked, mark);
  if (check) check(text);
  return {.tokens = encode_around(marked, mark, tokenizer, specials), .text = std::move(text)};
}

}  // namespace moraine
