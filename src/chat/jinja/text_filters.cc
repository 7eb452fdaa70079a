// Filters and methods of texts.
#include "chat/jinja/text_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"
#include "tokenizer/unicode.h"

namespace moraine::jinja {
namespace {

// Filters take any value and print it first.
std::string_view text_of(Runtime& rt, const Value& value) {
  const std::string_view text = to_text(rt, value);
  rt.scan(static_cast<int64_t>(text.size()));
  return text;
}

Value counted(Runtime& rt, std::string text) {
  rt.take(static_cast<int64_t>(text.size()));
  return rt.text(std::move(text));
}

std::string capitalized(std::string_view text) {
  const size_t first = text.empty() ? 0 : utf8_bytes_of_lead(text[0]);
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

bool is_letter(int32_t c) {
  std::string text;
  append_utf8(c, &text);
  return to_lower(text) != text || to_upper(text) != text;
}

// Words of the filter begin behind white space and - ( { [ <; those of the method behind what is no letter.
std::string titled(std::string_view text, bool filter) {
  std::string out;
  bool within = false;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_bytes_of_lead(text[at]);
    const int32_t c = utf8_code_point(text, static_cast<int64_t>(at));
    const std::string_view letter = text.substr(at, bytes);
    out += within ? to_lower(letter) : to_upper(letter);
    const bool parts =
        is_python_space(c) ||
        (bytes == 1 && std::string_view("-({[<").find(text[at]) != std::string::npos);
    within = filter ? !parts : is_letter(c);
    at += bytes;
  }
  return out;
}

Value replaced(Runtime& rt, std::string_view text, const Bound& a, const BuiltIn& f) {
  const std::string_view old = text_argument(rt, f, a, 0), fresh = text_argument(rt, f, a, 1);
  int64_t left = -1;
  if (a.given[2] && !a.values[2].is(Kind::kNone)) {
    if (!a.values[2].is_whole()) rt.fail("replace() wants a whole number as count");
    left = a.values[2].whole();
  }
  rt.scan(static_cast<int64_t>(text.size()));
  TextBuilder out(rt);
  size_t at = 0;
  while (left != 0) {
    // An empty text is found before each character and at the end.
    size_t found = text.find(old, at);
    if (found == text.npos) break;
    rt.step();
    out.add(text.substr(at, found - at));
    out.add(fresh);
    at = found + old.size();
    --left;
    if (!old.empty()) continue;
    if (at == text.size()) return out.done();
    const size_t bytes = utf8_bytes_of_lead(text[at]);
    out.add(text.substr(at, bytes));
    at += bytes;
  }
  out.add(text.substr(at));
  return out.done();
}

Value stripped(Runtime& rt, std::string_view text, const Bound& a, const BuiltIn& f, int sides) {
  rt.scan(static_cast<int64_t>(text.size()));
  const bool white = !a.given[0] || a.values[0].is(Kind::kNone);
  const std::string_view set = white ? "" : text_argument(rt, f, a, 0);
  if (sides & 1) text = white ? strip_left(text) : strip_left(text, set);
  if (sides & 2) text = white ? strip_right(text) : strip_right(text, set);
  return Value::of_text(text);
}

// Lines without their ends, as str.splitlines.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_bytes_of_lead(text[at]);
    const int32_t c = utf8_code_point(text, static_cast<int64_t>(at));
    const size_t next = at + bytes;
    if ((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
        c == 0x2029) {
      lines.push_back(text.substr(begin, at - begin));
      begin = c == '\r' && next < text.size() && text[next] == '\n' ? next + 1 : next;
      at = begin;
    } else {
      at = next;
    }
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace

#define MR_TEXT_FILTER(name, expression)                                        \
  Value name(Runtime& rt, const Value& self, [[maybe_unused]] const Bound& a) { \
    const std::string_view text = text_of(rt, self);                            \
    return expression;                                                          \
  }

MR_TEXT_FILTER(filter_upper, counted(rt, to_upper(text)))
MR_TEXT_FILTER(filter_lower, counted(rt, to_lower(text)))
MR_TEXT_FILTER(filter_capitalize, counted(rt, capitalized(text)))
MR_TEXT_FILTER(filter_title, counted(rt, titled(text, true)))
MR_TEXT_FILTER(method_title, counted(rt, titled(text, false)))
MR_TEXT_FILTER(filter_string, Value::of_text(text))
MR_TEXT_FILTER(filter_trim, stripped(rt, text, a, *find_filter("trim"), 3))
MR_TEXT_FILTER(filter_replace, replaced(rt, text, a, *find_filter("replace")))
MR_TEXT_FILTER(method_lstrip, stripped(rt, text, a, *find_filter("trim"), 1))
MR_TEXT_FILTER(method_rstrip, stripped(rt, text, a, *find_filter("trim"), 2))

#undef MR_TEXT_FILTER

Value filter_indent(Runtime& rt, const Value& self, const Bound& a) {
  const std::string_view text = text_of(rt, self);
  std::string spaces(4, ' ');
  if (a.given[0] && a.values[0].is(Kind::kText)) {
    spaces = a.values[0].text;
  } else if (a.given[0]) {
    if (!a.values[0].is_whole()) rt.fail("indent() wants a number or a text");
    const int64_t width = std::max<int64_t>(a.values[0].whole(), 0);
    rt.take(width);
    spaces.assign(width, ' ');
  }
  const bool first = truth(a.values[1]), blank = truth(a.values[2]);
  const std::string lined = std::string(text) + "\n";
  const std::vector<std::string_view> lines = lines_of(lined);
  TextBuilder out(rt);
  for (size_t i = 0; i < lines.size(); ++i) {
    rt.step();
    if (i > 0) out.add("\n");
    if (i == 0 ? first : (blank || !lines[i].empty())) out.add(spaces);
    out.add(lines[i]);
  }
  return out.done();
}

Value filter_center(Runtime& rt, const Value& self, const Bound& a) {
  const std::string_view text = text_of(rt, self);
  if (a.given[0] && !a.values[0].is_whole()) rt.fail("center() wants a number");
  const int64_t width = a.given[0] ? a.values[0].whole() : 80;
  const int64_t fill = std::max<int64_t>(width - count_characters(text), 0);
  const int64_t left = fill / 2 + (fill & width & 1);
  TextBuilder out(rt);
  out.add(left, ' ');
  out.add(text);
  out.add(fill - left, ' ');
  return out.done();
}

Value filter_wordcount(Runtime& rt, const Value& self, const Bound&) {
  const std::string_view text = text_of(rt, self);
  int64_t words = 0;
  bool within = false;
  for (size_t at = 0; at < text.size(); at += utf8_bytes_of_lead(text[at])) {
    const int32_t c = utf8_code_point(text, static_cast<int64_t>(at));
    const bool letter = c == '_' || is_letter_or_digit(c);
    words += letter && !within;
    within = letter;
  }
  return Value::of_int(words);
}

Value filter_int(Runtime& rt, const Value& self, const Bound& a) {
  const Value otherwise = a.given[0] ? a.values[0] : Value::of_int(0);
  if (self.is_whole()) return Value::of_int(self.whole());
  double real = 0;
  if (self.is(Kind::kFloat)) {
    real = self.real;
  } else if (self.is(Kind::kText)) {
    std::string digits(strip_left(strip_right(self.text)));
    int base = 10;
    if (a.given[1] && a.values[1].is_whole()) base = static_cast<int>(a.values[1].whole());
    if (base < 2 || base > 36) rt.fail("int() wants a base from 2 to 36");
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    const char mark = digits.size() > 1 && digits[0] == '0' ? digits[1] | 0x20 : '\0';
    const bool marked =
        (base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b');
    if (marked) digits.erase(0, 2);
    if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
    int64_t n = 0;
    const char* last = digits.data() + digits.size();
    const auto [end, problem] = std::from_chars(digits.data(), last, n, base);
    if (problem == std::errc() && end == last && !digits.empty()) return Value::of_int(n);
    const auto parsed = std::from_chars(digits.data(), last, real);
    if (parsed.ec != std::errc() || parsed.ptr != last || digits.empty()) return otherwise;
  } else if (self.is(Kind::kUndefined)) {
    fail_undefined(rt, self);
  } else {
    return otherwise;
  }
  if (!(std::abs(real) < 9.2e18)) return otherwise;
  return Value::of_int(static_cast<int64_t>(real));
}

Value filter_float(Runtime& rt, const Value& self, const Bound& a) {
  const Value otherwise = a.given[0] ? a.values[0] : Value::of_float(0);
  if (self.is_number()) return Value::of_float(self.number());
  if (self.is(Kind::kUndefined)) fail_undefined(rt, self);
  if (!self.is(Kind::kText)) return otherwise;
  std::string_view digits = strip_left(strip_right(self.text));
  if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
  double real = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), real);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  return whole && !digits.empty() ? Value::of_float(real) : otherwise;
}

Value method_split(Runtime& rt, const Value& self, const Bound& a) {
  std::string_view text = self.text;
  int64_t left = a.given[1] && a.values[1].is_whole() ? a.values[1].whole() : -1;
  List* out = rt.list();
  rt.scan(static_cast<int64_t>(text.size()));
  if (!a.given[0] || a.values[0].is(Kind::kNone)) {
    for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
      size_t end = 0;
      while (end < text.size() && !is_python_space(utf8_code_point(text, end))) {
        end += utf8_bytes_of_lead(text[end]);
      }
      if (left-- == 0) end = strip_right(text).size();
      rt.append(out, Value::of_text(text.substr(0, end)));
      text = text.substr(end);
      if (left == -1 && strip_left(text).empty()) break;
    }
    return Value::of_list(out);
  }
  const std::string_view mark = text_argument(rt, *find_method(self, "split"), a, 0);
  if (mark.empty()) rt.fail("split() by an empty text");
  for (; left != 0; --left) {
    const size_t found = text.find(mark);
    if (found == text.npos) break;
    rt.append(out, Value::of_text(text.substr(0, found)));
    text = text.substr(found + mark.size());
  }
  rt.append(out, Value::of_text(text));
  return Value::of_list(out);
}

Value method_rsplit(Runtime& rt, const Value& self, const Bound& a) {
  if (!a.given[0] || a.values[0].is(Kind::kNone)) rt.fail("rsplit() wants the text to split by");
  std::string_view text = self.text;
  int64_t left = a.given[1] && a.values[1].is_whole() ? a.values[1].whole() : -1;
  const std::string_view mark = text_argument(rt, *find_method(self, "rsplit"), a, 0);
  if (mark.empty()) rt.fail("rsplit() by an empty text");
  rt.scan(static_cast<int64_t>(text.size()));
  List* out = rt.list();
  for (; left != 0; --left) {
    const size_t found = text.rfind(mark);
    if (found == text.npos) break;
    rt.append(out, Value::of_text(text.substr(found + mark.size())));
    text = text.substr(0, found);
  }
  rt.append(out, Value::of_text(text));
  std::reverse(out->items.begin(), out->items.end());
  return Value::of_list(out);
}

Value method_splitlines(Runtime& rt, const Value& self, const Bound&) {
  rt.scan(static_cast<int64_t>(self.text.size()));
  List* out = rt.list();
  for (const std::string_view line : lines_of(self.text)) rt.append(out, Value::of_text(line));
  return Value::of_list(out);
}

namespace {

Value has_end(Runtime& rt, const Value& self, const Bound& a, bool start) {
  const auto matches = [&](const Value& part) {
    if (!part.is(Kind::kText)) rt.fail("startswith() and endswith() want texts");
    if (part.text.size() > self.text.size()) return false;
    rt.scan(static_cast<int64_t>(part.text.size()));
    return self.text.substr(start ? 0 : self.text.size() - part.text.size(), part.text.size()) ==
           part.text;
  };
  if (!a.values[0].is(Kind::kList)) return Value::of_bool(matches(a.values[0]));
  const std::vector<Value>& items = a.values[0].list->items;
  return Value::of_bool(std::any_of(items.begin(), items.end(), matches));
}

}  // namespace

Value method_startswith(Runtime& rt, const Value& self, const Bound& a) {
  return has_end(rt, self, a, true);
}
Value method_endswith(Runtime& rt, const Value& self, const Bound& a) {
  return has_end(rt, self, a, false);
}

Value method_find(Runtime& rt, const Value& self, const Bound& a) {
  rt.scan(static_cast<int64_t>(self.text.size()));
  const size_t found = self.text.find(text_argument(rt, *find_method(self, "find"), a, 0));
  return Value::of_int(found == self.text.npos ? -1 : count_characters(self.text.substr(0, found)));
}

Value method_rfind(Runtime& rt, const Value& self, const Bound& a) {
  rt.scan(static_cast<int64_t>(self.text.size()));
  const size_t found = self.text.rfind(text_argument(rt, *find_method(self, "rfind"), a, 0));
  return Value::of_int(found == self.text.npos ? -1 : count_characters(self.text.substr(0, found)));
}

Value method_index(Runtime& rt, const Value& self, const Bound& a) {
  const Value found = method_find(rt, self, a);
  if (found.integer < 0) rt.fail("index(): the text is not in it");
  return found;
}

Value method_count(Runtime& rt, const Value& self, const Bound& a) {
  const std::string_view part = text_argument(rt, *find_method(self, "count"), a, 0);
  rt.scan(static_cast<int64_t>(self.text.size()));
  if (part.empty()) return Value::of_int(count_characters(self.text) + 1);
  int64_t times = 0;
  for (size_t at = self.text.find(part); at != self.text.npos;
       at = self.text.find(part, at + part.size())) {
    ++times;
  }
  return Value::of_int(times);
}

Value method_join(Runtime& rt, const Value& self, const Bound& a) {
  TextBuilder out(rt);
  bool first = true;
  for (const Value& item : items_of(rt, a.values[0])) {
    if (!item.is(Kind::kText)) rt.fail("join() wants texts, not '{}'", kind_name(item));
    if (!first) out.add(self.text);
    first = false;
    out.add(item.text);
  }
  return out.done();
}

Value method_remove_end(Runtime& rt, const Value& self, const Bound& a, bool start) {
  if (!truth(has_end(rt, self, a, start))) return self;
  const size_t bytes = a.values[0].text.size();
  return Value::of_text(start ? self.text.substr(bytes)
                              : self.text.substr(0, self.text.size() - bytes));
}

Value method_is(Runtime& rt, const Value& self, std::string_view what) {
  rt.scan(static_cast<int64_t>(self.text.size()));
  const std::string lower = to_lower(self.text), upper = to_upper(self.text);
  if (what == "islower") return Value::of_bool(self.text == lower && lower != upper);
  if (what == "isupper") return Value::of_bool(self.text == upper && lower != upper);
  bool all = !self.text.empty();
  for (size_t at = 0; at < self.text.size(); at += utf8_bytes_of_lead(self.text[at])) {
    const int32_t c = utf8_code_point(self.text, static_cast<int64_t>(at));
    if (what == "isspace") all &= is_python_space(c);
    if (what == "isdigit") all &= is_numeric(c);
    if (what == "isalnum") all &= is_letter_or_digit(c);
    if (what == "isalpha") all &= is_letter_or_digit(c) && !is_numeric(c);
  }
  return Value::of_bool(all);
}

// "{} and {name}".format(...). Format specifications are refused.
Value method_format(Runtime& rt, const Value& self, const Arguments& a) {
  const std::string_view text = self.text;
  TextBuilder out(rt);
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    rt.step();
    const char c = text[at];
    if (c != '{' && c != '}') {
      const size_t end = std::min(text.find_first_of("{}", at), text.size());
      out.add(text.substr(at, end - at));
      at = end;
      continue;
    }
    if (at + 1 < text.size() && text[at + 1] == c) {
      out.add(1, c);
      at += 2;
      continue;
    }
    const size_t end = text.find('}', at);
    if (c == '}' || end == text.npos) rt.fail("format(): a brace without its other one");
    const std::string_view name = text.substr(at + 1, end - at - 1);
    at = end + 1;
    size_t index = next;
    const auto [last, problem] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (name.empty()) ++next;
    const auto named = std::find_if(a.named.begin(), a.named.end(),
                                    [&](const auto& item) { return item.first == name; });
    if (named != a.named.end()) {
      out.add(to_text(rt, named->second));
      continue;
    }
    const bool number = problem == std::errc() && last == name.data() + name.size();
    if (!name.empty() && !number) rt.fail("format(): nothing for '{}'", name);
    if (index >= a.items.size()) rt.fail("format(): has no argument {}", index);
    out.add(to_text(rt, a.items[index]));
  }
  return out.done();
}

}  // namespace moraine::jinja
