// Each bound is a pattern over decimals of any length; what is written is what all of them accept.
#include "grammar/number_range.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "grammar/limits.h"

namespace moraine {
namespace {

constexpr size_t kDigitsMost = 18;

// sign, whole.fraction; no zeros in front or at the end.
struct DecimalText {
  bool negative = false;
  std::string whole, fraction;
  bool zero() const { return whole == "0" && fraction.empty(); }
};

DecimalText decimal_of(const Json& number, const std::string& place) {
  const bool real = number.is_number_float();
  if (!number.is_number() || (real && !std::isfinite(number.get<double>()))) {
    throw_error(Code::kInvalidArgument, "{}: a bound is {}, want a number", place,
                json_text(number).substr(0, 100));
  }
  std::string text;
  if (real) {
    char digits[1200];  // of the smallest double and of the largest
    const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits),
                                                   number.get<double>(), std::chars_format::fixed);
    text.assign(digits, end.ptr);
  } else {
    text = json_text(number);
  }
  DecimalText out;
  out.negative = text[0] == '-';
  if (out.negative) text.erase(0, 1);
  const size_t point = std::min(text.find('.'), text.size());
  out.whole = text.substr(0, point);
  if (point < text.size()) out.fraction = text.substr(point + 1);
  while (!out.fraction.empty() && out.fraction.back() == '0') out.fraction.pop_back();
  if (out.whole.size() > kDigitsMost + 1) {  // as good as the first number that is never written
    out.whole = "1" + std::string(kDigitsMost, '0');
    out.fraction.clear();
  }
  // Digits that are never written decide nothing but whether the bound itself is met.
  if (out.fraction.size() > kDigitsMost + 1)
    out.fraction = out.fraction.substr(0, kDigitsMost) + "1";
  if (out.zero()) out.negative = false;
  return out;
}

std::string digits_from(char low, char high) {
  return low > high ? "[]" : std::string("[") + low + "-" + high + "]";
}
std::string some_digits(size_t count) { return "\\d{" + std::to_string(count) + "}"; }

// Numbers without sign at least or above this one.
std::string magnitude_from(const DecimalText& n, bool itself) {
  const size_t length = n.whole.size();
  std::string out = "[1-9]\\d{" + std::to_string(length) + ",}(\\.\\d+)?";
  for (size_t i = 0; i < length; ++i) {
    out += std::string("|") + n.whole.substr(0, i) +
           digits_from(static_cast<char>(n.whole[i] + 1), '9') + some_digits(length - i - 1) +
           "(\\.\\d+)?";
  }
  const std::string start = std::string("|") + n.whole + "\\." + n.fraction;
  for (size_t i = 0; i < n.fraction.size(); ++i) {
    out += std::string("|") + n.whole + "\\." + n.fraction.substr(0, i) +
           digits_from(static_cast<char>(n.fraction[i] + 1), '9') + "\\d*";
  }
  if (!itself) return out + start + "0*[1-9]\\d*";
  if (n.fraction.empty()) return out + "|" + n.whole + "(\\.\\d+)?";
  return out + start + "\\d*";
}

// At most or below this one.
std::string magnitude_to(const DecimalText& n, bool itself) {
  const size_t length = n.whole.size();
  std::string out = "[]";
  if (length > 1) out += "|(0|[1-9]\\d{0," + std::to_string(length - 2) + "})(\\.\\d+)?";
  for (size_t i = 0; i < length; ++i) {
    const char least = i == 0 && length > 1 ? '1' : '0';
    out += std::string("|") + n.whole.substr(0, i) +
           digits_from(least, static_cast<char>(n.whole[i] - 1)) + some_digits(length - i - 1) +
           "(\\.\\d+)?";
  }
  for (size_t i = 0; i < n.fraction.size(); ++i) {
    const std::string start = n.whole + (i == 0 ? "" : "\\.") + n.fraction.substr(0, i);
    out += "|" + start;  // shorter, so smaller
    out += std::string("|") + n.whole + "\\." + n.fraction.substr(0, i) +
           digits_from('0', static_cast<char>(n.fraction[i] - 1)) + "\\d*";
  }
  if (!itself) return out;
  if (n.fraction.empty()) return out + "|" + n.whole + "(\\.0+)?";
  return out + "|" + n.whole + "\\." + n.fraction + "0*";
}

std::string at_least(const DecimalText& n, bool itself) {
  if (!n.negative) return magnitude_from(n, itself);
  return std::string("\\d+(\\.\\d+)?|-(") + magnitude_to(n, itself) + ")";
}

std::string at_most(const DecimalText& n, bool itself) {
  if (n.negative) return std::string("-(") + magnitude_from(n, itself) + ")";
  return std::string("-\\d+(\\.\\d+)?|") + magnitude_to(n, itself);
}

// The same in every schema, and so of no schema's work.
Automaton numbers(const char* pattern) {
  CompileWork work(GrammarLimits().work);
  return compile_pattern(pattern, {.work = work, .form = TextForm::kPlain, .place = "numbers"});
}

const Automaton& numbers_without(bool whole, bool bounded) {
  static const Automaton kWhole = numbers("^(-?[1-9]\\d{0,17}|0)$"),
                         kBounded = numbers("^-?(0|[1-9]\\d{0,17})(\\.\\d{1,18})?$"),
                         kAll = numbers(
                             "^-?(0|[1-9]\\d{0,17})(\\.\\d{1,18})?"
                             "([eE](\\+?\\d{1,2}|-\\d{1,3}))?$");
  if (whole) return kWhole;
  return bounded ? kBounded : kAll;
}

}  // namespace

Automaton compile_range(const NumberRange& range, PatternOptions options) {
  options.form = TextForm::kPlain;
  options.shown = "a bound of these numbers";
  const int64_t states_max = options.states_max;
  const bool bounded = !range.least.is_null() || !range.above.is_null() || !range.most.is_null() ||
                       !range.below.is_null();
  Automaton made = numbers_without(range.whole, bounded);
  const auto narrow = [&](const Json& bound, bool from_below, bool itself) {
    if (bound.is_null()) return;
    const DecimalText n = decimal_of(bound, options.place);
    const std::string text = from_below ? at_least(n, itself) : at_most(n, itself);
    const Automaton side = compile_pattern("^(" + text + ")$", options);
    Automaton both;
    if (!Automaton::intersect(made, side, states_max, options.work, &both)) {
      throw_error(Code::kInvalidArgument,
                  "{}: this range of numbers needs more than {} states, or brings the work for the "
                  "schema past {} "
                  "units; write fewer different bounds, or with fewer digits",
                  options.place, states_max, options.work.most());
    }
    made = std::move(both);
  };
  narrow(range.least, true, true);
  narrow(range.above, true, false);
  narrow(range.most, false, true);
  narrow(range.below, false, false);
  return made;
}

}  // namespace moraine
