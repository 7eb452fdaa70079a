// The text of Json, read and written. The library's own parser and its digits of doubles; what is
// built and what recurses is ours, so depth is looked at before.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace moraine {
namespace {

// The deepest nesting of arrays and objects; strings are passed over.
int64_t depth_of(std::string_view text) {
  int64_t depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return deepest;
}

// What the library's parser calls, once for each value, name and bracket.
class JsonBuilder {
 public:
  using number_integer_t = int64_t;
  using number_unsigned_t = uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool key(std::string& name) {
    member_ = &(*open_.back())[name];
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool parse_error(size_t, const std::string& token, const nlohmann::detail::exception& e) {
    const auto* parse = dynamic_cast<const nlohmann::detail::parse_error*>(&e);
    const std::string where = parse == nullptr ? "" : fmt::format(" at byte {}", parse->byte);
    problem_ = dynamic_cast<const nlohmann::detail::out_of_range*>(&e) != nullptr
                   ? "a number is out of range: " + token
                   : fmt::format("not JSON{}: {}", where, e.what());
    return false;
  }

  Json take() { return std::move(root_); }
  std::string problem() const { return problem_; }

 private:
  Json* slot(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &(*member_ = std::move(value));
  }
  bool put(Json value) {
    slot(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back(slot(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*>
      open_;  // the arrays and objects around the next value; they do not grow while one in them is open
  Json* member_ = nullptr;  // where the value after a name goes
  std::string problem_;
};

// What is wrong with the text; empty: nothing, and `json` is what it says.
std::string parse(std::string_view text, Json* json) {
  JsonBuilder builder;
  if (!nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &builder))
    return builder.problem();
  *json = builder.take();
  return "";
}

// Which bytes stand in a string as they are; the others are escaped.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (size_t c = 0; c < 256; ++c) plain[c] = c >= ' ' && c != '"' && c != '\\';
  return plain;
}();

void append_escaped(std::string_view text, std::string* out) {
  static constexpr std::string_view kShort = "\b\f\n\r\t\"\\", kLetters = "bfnrt\"\\";
  size_t begin = 0;  // of what is not written yet, and needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (kPlain[static_cast<unsigned char>(c)]) continue;
    out->append(text, begin, i - begin);
    begin = i + 1;
    if (const size_t at = kShort.find(c); at != std::string_view::npos) {
      *out += '\\';
      *out += kLetters[at];
    } else {
      *out += fmt::format("\\u{:04x}", static_cast<int>(c));
    }
  }
  out->append(text, begin);
}

class JsonWriter {
 public:
  explicit JsonWriter(int indent) : indent_(indent) {}

  void write(const Json& json) {
    switch (json.kind()) {
      case Json::Kind::kNull:
        out_ += "null";
        return;
      case Json::Kind::kBoolean:
        out_ += json.get<bool>() ? "true" : "false";
        return;
      case Json::Kind::kInteger:
        out_ += std::to_string(json.get<int64_t>());
        return;
      case Json::Kind::kUnsigned:
        out_ += std::to_string(json.get<uint64_t>());
        return;
      case Json::Kind::kFloat:
        return write_double(json.get<double>());
      case Json::Kind::kString:
        return write_string(json.text());
      case Json::Kind::kArray:
        begin('[');
        for (const Json& each : json) {
          next();
          write(each);
        }
        return end(']');
      case Json::Kind::kObject:
        begin('{');
        for (const auto& [name, value] : json.items()) {
          next();
          write_string(name);
          out_ += indent_ >= 0 ? ": " : ":";
          write(value);
        }
        return end('}');
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void begin(char bracket) {
    out_ += bracket;
    first_ = true;
    ++depth_;
  }
  void next() {
    if (!first_) out_ += ',';
    first_ = false;
    break_line();
  }
  void end(char bracket) {
    --depth_;
    if (!first_) break_line();
    first_ = false;
    out_ += bracket;
  }
  void break_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(depth_ * indent_), ' ');
  }

  void write_double(double value) {
    if (!std::isfinite(value)) {
      out_ += "null";
      return;
    }
    std::array<char, 64> digits;
    char* const end =
        nlohmann::detail::to_chars(digits.data(), digits.data() + digits.size(), value);
    out_.append(digits.data(), end);
  }

  void write_string(const std::string& text) { append_json_string(text, &out_); }

  const int indent_;
  int depth_ = 0;
  bool first_ = true;  // nothing stands in the innermost bracket yet
  std::string out_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& name) {
  if (const int64_t depth = depth_of(text); depth > kJsonDepth) {
    throw_error(Code::kCorrupt, "read {}: nested {} deep, the limit is {}", name, depth,
                kJsonDepth);
  }
  Json json;
  const std::string problem = parse(text, &json);
  if (!problem.empty()) throw_error(Code::kCorrupt, "{}: {}", name, problem);
  return json;
}

Json parse_json_or_null(std::string_view text) {
  Json json;
  return depth_of(text) <= kJsonDepth && parse(text, &json).empty() ? json : Json();
}

void append_json_string(std::string_view text, std::string* out) {
  *out += '"';
  if (valid_utf8_prefix(text) == static_cast<int64_t>(text.size()))
    append_escaped(text, out);
  else
    append_escaped(to_valid_utf8(text), out);
  *out += '"';
}

std::string json_text(const Json& json, int indent) {
  JsonWriter writer(indent);
  writer.write(json);
  return writer.take();
}

}  // namespace moraine
