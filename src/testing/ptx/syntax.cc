// Words with their lines first, then one function for each directive.
#include "testing/ptx/syntax.h"

#include <charconv>

#include "base/error.h"

namespace moraine::testing {
namespace {

struct PtxWord {
  std::string_view text;
  int line;
};

bool is_word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}

// Comments of // are left out; a string is one word.
std::vector<PtxWord> words_of(std::string_view text) {
  std::vector<PtxWord> words;
  int line = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t end = at + 1;
    if (text.substr(at, 2) == "//") {
      end = std::min(text.find('\n', at), text.size());
    } else if (c == '"') {
      end = std::min(text.find('"', at + 1), text.size() - 1) + 1;
      words.push_back({text.substr(at, end - at), line});
    } else if (is_word_letter(c)) {
      while (end < text.size() && is_word_letter(text[end])) ++end;
      words.push_back({text.substr(at, end - at), line});
    } else if (c == '\n') {
      ++line;
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\0') {
      words.push_back({text.substr(at, 1), line});
    }
    at = end;
  }
  return words;
}

class PtxParser {
 public:
  explicit PtxParser(std::string_view text) : words_(words_of(text)) {}

  PtxModule parse() {
    while (at_ < words_.size()) directive();
    return std::move(module_);
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    const bool end = at_ >= words_.size();
    throw_error(Code::kInvalidArgument, "ptx line {}: `{}`: {}", end ? 0 : words_[at_].line,
                end ? "the end" : std::string(words_[at_].text), wanted);
  }
  std::string_view peek() const { return at_ < words_.size() ? words_[at_].text : ""; }
  std::string_view take() {
    if (at_ >= words_.size()) fail("wanted more");
    return words_[at_++].text;
  }
  bool take_if(std::string_view text) {
    if (peek() != text) return false;
    ++at_;
    return true;
  }
  void want(std::string_view text) {
    if (!take_if(text)) fail("wanted `" + std::string(text) + "`");
  }

