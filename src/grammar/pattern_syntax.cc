// A recursive descent, one function for each level of the syntax.
#include "grammar/pattern_syntax.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace moraine {
namespace {

using CodeRanges = std::vector<CodeRange>;

constexpr int64_t kGroupsMost = 100;               // within each other
constexpr int64_t kRepeatMost = int64_t{1} << 30;  // compile_pattern refuses less

const CodeRanges kDigits = {{'0', '9'}};
const CodeRanges kWordCharacters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodeRanges kSpaces = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                            {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                            {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodeRanges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

CodeRanges sorted(CodeRanges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.low < b.low; });
  CodeRanges out;
  for (const CodeRange& range : ranges) {
    if (!out.empty() && range.low <= out.back().high + 1) {
      out.back().high = std::max(out.back().high, range.high);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodeRanges all_but(const CodeRanges& ranges) {
  CodeRanges out;
  int32_t low = 0;
  for (const CodeRange& range : sorted(ranges)) {
    if (range.low > low) out.push_back({low, range.low - 1});
    low = range.high + 1;
  }
  if (low <= kCodePointMost) out.push_back({low, kCodePointMost});
  return out;
}

PatternTree characters(CodeRanges ranges) {
  return {
      .kind = PatternTree::Kind::kCharacters, .characters = sorted(std::move(ranges)), .parts = {}};
}

PatternTree repeated(PatternTree tree, int64_t min, int64_t max) {
  PatternTree out{
      .kind = PatternTree::Kind::kRepeat, .characters = {}, .parts = {}, .min = min, .max = max};
  out.parts.push_back(std::move(tree));
  return out;
}

PatternTree any_text() { return repeated(characters({{0, kCodePointMost}}), 0, -1); }

class PatternParser {
 public:
  PatternParser(std::string_view text, const std::string& place) : text_(text), place_(place) {
    if (const int64_t bad = first_invalid_utf8(text); bad >= 0) {
      throw_error(Code::kInvalidArgument, "{}: the pattern is not UTF-8 at byte {}", place, bad);
    }
  }

  PatternTree parse() {
    PatternTree choice = parse_choice(true);
    if (!done()) refuse("a ) without (");
    return choice;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw_error(Code::kInvalidArgument, "{}: pattern '{}', byte {}: {} is not supported", place_,
                printable(text_, 200), at_, what);
  }
  bool done() const { return at_ >= text_.size(); }
  bool next_is(char c) const { return !done() && text_[at_] == c; }
  bool take(char c) { return next_is(c) && ++at_; }
  int32_t take_code_point() {
    const int32_t code = utf8_code_point(text_, static_cast<int64_t>(at_));
    at_ += utf8_bytes_of_lead(text_[at_]);
    return code;
  }

  PatternTree parse_choice(bool outermost) {
    PatternTree choice{.kind = PatternTree::Kind::kChoice, .characters = {}, .parts = {}};
    do {
      choice.parts.push_back(parse_sequence(outermost));
    } while (take('|'));
    return choice;
  }

  PatternTree parse_sequence(bool outermost) {
    PatternTree sequence;
    if (outermost && !take('^')) sequence.parts.push_back(any_text());
    bool ended = false;
    while (!done() && !next_is('|') && !next_is(')')) {
      if (next_is('^')) refuse("^ that is not at the start");
      if (next_is('$')) {
        const bool last = at_ + 1 == text_.size() || text_[at_ + 1] == '|';
        if (!outermost || !last) refuse("$ that is not at the end");
        ++at_;
        ended = true;
        break;
      }
      sequence.parts.push_back(parse_repeat(parse_atom()));
    }
    if (outermost && !ended) sequence.parts.push_back(any_text());
    return sequence;
  }

  bool take_number(int64_t* number) {
    const size_t begin = at_;
    *number = 0;
    while (!done() && text_[at_] >= '0' && text_[at_] <= '9') {
      *number = std::min(kRepeatMost, *number * 10 + (text_[at_++] - '0'));
    }
    return at_ > begin;
  }

  // {m} {m,} {m,n}; false, and nothing is taken, for a brace that is itself.
  bool take_braces(int64_t* min, int64_t* max) {
    const size_t begin = at_;
    if (take('{') && take_number(min)) {
      *max = *min;
      if (take(',') && !take_number(max)) *max = -1;
      if (take('}')) return true;
    }
    at_ = begin;
    return false;
  }

  PatternTree parse_repeat(PatternTree atom) {
    int64_t min = 0, max = -1;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (!take_braces(&min, &max)) {
      return atom;
    }
    if (max >= 0 && max < min) refuse("{m,n} with n below m");
    take('?');  // lazy: the same texts
    if (next_is('*') || next_is('+') || next_is('?')) refuse("a repetition of a repetition");
    return repeated(std::move(atom), min, max);
  }

  PatternTree parse_atom() {
    if (take('(')) return parse_group();
    if (take('[')) return parse_class();
    if (take('.')) return characters(all_but(kLineEnds));
    if (take('\\')) {
      CodeRanges ranges;
      take_escape(false, &ranges);
      return characters(std::move(ranges));
    }
    if (next_is('*') || next_is('+') || next_is('?')) refuse("a repetition of nothing");
    const int32_t code = take_code_point();
    return characters({{code, code}});
  }

  PatternTree parse_group() {
    if (++groups_ > kGroupsMost) refuse("more than 100 groups within each other");
    if (take('?')) {
      if (next_is('=') || next_is('!')) refuse("look-ahead");
      if (next_is('<')) refuse("a named group or look-behind");
      if (!take(':')) refuse("this kind of group");
    }
    PatternTree choice = parse_choice(false);
    if (!take(')')) refuse("a ( without )");
    --groups_;
    return choice;
  }

  int32_t take_hex(int digits) {
    int32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = done() ? ' ' : text_[at_];
      const char low = static_cast<char>(c | 0x20);
      const bool decimal = c >= '0' && c <= '9';
      if (!decimal && (low < 'a' || low > 'f')) refuse("an escape with too few hexadecimal digits");
      code = code * 16 + (decimal ? c - '0' : low - 'a' + 10);
      ++at_;
    }
    return code;
  }

  int32_t take_unicode_escape() {
    if (take('{')) {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos || end == at_ || end - at_ > 6) refuse("this \\u{...}");
      const int32_t code = take_hex(static_cast<int>(end - at_));
      ++at_;
      if (code > kCodePointMost) refuse("a code point past U+10FFFF");
      return code;
    }
    const int32_t code = take_hex(4);
    if (code < 0xD800 || code > 0xDBFF || text_.substr(at_, 2) != "\\u") return code;
    at_ += 2;
    const int32_t low = take_hex(4);
    if (low < 0xDC00 || low > 0xDFFF) refuse("half of a surrogate pair");
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }

  // Behind the backslash. True if it is one character.
  bool take_escape(bool in_class, CodeRanges* ranges) {
    if (done()) refuse("a backslash at the end");
    const char c = text_[at_];
    const auto one = [&](int32_t code) {
      ranges->push_back({code, code});
      return true;
    };
    const auto set = [&](const CodeRanges& of) {
      ++at_;
      ranges->insert(ranges->end(), of.begin(), of.end());
      return false;
    };
    switch (c) {
      case 'd':
        return set(kDigits);
      case 'D':
        return set(all_but(kDigits));
      case 'w':
        return set(kWordCharacters);
      case 'W':
        return set(all_but(kWordCharacters));
      case 's':
        return set(kSpaces);
      case 'S':
        return set(all_but(kSpaces));
      case 'x':
        ++at_;
        return one(take_hex(2));
      case 'u':
        ++at_;
        return one(take_unicode_escape());
      default:
        return one(take_sign_escape(in_class));
    }
  }

  int32_t take_sign_escape(bool in_class) {
    static constexpr std::string_view kLetters = "tnrfv", kCodes = "\t\n\r\f\v";
    const char c = text_[at_];
    if (const size_t i = kLetters.find(c); i != std::string_view::npos) {
      ++at_;
      return kCodes[i];
    }
    if (c == 'b' && in_class) {
      ++at_;
      return 8;
    }
    const bool digit_behind =
        at_ + 1 < text_.size() && text_[at_ + 1] >= '0' && text_[at_ + 1] <= '9';
    if (c == '0' && !digit_behind) {
      ++at_;
      return 0;
    }
    if (c >= '0' && c <= '9') refuse("a back reference");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) refuse(std::string("\\") + c);
    return take_code_point();
  }

  PatternTree parse_class() {
    const bool negated = take('^');
    CodeRanges ranges;
    while (!take(']')) {
      if (done()) refuse("a [ without ]");
      CodeRanges low;
      const bool single = take_class_atom(&low);
      const bool range = next_is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (range) {
        ++at_;
        CodeRanges high;
        if (!take_class_atom(&high) || !single) refuse("a range with a class at its end");
        if (high.front().low < low.front().low) refuse("a range that runs backwards");
        low.front().high = high.front().low;
      }
      ranges.insert(ranges.end(), low.begin(), low.end());
    }
    return characters(negated ? all_but(ranges) : ranges);
  }

  bool take_class_atom(CodeRanges* ranges) {
    if (take('\\')) return take_escape(true, ranges);
    const int32_t code = take_code_point();
    ranges->push_back({code, code});
    return true;
  }

  const std::string_view text_;
  const std::string& place_;
  size_t at_ = 0;
  int64_t groups_ = 0;
};

}  // namespace

PatternTree parse_pattern(std::string_view pattern, const std::string& place) {
  return PatternParser(pattern, place).parse();
}

}  // namespace moraine
