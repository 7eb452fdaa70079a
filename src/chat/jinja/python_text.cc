// str(), repr(), json.dumps and characters.
#include "chat/jinja/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/operators.h"
#include "tokenizer/unicode.h"

namespace moraine::jinja {
namespace {

void add_quoted(TextBuilder* out, std::string_view text) {
  const bool twice = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = twice ? '"' : '\'';
  out->add(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_bytes_of_lead(text[at]);
    const int32_t c = utf8_code_point(text, static_cast<int64_t>(at));
    if (c == quote || c == '\\') {
      out->add(1, '\\');
      out->add(1, static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out->add(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) {
      out->add(fmt::format("\\x{:02x}", c));
    } else if (c != ' ' && (is_white_space(c) || (c >= 0x200B && c <= 0x200F))) {
      out->add(fmt::format("\\u{:04x}", c));
    } else {
      out->add(text.substr(at, bytes));
    }
    at += bytes;
  }
  out->add(1, quote);
}

void add_items(TextBuilder* out, Runtime& rt, const Value& value, int64_t depth) {
  if (value.is(Kind::kDict)) {
    out->add("{");
    bool first = true;
    for (const auto& [key, item] : value.dict->items) {
      if (!first) out->add(", ");
      first = false;
      add_repr(out, rt, key, depth + 1);
      out->add(": ");
      add_repr(out, rt, item, depth + 1);
    }
    out->add("}");
    return;
  }
  const std::vector<Value>& items = value.list->items;
  out->add(value.list->tuple ? "(" : "[");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->add(", ");
    add_repr(out, rt, items[i], depth + 1);
  }
  if (value.list->tuple) out->add(items.size() == 1 ? ",)" : ")");
  if (!value.list->tuple) out->add("]");
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[40];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  std::string text(digits, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;  // 1e-05 and 1e+16, as Python
  const auto plain =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr;
  text.assign(digits, plain);
  return text.find('.') == text.npos ? text + ".0" : text;
}

std::string_view to_text(Runtime& rt, const Value& value) {
  rt.step();
  switch (value.kind) {
    case Kind::kUndefined:
      return "";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.boolean ? "True" : "False";
    case Kind::kInt:
      return rt.text(std::to_string(value.integer)).text;
    case Kind::kFloat:
      return rt.text(float_text(value.real)).text;
    case Kind::kText:
      return value.text;
    default: {
      TextBuilder out(rt);
      add_repr(&out, rt, value);
      return out.done().text;
    }
  }
}

void add_repr(TextBuilder* out, Runtime& rt, const Value& value, int64_t depth) {
  if (depth > rt.limits().value_depth) rt.fail("a value nested too deep to print");
  rt.step();
  switch (value.kind) {
    case Kind::kUndefined:
      return out->add("Undefined");
    case Kind::kText:
      rt.scan(static_cast<int64_t>(value.text.size()));
      return add_quoted(out, value.text);
    case Kind::kList:
    case Kind::kDict:
      return add_items(out, rt, value, depth);
    case Kind::kNamespace: {
      out->add("<Namespace {");
      bool first = true;
      for (const auto& [key, item] : value.space->items) {
        if (!first) out->add(", ");
        first = false;
        add_quoted(out, key);
        out->add(": ");
        add_repr(out, rt, item, depth + 1);
      }
      return out->add("}>");
    }
    case Kind::kFunction:
    case Kind::kLoop:
      return out->add(value.is(Kind::kLoop) ? "<LoopContext>" : "<function>");
    default:
      return out->add(to_text(rt, value));
  }
}

bool is_python_space(int32_t c) { return (c >= 0x1C && c <= 0x1F) || is_white_space(c); }

std::string_view strip_left(std::string_view text) {
  while (!text.empty() && is_python_space(utf8_code_point(text, 0))) {
    text.remove_prefix(utf8_bytes_of_lead(text[0]));
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const int64_t last = utf8_previous(text, static_cast<int64_t>(text.size()));
    if (!is_python_space(utf8_code_point(text, last))) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view characters) {
  while (!text.empty()) {
    const size_t bytes = utf8_bytes_of_lead(text[0]);
    if (characters.find(text.substr(0, bytes)) == characters.npos) break;
    text.remove_prefix(bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view characters) {
  while (!text.empty()) {
    const int64_t last = utf8_previous(text, static_cast<int64_t>(text.size()));
    if (characters.find(text.substr(last)) == characters.npos) break;
    text = text.substr(0, last);
  }
  return text;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string_view characters(std::string_view text, int64_t begin, int64_t end) {
  size_t at = 0;
  int64_t index = 0;
  for (; index < begin && at < text.size(); ++index) at += utf8_bytes_of_lead(text[at]);
  const size_t first = at;
  for (; index < end && at < text.size(); ++index) at += utf8_bytes_of_lead(text[at]);
  return text.substr(first, at - first);
}

std::string to_lower(std::string_view text) { return lowercase(text); }
std::string to_upper(std::string_view text) { return uppercase(text); }
bool is_letter_or_digit(int32_t c) { return c != '_' && is_word_character(c); }

}  // namespace moraine::jinja
