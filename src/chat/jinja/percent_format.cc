// Texts with conversions like %s and %.2f, as Python's % operator fills them in.
#include <algorithm>
#include <cmath>
#include <string>

#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"

namespace moraine::jinja {
namespace {

struct Conversion {
  bool left = false, zero = false, plus = false;
  int64_t width = 0;
  int64_t precision = -1;
  char letter = 0;
};

constexpr int64_t kWidthMost = 1000;  // of a number or a column

int64_t read_number(Runtime& rt, std::string_view format, size_t* at) {
  int64_t n = 0;
  for (; *at < format.size() && format[*at] >= '0' && format[*at] <= '9'; ++*at) {
    n = n * 10 + (format[*at] - '0');
    if (n > kWidthMost) rt.fail("a format asks for more than {} characters", kWidthMost);
  }
  return n;
}

Conversion read_conversion(Runtime& rt, std::string_view format, size_t* at) {
  Conversion c;
  for (; *at < format.size() && std::string_view("-0+ #").find(format[*at]) != std::string::npos;
       ++*at) {
    c.left |= format[*at] == '-';
    c.zero |= format[*at] == '0';
    c.plus |= format[*at] == '+';
  }
  c.width = read_number(rt, format, at);
  if (*at < format.size() && format[*at] == '.') {
    ++*at;
    c.precision = read_number(rt, format, at);
  }
  if (*at == format.size()) rt.fail("a format ends within a conversion");
  c.letter = format[(*at)++];
  return c;
}

std::string convert(Runtime& rt, const Conversion& c, const Value& value) {
  if (c.letter == 's' || c.letter == 'r') {
    std::string_view text = to_text(rt, value);
    if (c.letter == 'r') {
      TextBuilder out(rt);
      add_repr(&out, rt, value);
      text = out.done().text;
    }
    if (c.precision >= 0) text = characters(text, 0, c.precision);
    return std::string(text);
  }
  if (!value.is_number()) rt.fail("%{} wants a number, not '{}'", c.letter, kind_name(value));
  const std::string sign = c.plus && value.number() >= 0 ? "+" : "";
  const int precision = static_cast<int>(c.precision < 0 ? 6 : c.precision);
  switch (c.letter) {
    case 'd':
    case 'i':
      if (value.is(Kind::kFloat) && std::abs(value.real) >= 9e18) rt.fail("%d of a large number");
      return sign + std::to_string(value.is(Kind::kFloat) ? static_cast<int64_t>(value.real)
                                                          : value.whole());
    case 'f':
    case 'F':
      return sign + fmt::format("{:.{}f}", value.number(), precision);
    case 'e':
      return sign + fmt::format("{:.{}e}", value.number(), precision);
    case 'g':
      return sign + fmt::format("{:.{}g}", value.number(), precision);
    case 'x':
    case 'X':
      if (!value.is_whole()) rt.fail("%x wants a whole number");
      return c.letter == 'x' ? fmt::format("{:x}", value.whole())
                             : fmt::format("{:X}", value.whole());
    default:
      rt.fail("unknown conversion %{}", c.letter);
  }
}

}  // namespace

Value percent_format(Runtime& rt, std::string_view format, const std::vector<Value>& arguments) {
  TextBuilder out(rt);
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    rt.step();
    const size_t percent = std::min(format.find('%', at), format.size());
    out.add(format.substr(at, percent - at));
    at = percent + 1;
    if (percent == format.size()) break;
    if (at < format.size() && format[at] == '%') {
      out.add("%");
      ++at;
      continue;
    }
    const Conversion c = read_conversion(rt, format, &at);
    if (next == arguments.size()) rt.fail("a format has more conversions than values");
    const std::string text = convert(rt, c, arguments[next++]);
    const int64_t fill = c.width - count_characters(text);
    const bool digits = c.zero && !c.left && c.letter != 's' && c.letter != 'r';
    const bool signed_text = digits && (text[0] == '-' || text[0] == '+');
    if (signed_text) out.add(1, text[0]);
    if (!c.left) out.add(fill, digits ? '0' : ' ');
    out.add(std::string_view(text).substr(signed_text ? 1 : 0));
    if (c.left) out.add(fill, ' ');
  }
  if (next < arguments.size()) rt.fail("a format has fewer conversions than values");
  return out.done();
}

}  // namespace moraine::jinja
