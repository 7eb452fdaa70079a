// JsonDocument: typed access to JSON that somebody else wrote or damaged.
//
// Errors:  kCorrupt for text that is no JSON (nested deeper than 1024 included), for a value of
//          another kind than asked, for a member that is absent or given twice. The message names
//          the document, if it has a name, the innermost member and the element in it.
// Cost:    more than 300 MB/s; about 30 bytes of address space for each byte of text while the
//          document lives, of which only what the text needs is touched.
// Threads: const calls from any thread.
// Source:  simdjson. Small documents of our own are written, and read where that is simpler, with
//          base/json.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace moraine {

// A view into a JsonDocument; lives as long as it.
class JsonValue {
 public:
  bool is_null() const;
  bool is_text() const;
  bool is_object() const;
  bool is_array() const;
  const char* kind() const;  // "a string", for messages

  // This value as the kind asked for.
  std::string_view text() const;
  int64_t integer() const;
  uint64_t unsigned_integer() const;
  double number() const;
  bool boolean() const;

  // A member of this object. find gives false if it is absent or null.
  JsonValue at(std::string_view key) const;
  bool find(std::string_view key, JsonValue* value) const;
  std::string_view text(std::string_view key) const { return at(key).text(); }
  int64_t integer(std::string_view key) const { return at(key).integer(); }
  uint64_t unsigned_integer(std::string_view key) const { return at(key).unsigned_integer(); }

  // Every member of this object, in the order of the text; also those that are given twice.
  void members(const std::function<void(std::string_view key, const JsonValue& value)>& each) const;
  // Every element of this array.
  int64_t count() const;
  void elements(const std::function<void(int64_t index, const JsonValue& value)>& each) const;

  // «tokenizer.json: 'merges' element 5», for messages.
  std::string place() const;
  bool named() const { return name_ != nullptr && !name_->empty(); }  // the document has a name

 private:
  friend class JsonDocument;
  friend struct JsonAccess;
  static constexpr int64_t kNoIndex = -1;

  alignas(8) std::array<std::byte, 16> raw_{};  // the library's element
  const std::string* name_ = nullptr;           // of the document
  std::string_view key_;                        // the innermost member it lies in
  int64_t index_ = kNoIndex;                    // and the element in that
};

class JsonDocument {
 public:
  JsonDocument();
  // `name` is for messages; empty: the caller puts it in front.
  explicit JsonDocument(std::string_view text, const std::string& name = "");
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  // Reads another text, in the memory of the last one; values of that end.
  void parse(std::string_view text);
  const JsonValue& root() const { return root_; }

 private:
  struct State;
  const std::string name_;
  std::unique_ptr<State> state_;
  JsonValue root_;
};

}  // namespace moraine
