// A recursive-descent reader of Oniguruma patterns that writes PCRE2 as it goes.
#include "tokenizer/regex_syntax.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdint>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace moraine {
namespace {

constexpr int kNestingMost = 100;
constexpr int64_t kPatternShown = 200;  // bytes of a pattern in a message
constexpr int64_t kRepeatMost = 65535;  // PCRE2's limit
constexpr const char* kAnyCharacter = "[\\x{0}-\\x{10FFFF}]";
constexpr const char* kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside a class Oniguruma also takes the numbers of Latin-1 for word characters.
constexpr const char* kWordAlone =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

// A set of characters: what stands in [...] directly, and what can only be written as an
// expression.
struct CharacterSet {
  std::string items;
  std::vector<std::string> expressions;
  bool negated = false;

  std::string text() const {
    std::string positive;
    if (expressions.empty()) return fmt::format("[{}{}]", negated ? "^" : "", items);
    if (!items.empty()) positive = fmt::format("[{}]", items);
    for (const std::string& e : expressions) {
      if (!positive.empty()) positive += '|';
      positive += e;
    }
    return negated ? fmt::format("(?:(?!{}){})", positive, kAnyCharacter)
                   : fmt::format("(?:{})", positive);
  }
};

std::string simplified(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c != ' ' && c != '_' && c != '-') out += static_cast<char>(std::tolower(c));
  }
  return out;
}

// Names that both libraries know but spell differently; the value stands inside [...].
const std::map<std::string, std::string>& property_names() {
  static const std::map<std::string, std::string> names = {
      {"alnum", "\\p{Alphabetic}\\p{Nd}"},
      {"alpha", "\\p{Alphabetic}"},
      {"alphabetic", "\\p{Alphabetic}"},
      {"any", "\\x{0}-\\x{10FFFF}"},
      {"ascii", "\\x{0}-\\x{7F}"},
      {"blank", "\\p{Zs}\\t"},
      {"cntrl", "\\p{Cc}"},
      {"digit", "\\p{Nd}"},
      {"lower", "\\p{Lowercase}"},
      {"lowercase", "\\p{Lowercase}"},
      {"space", "\\p{WSpace}"},
      {"whitespace", "\\p{WSpace}"},
      {"upper", "\\p{Uppercase}"},
      {"uppercase", "\\p{Uppercase}"},
      {"word", kWord},
      {"xdigit", "0-9A-Fa-f"},
      {"punct", "\\p{P}"},
      {"emoji", "\\p{Emoji}"},
      {"ideographic", "\\p{Ideographic}"},
      {"extendedpictographic", "\\p{Extended_Pictographic}"},
      {"letter", "\\p{L}"},
      {"uppercaseletter", "\\p{Lu}"},
      {"lowercaseletter", "\\p{Ll}"},
      {"titlecaseletter", "\\p{Lt}"},
      {"modifierletter", "\\p{Lm}"},
      {"otherletter", "\\p{Lo}"},
      {"mark", "\\p{M}"},
      {"nonspacingmark", "\\p{Mn}"},
      {"spacingmark", "\\p{Mc}"},
      {"enclosingmark", "\\p{Me}"},
      {"number", "\\p{N}"},
      {"decimalnumber", "\\p{Nd}"},
      {"letternumber", "\\p{Nl}"},
      {"othernumber", "\\p{No}"},
      {"punctuation", "\\p{P}"},
      {"connectorpunctuation", "\\p{Pc}"},
      {"dashpunctuation", "\\p{Pd}"},
      {"openpunctuation", "\\p{Ps}"},
      {"closepunctuation", "\\p{Pe}"},
      {"initialpunctuation", "\\p{Pi}"},
      {"finalpunctuation", "\\p{Pf}"},
      {"otherpunctuation", "\\p{Po}"},
      {"symbol", "\\p{S}"},
      {"mathsymbol", "\\p{Sm}"},
      {"currencysymbol", "\\p{Sc}"},
      {"modifiersymbol", "\\p{Sk}"},
      {"othersymbol", "\\p{So}"},
      {"separator", "\\p{Z}"},
      {"spaceseparator", "\\p{Zs}"},
      {"lineseparator", "\\p{Zl}"},
      {"paragraphseparator", "\\p{Zp}"},
      {"other", "\\p{C}"},
      {"control", "\\p{Cc}"},
      {"format", "\\p{Cf}"},
      {"unassigned", "\\p{Cn}"},
      {"privateuse", "\\p{Co}"},
      {"surrogate", "\\p{Cs}"},
  };
  return names;
}

