// Values as JSON text, byte for byte as Python's json.dumps writes them.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"

namespace moraine::jinja {
namespace {

void add_escape(TextBuilder* out, int32_t c) {
  if (c >= 0x10000) {
    out->add(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10),
                         0xDC00 + ((c - 0x10000) & 0x3FF)));
  } else {
    out->add(fmt::format("\\u{:04x}", c));
  }
}

void add_string(TextBuilder* out, std::string_view text, bool ascii) {
  static const std::string_view kPlain = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  out->add("\"");
  size_t copied = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_bytes_of_lead(text[at]);
    const int32_t c = utf8_code_point(text, static_cast<int64_t>(at));
    const size_t short_form = c < 0x80 ? kPlain.find(static_cast<char>(c)) : kPlain.npos;
    if (c < 0x20 || short_form != kPlain.npos || (ascii && c >= 0x7F)) {
      out->add(text.substr(copied, at - copied));
      if (short_form != kPlain.npos) {
        out->add("\\");
        out->add(kLetters.substr(short_form, 1));
      } else {
        add_escape(out, c);
      }
      copied = at + bytes;
    }
    at += bytes;
  }
  out->add(text.substr(copied));
  out->add("\"");
}

void add_line(TextBuilder* out, const JsonStyle& style, int64_t depth) {
  if (!style.lines) return;
  out->add("\n");
  for (int64_t i = 0; i < depth; ++i) out->add(style.indent);
}

std::string_view number_text(Runtime& rt, const Value& value) {
  if (value.is(Kind::kFloat) && std::isnan(value.real)) return "NaN";
  if (value.is(Kind::kFloat) && std::isinf(value.real)) {
    return value.real < 0 ? "-Infinity" : "Infinity";
  }
  return to_text(rt, value);
}

// A key, which JSON has as strings only.
std::string_view key_text(Runtime& rt, const Value& key) {
  if (key.is(Kind::kText)) return key.text;
  if (key.is(Kind::kBool)) return key.boolean ? "true" : "false";
  if (key.is(Kind::kNone)) return "null";
  if (!key.is_number()) rt.fail("tojson: '{}' can not be a key of JSON", kind_name(key));
  return number_text(rt, key);
}

void add_object(TextBuilder* out, Runtime& rt, const Dict& dict, const JsonStyle& style,
                int64_t depth) {
  std::vector<std::pair<std::string_view, Value>> items;
  for (const auto& [key, value] : dict.items) items.emplace_back(key_text(rt, key), value);
  if (style.sort_keys) {
    rt.step(static_cast<int64_t>(items.size()) * 16);
    std::stable_sort(items.begin(), items.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  out->add("{");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->add(style.item_separator);
    add_line(out, style, depth + 1);
    add_string(out, items[i].first, style.ensure_ascii);
    out->add(style.key_separator);
    add_json(out, rt, items[i].second, style, depth + 1);
  }
  if (!items.empty()) add_line(out, style, depth);
  out->add("}");
}

}  // namespace

void add_json(TextBuilder* out, Runtime& rt, const Value& value, const JsonStyle& style,
              int64_t depth) {
  if (depth > rt.limits().value_depth) rt.fail("tojson: a value nested too deep");
  rt.step();
  switch (value.kind) {
    case Kind::kNone:
      return out->add("null");
    case Kind::kBool:
      return out->add(value.boolean ? "true" : "false");
    case Kind::kInt:
    case Kind::kFloat:
      return out->add(number_text(rt, value));
    case Kind::kText:
      rt.scan(static_cast<int64_t>(value.text.size()));
      return add_string(out, value.text, style.ensure_ascii);
    case Kind::kDict:
      return add_object(out, rt, *value.dict, style, depth);
    case Kind::kList: {
      const std::vector<Value>& items = value.list->items;
      out->add("[");
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out->add(style.item_separator);
        add_line(out, style, depth + 1);
        add_json(out, rt, items[i], style, depth + 1);
      }
      if (!items.empty()) add_line(out, style, depth);
      return out->add("]");
    }
    case Kind::kUndefined:
      rt.fail("tojson: {} is undefined", value.text.empty() ? "a value" : std::string(value.text));
    default:
      rt.fail("tojson: '{}' is no JSON", kind_name(value));
  }
}

}  // namespace moraine::jinja