  int64_t integer() {
    const bool negative = take_if("-");
    std::string_view text = peek();
    const bool hex = text.substr(0, 2) == "0x";
    if (hex) text.remove_prefix(2);
    uint64_t v = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), v, hex ? 16 : 10);
    if (error != std::errc() || end != text.data() + text.size()) fail("wanted a whole number");
    ++at_;
    return static_cast<int64_t>(negative ? 0 - v : v);
  }

  void directive() {
    const std::string_view word = take();
    if (word == ".version") {
      take();
    } else if (word == ".target") {
      module_.target = take();
    } else if (word == ".address_size") {
      if (integer() != 64) fail("wanted addresses of 64 bits");
    } else if (word == ".visible" || word == ".weak") {
      return;  // of what follows
    } else if (word == ".shared") {
      module_.shared.push_back(variable());
      want(";");
    } else if (word == ".entry") {
      kernel();
    } else {
      --at_;
      fail("not a directive that is known here");
    }
  }

  // .align 8 .b8 name[40]
  PtxVariable variable() {
    PtxVariable v;
    if (take_if(".align")) v.alignment = integer();
    const std::string_view type = take();
    int64_t element = 0;
    for (const auto& [name, bytes] : {std::pair{".b8", 1},
                                      {".b16", 2},
                                      {".u32", 4},
                                      {".b32", 4},
                                      {".f32", 4},
                                      {".u64", 8},
                                      {".b64", 8},
                                      {".f64", 8}}) {
      if (type == name) element = bytes;
    }
    if (element == 0) fail("wanted a type before this");
    v.alignment = std::max(v.alignment, element);
    v.name = take();
    v.bytes = element;
    if (take_if("[")) {
      v.bytes *= integer();
      want("]");
    }
    return v;
  }

  void kernel() {
    PtxKernel k;
    k.name = take();
    want("(");
    while (!take_if(")")) {
      want(".param");
      k.parameters.push_back(variable());
      take_if(",");
    }
    while (!take_if("{")) {
      const std::string_view word = take();
      if (word != ".maxntid") {
        --at_;
        fail("not a directive of a kernel that is known here");
      }
      k.threads = integer();
      while (take_if(","))
        if (integer() != 1) fail("wanted blocks of one dimension before this");
    }
    while (!take_if("}")) body(k);
    module_.kernels.push_back(std::move(k));
  }

  // .reg .b32 %r<8>; or .reg .b16 tmp;
  void registers(PtxKernel& k) {
    const std::string type(take());
    do {
      std::string name(take());
      if (!take_if("<")) {
        k.registers[scoped(name)] = type;
        continue;
      }
      const int64_t count = integer();
      want(">");
      for (int64_t i = 0; i < count; ++i) k.registers[name + std::to_string(i)] = type;
    } while (take_if(","));
    want(";");
  }

  // What a name in braces is called outside of them.
  std::string scoped(const std::string& name) {
    if (scope_ == 0) return name;
    local_[name] = name + "@" + std::to_string(scope_);
    return local_[name];
  }
  std::string resolved(std::string_view name) const {
    const auto it = local_.find(std::string(name));
    return it == local_.end() ? std::string(name) : it->second;
  }

  void body(PtxKernel& k) {
    if (take_if("{")) {
      scope_ = ++scopes_;
      while (!take_if("}")) statement(k);
      scope_ = 0;
      local_.clear();
      return;
    }
    statement(k);
  }

  void statement(PtxKernel& k) {
    if (take_if(".reg")) return registers(k);
    if (take_if(".shared")) {
      k.shared.push_back(variable());
      want(";");
      return;
    }
    if (take_if(".pragma")) {
      take();
      want(";");
      return;
    }
    PtxStatement s;
    s.line = at_ < words_.size() ? words_[at_].line : 0;
    if (take_if("@")) {
      s.guard_negated = take_if("!");
      s.guard = resolved(take());
    }
    s.opcode = take();
    if (take_if(":")) {
      s.label = s.opcode;
      s.opcode.clear();
    } else if (!take_if(";")) {
      do s.operands.push_back(operand());
      while (take_if(","));
      want(";");
    }
    if (!s.opcode.empty() && !(s.opcode[0] >= 'a' && s.opcode[0] <= 'z')) {
      throw_error(Code::kInvalidArgument,
                  "ptx line {}: `{}`: not an instruction that is known here", s.line, s.opcode);
    }
    k.body.push_back(std::move(s));
  }

  PtxOperand operand() {
    PtxOperand o;
    if (take_if("{")) {
      o.kind = PtxOperandKind::kVector;
      do o.elements.push_back(operand());
      while (take_if(","));
      want("}");
      return o;
    }
    if (take_if("[")) {
      o.kind = PtxOperandKind::kAddress;
      o.name = resolved(take());
      if (take_if("+")) o.bits = integer();
      want("]");
      return o;
    }
    const std::string_view word = peek();
    if (word == "-" || (!word.empty() && word[0] >= '0' && word[0] <= '9')) return number();
    o.name = resolved(take());
    return o;
  }

  // 12, -3, 0x1f; 0f3F800000 and 0d3FF0000000000000 are patterns of f32 and f64.
  PtxOperand number() {
    PtxOperand o;
    o.kind = PtxOperandKind::kNumber;
    const std::string_view word = peek();
    const size_t digits = word.substr(0, 2) == "0f" ? 8 : word.substr(0, 2) == "0d" ? 16 : 0;
    if (digits == 0) {
      o.bits = integer();
      return o;
    }
    uint64_t v = 0;
    const auto [end, error] = std::from_chars(word.data() + 2, word.data() + word.size(), v, 16);
    if (error != std::errc() || word.size() != digits + 2 || end != word.data() + word.size())
      fail("wanted the bits of a float");
    ++at_;
    o.bits = static_cast<int64_t>(v);
    return o;
  }

  const std::vector<PtxWord> words_;
  size_t at_ = 0;
  PtxModule module_;
  int scopes_ = 0, scope_ = 0;  // braces within a body: how many so far; in which, or 0
  std::map<std::string, std::string> local_;  // names in it
};

}  // namespace

PtxModule parse_ptx(std::string_view text) { return PtxParser(text).parse(); }

}  // namespace moraine::testing
