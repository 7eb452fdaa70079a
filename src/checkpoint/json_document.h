// JsonDocument: typed access to JSON that somebody else wrote or damaged.
//
// Errors: kCorrupt for text that is not JSON and for a value of another kind than asked, naming the
//         member but not the document: the caller knows the file and adds it.
// Cost:   about 30 bytes of address space for each byte of text while the document lives, of which
//         only what the text needs is touched.
// Source: simdjson. Unlike base/json.h it keeps members that are given twice, so they can be
//         refused, and reads a header of 100 MB in a fraction of a second.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moraine {

// A view into a JsonDocument; lives as long as it.
class JsonValue {
 public:
  // This value as the kind asked for.
  std::string_view text() const;
  int64_t integer() const;
  uint64_t unsigned_integer() const;
  std::vector<JsonValue> items() const;                                 // array
  std::vector<std::pair<std::string_view, JsonValue>> members() const;  // object, in file order

  // A member of this object as the kind asked for. Absent or given twice: kCorrupt.
  JsonValue member(std::string_view key) const;
  std::string_view text(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  uint64_t unsigned_integer(std::string_view key) const;
  std::vector<JsonValue> items(std::string_view key) const;
  std::vector<std::pair<std::string_view, JsonValue>> members(std::string_view key) const;

 private:
  friend struct JsonAccess;
  uint64_t place_[2] = {0, 0};  // the library's own cursor
};

class JsonDocument {
 public:
  explicit JsonDocument(std::string_view text);  // kCorrupt if it is not JSON
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;
  JsonValue root() const { return root_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  JsonValue root_;
};

// "text" with quotes and escapes. Errors: kInvalidArgument if it is not UTF-8.
std::string json_quote(std::string_view text);

}  // namespace moraine