bool is_category(const std::string& name) {
  static constexpr std::string_view kFirst = "lmnpszc";
  static constexpr std::string_view kSecond[] = {"ultmo", "nce", "dlo",  "cdseifo",
                                                 "mcko",  "slp", "cfnos"};
  const size_t group = name.empty() ? std::string_view::npos : kFirst.find(name[0]);
  if (group == std::string_view::npos || name.size() > 2) return false;
  return name.size() == 1 || kSecond[group].find(name[1]) != std::string_view::npos;
}

// One item of a class: a code point, a set, or nothing yet.
struct ClassAtom {
  bool is_set = false;
  int64_t code_point = -1;
  CharacterSet set;
};

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& what) : in_(pattern), what_(what) {}

  std::string run() {
    if (valid_utf8_prefix(in_) != static_cast<int64_t>(in_.size()))
      fail("a byte that is not UTF-8");
    alternatives(0);
    if (at_ < in_.size()) fail("a closing parenthesis without an opening one");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view found) const {
    throw_error(Code::kInvalidArgument, "{}: regular expression «{}» at byte {}: {}", what_,
                printable(in_, kPatternShown), at_, found);
  }
  [[noreturn]] void unsupported(std::string_view found) const {
    fail(fmt::format("{} is not supported", found));
  }

  bool looking_at(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool skip(std::string_view text) {
    if (!looking_at(text)) return false;
    at_ += text.size();
    return true;
  }
  char next() {
    if (at_ >= in_.size()) fail("an end in the middle");
    return in_[at_++];
  }

  // Up to a closing parenthesis or the end.
  void alternatives(int depth) {
    if (depth > kNestingMost) unsupported("nesting this deep");
    int options = 0;  // groups opened by (?i) that close where this one does
    while (at_ < in_.size() && in_[at_] != ')') {
      if (skip("|")) {
        out_ += '|';
        continue;
      }
      const size_t atom_begin = out_.size();
      const int opened = atom(depth);
      options += opened;
      if (opened == 0) quantifiers(atom_begin);
    }
    out_.append(options, ')');
  }

  // Returns 1 if it opened a group that lasts to the end of the enclosing one.
  int atom(int depth) {
    switch (in_[at_]) {
      case '(':
        return group(depth);
      case '[':
        ++at_;
        out_ += character_class(depth).text();
        return 0;
      case '\\':
        ++at_;
        escape();
        return 0;
      case '.':
      case '^':
      case '$':
        out_ += in_[at_++];
        return 0;
      case '*':
      case '+':
      case '?':
        fail("a repeat of nothing");
      default:
        literal(utf8_code_point(in_, at_));
        at_ += utf8_bytes_of_lead(in_[at_]);
        return 0;
    }
  }

  void literal(int32_t c) {
    if (c < 0x80 && std::isalnum(c)) {
      out_ += static_cast<char>(c);
    } else {
      out_ += fmt::format("\\x{{{:X}}}", c);
    }
  }

  int group(int depth) {
    ++at_;
    std::string open = "(?:";  // captures are never used
    if (skip("?")) {
      if (skip("#")) {
        while (next() != ')') continue;
        return 0;
      }
      static constexpr std::string_view kKinds[] = {":", "=", "!", "<=", "<!", ">"};
      bool known = false;
      for (std::string_view kind : kKinds) {
        if (known || !skip(kind)) continue;
        known = true;
        open = fmt::format("(?{}", kind);
      }
      if (!known && skip("<")) {
        while (next() != '>') continue;
      } else if (!known) {
        return option_group(depth);
      }
    }
    close_group(open, depth);
    return 0;
  }

  void close_group(const std::string& open, int depth) {
    out_ += open;
    alternatives(depth + 1);
    if (!skip(")")) fail("an opening parenthesis without a closing one");
    out_ += ')';
  }

  // (?i), (?m-i), (?i:...). Oniguruma's m is PCRE2's s.
  int option_group(int depth) {
    std::string open = "(?";
    for (char c = next();; c = next()) {
      if (c == 'i' || c == '-') {
        open += c;
      } else if (c == 'm') {
        open += 's';
      } else if (c == ':') {
        close_group(open + ":", depth);
        return 0;
      } else if (c == ')') {
        out_ += open + ":";
        return 1;
      } else {
        --at_;
        unsupported(fmt::format("the group option '{}'", c));
      }
    }
  }

  // Wraps what was written since `begin`, so that another quantifier applies to all of it.
  void wrap(size_t begin) {
    out_.insert(begin, "(?:");
    out_ += ')';
  }

  void quantifiers(size_t atom_begin) {
    for (int count = 0; at_ < in_.size(); ++count) {
      const char c = in_[at_];
      std::string quantifier;
      bool fixed = false;
      if (c == '*' || c == '+' || c == '?') {
        quantifier = c;
        ++at_;
        if (looking_at("?") || looking_at("+")) quantifier += in_[at_++];
      } else if (c != '{' || !interval(&quantifier, &fixed)) {
        return;
      } else if (!fixed && skip("?")) {
        quantifier += '?';
      }
      if (out_.size() == atom_begin) fail("a repeat of nothing");
      if (count > kNestingMost) unsupported("that many repeats");
      if (count > 0) wrap(atom_begin);
      out_ += quantifier;
    }
  }

  // {n} {n,} {,m} {n,m}; anything else is a literal brace.
  bool interval(std::string* quantifier, bool* fixed) {
    size_t at = at_ + 1;
    const auto number = [&](int64_t absent) {
      int64_t value = -1;
      for (; at < in_.size() && std::isdigit(static_cast<uint8_t>(in_[at])); ++at) {
        value = std::min<int64_t>((value < 0 ? 0 : value * 10) + in_[at] - '0', kRepeatMost + 1);
      }
      return value < 0 ? absent : value;
    };
    const int64_t least = number(-1);
    int64_t most = least;
    *fixed = true;
    if (at < in_.size() && in_[at] == ',') {
      ++at;
      most = number(-1);
      *fixed = false;
    }
    if (at >= in_.size() || in_[at] != '}' || (least < 0 && most < 0)) return false;
    if (least > kRepeatMost || most > kRepeatMost) unsupported("a repeat above 65535");
    if (most >= 0 && least > most) fail("a repeat with its limits exchanged");
    at_ = at + 1;
    *quantifier = fmt::format("{{{}", least < 0 ? 0 : least);
    if (!*fixed) *quantifier += most < 0 ? "," : fmt::format(",{}", most);
    *quantifier += '}';
    return true;
  }

  // After the backslash, outside a class.
  void escape() {
    const char c = next();
    switch (c) {
      case 'A':
      case 'z':
      case 'Z':
        out_ += '\\';
        out_ += c;
        return;
      case 'b':
        out_ += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWordAlone);
        return;
      case 'B':
        out_ += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWordAlone);
        return;
      case 'R':
        out_ += "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])";
        return;
      default:
        break;
    }
    --at_;
    ClassAtom atom = escaped_atom();
    if (atom.is_set && atom.set.items == kWord) atom.set.items = kWordAlone;
    if (atom.is_set) {
      out_ += atom.set.text();
    } else {
      literal(static_cast<int32_t>(atom.code_point));
    }
  }

  // After the backslash: a character or a set.
  ClassAtom escaped_atom() {
    ClassAtom atom;
    const char c = next();
    const auto set = [&](std::string items, bool negated) {
      atom.is_set = true;
      atom.set.items = std::move(items);
      atom.set.negated = negated;
    };
    switch (c) {
      case 's':
      case 'S':
        set("\\p{WSpace}", c == 'S');
        break;
      case 'd':
      case 'D':
        set("\\p{Nd}", c == 'D');
        break;
      case 'w':
      case 'W':
        set(kWord, c == 'W');
        break;
      case 'h':
      case 'H':
        set("0-9A-Fa-f", c == 'H');
        break;
      case 'p':
      case 'P':
        atom.is_set = true;
        atom.set = property(c == 'P');
        break;
      case 't':
        atom.code_point = 9;
        break;
      case 'n':
        atom.code_point = 10;
        break;
      case 'v':
        atom.code_point = 11;
        break;
      case 'f':
        atom.code_point = 12;
        break;
      case 'r':
        atom.code_point = 13;
        break;
      case 'a':
        atom.code_point = 7;
        break;
      case 'e':
        atom.code_point = 27;
        break;
      case 'x':
      case 'u':
      case '0':
        atom.code_point = numbered(c);
        break;
      default:
        --at_;
        if (std::isalnum(static_cast<uint8_t>(c))) unsupported(fmt::format("the escape \\{}", c));
        atom.code_point = utf8_code_point(in_, at_);
        at_ += utf8_bytes_of_lead(c);
    }
    return atom;
  }

  // \xHH \x{H...} \uHHHH \0
  int64_t numbered(char kind) {
    if (kind == '0') {
      if (at_ < in_.size() && std::isdigit(static_cast<uint8_t>(in_[at_])))
        unsupported("an octal escape");
      return 0;
    }
    const bool braces = kind == 'x' && skip("{");
    const size_t most = braces ? 8 : kind == 'x' ? 2 : 4;
    int64_t value = 0;
    size_t digits = 0;
    for (; digits < most && at_ < in_.size() && std::isxdigit(static_cast<uint8_t>(in_[at_]));
         ++digits, ++at_) {
      const char c = static_cast<char>(std::tolower(in_[at_]));
      value = value * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (digits == 0 || (kind == 'u' && digits != 4)) fail("an escape without its digits");
    if (braces && !skip("}")) fail("an escape without its closing brace");
    if (kind == 'x' && !braces && value >= 0x80) fail("a byte that is not UTF-8");
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail("a code point out of range");
    return value;
  }

  CharacterSet property(bool negated) {
    if (next() != '{') fail("a property without braces");
    std::string name;
    for (char c = next(); c != '}'; c = next()) name += c;
    if (name.starts_with("^")) {
      negated = !negated;
      name.erase(0, 1);
    }
    const std::string simple = simplified(name);
    for (char c : simple) {
      if (!std::isalnum(static_cast<uint8_t>(c))) unsupported("the property " + name);
    }
    CharacterSet set;
    set.negated = negated;
    const auto known = property_names().find(simple);
    if (is_category(simple)) {
      set.items =
          fmt::format("\\p{{{}{}}}", static_cast<char>(std::toupper(simple[0])), simple.substr(1));
    } else if (known != property_names().end()) {
      set.items = known->second;
    } else {
      set.items = fmt::format("\\p{{sc:{}}}", name);
    }
    return set;
  }

  // [:alpha:] after its '['; false if it is not one.
  bool bracket_name(CharacterSet* set) {
    const size_t end = in_.find(":]", at_);
    if (!looking_at(":") || end == std::string_view::npos) return false;
    std::string_view name = in_.substr(at_ + 1, end - at_ - 1);
    const bool negated = name.starts_with("^");
    if (negated) name.remove_prefix(1);
    const auto known = property_names().find(std::string(name));
    if (known == property_names().end()) unsupported(fmt::format("the class [:{}:]", name));
    at_ = end + 2;
    set->items = known->second;
    if (name == "punct") set->items = "\\p{P}\\p{S}";  // here with symbols, in \p{Punct} without
    set->negated = negated;
    return true;
  }

  static void add(const CharacterSet& part, CharacterSet* set) {
    if (part.expressions.empty() && !part.negated) {
      set->items += part.items;
    } else {
      set->expressions.push_back(part.text());
    }
  }

  static std::string class_literal(int64_t c) { return fmt::format("\\x{{{:X}}}", c); }

  // After the '['. Handles negation, ranges, nested classes and &&.
  CharacterSet character_class(int depth) {
    if (depth > kNestingMost) unsupported("nesting this deep");
    const bool negated = skip("^");
    std::vector<CharacterSet> operands(1);  // separated by &&
    bool first = true;
    for (;; first = false) {
      if (at_ >= in_.size()) fail("a character class without its end");
      if (!first && skip("]")) break;
      if (skip("&&")) {
        operands.emplace_back();
        continue;
      }
      ClassAtom atom = class_atom(depth);
      if (!atom.is_set && looking_at("-") && !looking_at("-]") && at_ + 1 < in_.size()) {
        ++at_;
        const ClassAtom last = class_atom(depth);
        if (last.is_set || last.code_point < atom.code_point) fail("this range of characters");
        operands.back().items +=
            class_literal(atom.code_point) + "-" + class_literal(last.code_point);
      } else if (atom.is_set) {
        add(atom.set, &operands.back());
      } else {
        operands.back().items += class_literal(atom.code_point);
      }
    }
    for (const CharacterSet& operand : operands) {
      if (operand.items.empty() && operand.expressions.empty()) fail("an empty character class");
    }
    if (operands.size() == 1) {
      operands[0].negated = negated;
      return operands[0];
    }
    CharacterSet all;
    std::string text;
    for (size_t i = 1; i < operands.size(); ++i) text += fmt::format("(?={})", operands[i].text());
    all.expressions.push_back(fmt::format("(?:{}{})", text, operands[0].text()));
    all.negated = negated;
    return all;
  }

  ClassAtom class_atom(int depth) {
    ClassAtom atom;
    if (skip("[")) {
      atom.is_set = true;
      if (!bracket_name(&atom.set)) atom.set = character_class(depth + 1);
    } else if (skip("\\")) {
      if (skip("b")) {
        atom.code_point = 8;
      } else {
        atom = escaped_atom();
      }
    } else {
      if (at_ >= in_.size()) fail("a character class without its end");
      atom.code_point = utf8_code_point(in_, at_);
      at_ += utf8_bytes_of_lead(in_[at_]);
    }
    return atom;
  }

  std::string_view in_;
  const std::string& what_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string oniguruma_to_pcre2(std::string_view pattern, const std::string& what) {
  return Translator(pattern, what).run();
}

}  // namespace moraine
