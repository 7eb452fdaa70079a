// What tests of grammars share: small vocabularies, states fed with text, and a validator of its own.
#pragma once

#include <algorithm>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/pool.h"
#include "base/utf8.h"
#include "grammar/grammar.h"
#include "tokenizer/train.h"

namespace moraine::testing {

// Trained on texts that JSON is made of; tokens hold quotes, escapes and parts of characters.
inline std::unique_ptr<Tokenizer> json_tokenizer(int64_t vocab_size,
                                                 std::vector<std::string> special_tokens = {
                                                     "<|end|>", "<|call|>"}) {
  const std::string kTexts[] = {
      "{\"name\": \"Ada Lovelace\", \"age\": 36, \"tags\": [\"a\", \"b\"], \"ok\": true}",
      "{\"name\":\"Z\\u00e9\\n\\\"quoted\\\"\",\"age\":-12.5e3,\"tags\":[],\"x\":null,\"ok\":"
      "false}",
      "{\n  \"id\": 1,\n  \"items\": [\n    {\"id\": 2}\n  ]\n}",
      "\"\xc3\xa9\xc3\xa8\xe2\x82\xac\xf0\x9f\x98\x80\xe4\xb8\xad\xe6\x96\x87\" "
      "\"2024-02-29T12:30:00Z\"",
      "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {\"query\": \"x\"}}\n</tool_call> text",
      "\"\\ud83d\\ude00\" \", \" \"], [\" \"}, {\" \": \" aaaa bbbb \", \"\": \"\"}]}\"}"};
  int64_t i = 0;
  Pool pool(1);
  BpeTrainOptions options;
  options.vocab_size = vocab_size;
  options.special_tokens = std::move(special_tokens);
  options.min_frequency = 1;
  options.pattern = "[^ ]{1,12}| ?[^ ]{1,6}| +";
  const std::string json = train_bpe(
      [&](std::string* text) {
        if (i == 60) return false;
        *text = kTexts[i++ % std::size(kTexts)];
        return true;
      },
      options, pool, [](const BpeTrainProgress&) {});
  return Tokenizer::parse(json, "test");
}

inline bool is_set(const std::vector<uint64_t>& mask, int32_t id) {
  return (mask[id >> 6] >> (id & 63)) & 1;
}

// Whether a text is an answer, token by token or byte by byte.
inline bool accepts_bytes(const std::shared_ptr<const Grammar>& grammar, const TokenTrie& trie,
                          std::string_view text) {
  GrammarState state(grammar, trie);
  return state.accept_bytes(text) && state.may_end();
}

// An independent reading of JSON Schema, value by value: of what the tests use of it.
class SchemaValidator {
 public:
  explicit SchemaValidator(Json root) : root_(std::move(root)) {}
  bool valid(const Json& value) const { return valid(root_, value); }

 private:
  static int64_t length(const std::string& text) {
    int64_t count = 0;
    for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    return count;
  }
  static bool is(const std::string& type, const Json& v) {
    if (type == "integer") return v.is_number_integer();
    if (type == "number") return v.is_number();
    if (type == "string") return v.is_string();
    if (type == "boolean") return v.is_boolean();
    if (type == "null") return v.is_null();
    return type == "array" ? v.is_array() : v.is_object();
  }
  bool valid_type(const Json& s, const Json& v) const {
    if (!s.contains("type")) return true;
    if (s["type"].is_string()) return is(s["type"].text(), v);
    for (const Json& type : s["type"]) {
      if (is(type.text(), v)) return true;
    }
    return false;
  }
  bool valid_text(const Json& s, const std::string& text) const {
    if (s.contains("minLength") && length(text) < s["minLength"].get<int64_t>()) return false;
    if (s.contains("maxLength") && length(text) > s["maxLength"].get<int64_t>()) return false;
    if (!s.contains("pattern")) return true;
    return std::regex_search(text, std::regex(s["pattern"].get<std::string>()));
  }
  bool valid_number(const Json& s, double v) const {
    return !(s.contains("minimum") && v < s["minimum"].get<double>()) &&
           !(s.contains("maximum") && v > s["maximum"].get<double>()) &&
           !(s.contains("exclusiveMinimum") && v <= s["exclusiveMinimum"].get<double>()) &&
           !(s.contains("exclusiveMaximum") && v >= s["exclusiveMaximum"].get<double>());
  }
  bool valid_array(const Json& s, const Json& v) const {
    const int64_t count = static_cast<int64_t>(v.size());
    if (s.contains("minItems") && count < s["minItems"].get<int64_t>()) return false;
    if (s.contains("maxItems") && count > s["maxItems"].get<int64_t>()) return false;
    const size_t first = s.contains("prefixItems") ? s["prefixItems"].size() : 0;
    for (size_t i = 0; i < v.size(); ++i) {
      if (i < first && !valid(s["prefixItems"][i], v[i])) return false;
      if (i >= first && s.contains("items") && !valid(s["items"], v[i])) return false;
    }
    return true;
  }
  bool valid_object(const Json& s, const Json& v) const {
    if (s.contains("required")) {
      for (const Json& name : s["required"]) {
        if (!v.contains(name.get<std::string>())) return false;
      }
    }
    for (const auto& [name, value] : v.items()) {
      const bool declared = s.contains("properties") && s["properties"].contains(name);
      if (declared && !valid(s["properties"][name], value)) return false;
      if (!declared && s.contains("additionalProperties") &&
          !valid(s["additionalProperties"], value)) {
        return false;
      }
    }
    return true;
  }
  // "#" or "#/name/name".
  const Json& referenced(const std::string& reference) const {
    const Json* at = &root_;
    for (size_t begin = 1; begin < reference.size();) {
      const size_t end = std::min(reference.find('/', begin + 1), reference.size());
      at = &at->at(reference.substr(begin + 1, end - begin - 1));
      begin = end;
    }
    return *at;
  }
  bool valid(const Json& s, const Json& v) const {
    if (s.is_boolean()) return s.get<bool>();
    if (s.contains("$ref")) {
      const std::string& ref = s["$ref"].text();
      if (!valid(referenced(ref), v)) return false;
    }
    if (s.contains("allOf")) {
      for (const Json& part : s["allOf"]) {
        if (!valid(part, v)) return false;
      }
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (!s.contains(keyword)) continue;
      bool any = false;
      for (const Json& part : s[keyword]) any = any || valid(part, v);
      if (!any) return false;
    }
    if (s.contains("const") && s["const"] != v) return false;
    if (s.contains("enum") && std::find(s["enum"].begin(), s["enum"].end(), v) == s["enum"].end()) {
      return false;
    }
    if (!valid_type(s, v)) return false;
    if (v.is_string()) return valid_text(s, v.get<std::string>());
    if (v.is_number()) return valid_number(s, v.get<double>());
    if (v.is_array()) return valid_array(s, v);
    return !v.is_object() || valid_object(s, v);
  }

  const Json root_;
};

}  // namespace moraine::testing
