// One pass over the text; which white space goes is decided at each tag.
//
// Source: the rules of jinja2/lexer.py 3.1, read as a specification.
#include "chat/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/python_text.h"

namespace moraine::jinja {
namespace {

std::string normal_lines(const std::string& source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

class Lexer {
 public:
  Lexer(Runtime& rt, const std::string& source) : rt_(rt), source_(normal_lines(source)) {}

  std::vector<Token> read() {
    rt_.at_line(1);
    while (at_ < source_.size()) read_data();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view text) const { return rest().substr(0, text.size()) == text; }

  void add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }
  void move_to(size_t end) {
    line_ += static_cast<int32_t>(std::count(source_.begin() + at_, source_.begin() + end, '\n'));
    line_starts_ = end > at_ ? source_[end - 1] == '\n' : line_starts_;
    at_ = end;
    rt_.at_line(line_);
  }
  void skip_space() {
    size_t end = at_;
    while (end < source_.size()) {
      const int32_t c = utf8_code_point(source_, static_cast<int64_t>(end));
      if (!is_python_space(c)) break;
      end += utf8_bytes_of_lead(source_[end]);
    }
    if (end > at_) move_to(end);
  }

  // Text up to the next tag, then the tag.
  void read_data() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == source_.npos || tag + 1 == source_.size()) {
        tag = source_.size();
        break;
      }
      const char second = source_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
      ++tag;
    }
    if (tag == source_.size()) {
      add(TokenKind::kData, source_.substr(at_));
      move_to(tag);
      return;
    }
    const char control = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    add_data(tag, control, source_[tag + 1] == '{');
    const bool has_control = control == '-' || control == '+';
    read_tag(source_[tag + 1], tag + (has_control ? 3 : 2));
  }

  // The text before a tag, less the white space that the tag takes.
  void add_data(size_t end, char control, bool print) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (control == '-') {
      text = strip_right(text);
    } else if (control != '+' && !print) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == text.npos ? 0 : newline + 1;
      const bool at_line_start = newline != text.npos || line_starts_;
      if (at_line_start && strip_right(text.substr(begin)).empty()) text = text.substr(0, begin);
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
    if (end > at_) move_to(end);
  }

  void read_tag(char second, size_t inside) {
    if (second == '#') {
      const size_t end = source_.find("#}", inside);
      if (end == source_.npos) rt_.fail("a comment {{# has no end");
      // In {#-#} the minus is the one of the beginning.
      const char control = end > inside ? source_[end - 1] : '\0';
      move_to(end + 2);
      end_tag(control, true);
      return;
    }
    if (second == '%' && read_raw(inside)) return;
    add(second == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "");
    move_to(inside);
    read_inside(second == '{');
  }

  // Behind the end of a tag: the white space that it takes. `control`: the character before the end.
  void end_tag(char control, bool block) {
    if (control == '-') {
      skip_space();
    } else if (block && control != '+' && next_is("\n")) {
      move_to(at_ + 1);
    }
  }

  // {% raw %}...{% endraw %}, if that is what begins here.
  bool read_raw(size_t inside) {
    size_t at = inside;
    const auto skip = [&] {
      while (at < source_.size() && is_space(source_[at])) ++at;
    };
    const auto word = [&](std::string_view text) {
      if (source_.compare(at, text.size(), text) != 0) return false;
      at += text.size();
      return true;
    };
    skip();
    if (!word("raw")) return false;
    skip();
    const bool strip = word("-%}");
    if (!strip && !word("%}")) return false;
    move_to(at);
    if (strip) skip_space();
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != source_.npos; tag += 2) {
      at = tag + 2;
      const char control = at < source_.size() ? source_[at] : '\0';
      if (control == '-' || control == '+') ++at;
      skip();
      if (!word("endraw")) continue;
      skip();
      const char last = at < source_.size() ? source_[at] : '\0';
      if (last == '-' || last == '+') ++at;
      if (!word("%}")) continue;
      add_data(tag, control, false);
      move_to(at);
      end_tag(last, true);
      return true;
    }
    if (at_ == source_.size()) return true;  // as Jinja
    rt_.fail("{{% raw %}} has no {{% endraw %}}");
  }

  // Up to the end of a tag.
  void read_inside(bool print) {
    const std::string_view end = print ? "}}" : "%}";
    std::string brackets;
    while (true) {
      skip_space();
      if (at_ == source_.size()) rt_.fail("a tag {} has no end", print ? "{{" : "{%");
      const char c = source_[at_];
      const bool signed_end = (c == '-' || (c == '+' && !print)) && rest().substr(1, 2) == end;
      if (brackets.empty() && (signed_end || next_is(end))) {
        add(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
        move_to(at_ + (signed_end ? 3 : 2));
        return end_tag(signed_end ? c : '\0', !print);
      }
      if (is_digit(c)) {
        read_number();
      } else if (begins_name(c)) {
        read_name();
      } else if (c == '"' || c == '\'') {
        read_string();
      } else {
        read_sign(&brackets);
      }
    }
  }

  void read_name() {
    size_t end = at_;
    while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenKind::kName, source_.substr(at_, end - at_));
    move_to(end);
  }

  // The digits from `at`, without underscores.
  std::string digits(size_t* at, const char* allowed) const {
    std::string text;
    for (; *at < source_.size(); ++*at) {
      const char c = source_[*at];
      if (c == '_' && !text.empty()) continue;
      if (std::string_view(allowed).find(c) == std::string_view::npos) break;
      text += c;
    }
    return text;
  }

  void read_number() {
    static const char* const kDecimal = "0123456789";
    const char mark = rest().size() > 1 ? static_cast<char>(rest()[1] | 0x20) : '\0';
    if (source_[at_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      size_t end = at_ + 2;
      const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
      const char* allowed = base == 16 ? "0123456789abcdefABCDEF" : base == 8 ? "01234567" : "01";
      add_integer(digits(&end, allowed), base);
      return move_to(end);
    }
    size_t end = at_;
    std::string text = digits(&end, kDecimal);
    bool real = false;
    // Behind a point stands an index: x.0.1
    const bool index = at_ > 0 && source_[at_ - 1] == '.';
    if (!index && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      real = true;
      ++end;
      text += '.' + digits(&end, kDecimal);
    }
    size_t exponent = end;
    if (!index && exponent < source_.size() && (source_[exponent] | 0x20) == 'e') {
      std::string sign = "e";
      ++exponent;
      if (!index && exponent < source_.size() &&
          (source_[exponent] == '-' || source_[exponent] == '+')) {
        sign += source_[exponent++];
      }
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        real = true;
        text += sign + digits(&exponent, kDecimal);
        end = exponent;
      }
    }
    if (!real) {
      add_integer(text, 10);
    } else {
      add(TokenKind::kFloat, text);
      tokens_.back().real = std::strtod(text.c_str(), nullptr);
    }
    move_to(end);
  }

  void add_integer(const std::string& text, int base) {
    int64_t n = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n, base);
    if (problem != std::errc() || end != text.data() + text.size()) {
      rt_.fail("the number '{}' is none of 64 bits", text);
    }
    if (base == 10 && text.size() > 1 && text[0] == '0' && n != 0) {
      rt_.fail("a number begins with 0: '{}'", text);
    }
    add(TokenKind::kInteger, text);
    tokens_.back().integer = n;
  }

  void read_string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) rt_.fail("a text in quotes has no end");
    add(TokenKind::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    move_to(end + 1);
  }

  // \n, \x41 and the others of Python; what is no escape stays as it is.
  std::string unescape(std::string_view text) {
    static const std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      const size_t known = kLetters.find(c);
      if (known != kLetters.npos) {
        out += kMeanings[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_utf8(code_point(text.substr(i + 1, count), count, 16), &out);
        i += count;
      } else if (c >= '0' && c <= '7') {
        size_t count = 1;
        while (count < 3 && i + count < text.size() && text[i + count] >= '0' &&
               text[i + count] <= '7') {
          ++count;
        }
        append_utf8(code_point(text.substr(i, count), count, 8), &out);
        i += count - 1;
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  int32_t code_point(std::string_view digits, size_t count, int base) {
    uint32_t n = 0;
    const auto [end, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), n, base);
    const bool whole = problem == std::errc() && end == digits.data() + digits.size();
    if (digits.size() != count || !whole || n > 0x10FFFF || (n >= 0xD800 && n < 0xE000)) {
      rt_.fail("an escape in a text in quotes is no character");
    }
    return static_cast<int32_t>(n);
  }

  void read_sign(std::string* brackets) {
    static const char* const kSigns[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                         "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                         "]",  "{",  "}",  ".",  ",",  ":",  "|", ";"};
    for (const char* sign : kSigns) {
      if (!next_is(sign)) continue;
      const char c = sign[0];
      if (c == '(' || c == '[' || c == '{') *brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (brackets->empty() || brackets->back() != c) rt_.fail("unexpected '{}'", c);
        brackets->pop_back();
      }
      add(TokenKind::kSign, sign);
      return move_to(at_ + std::string_view(sign).size());
    }
    rt_.fail("unexpected character '{}'", rest().substr(0, utf8_bytes_of_lead(rest()[0])));
  }

  Runtime& rt_;
  const std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool line_starts_ = true;  // what was read last ends a line
};

}  // namespace

std::vector<Token> read_tokens(Runtime& rt, const std::string& source) {
  const int64_t invalid = first_invalid_utf8(source);
  if (invalid != -1) rt.fail("byte {} is not UTF-8", invalid);
  return Lexer(rt, source).read();
}

}  // namespace moraine::jinja
