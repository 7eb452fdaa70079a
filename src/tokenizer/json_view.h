// JSON view: reading values of a parsed JSON text, with messages that say where.
//
// Errors:  JsonText: kCorrupt, if it is not JSON. Every getter: kCorrupt naming the text, the
//          member and the type that was wanted.
// Cost:    parsing runs at more than 300 MB/s; strings are views into the parsed text.
// Threads: a JsonText may be read from any thread; views die with it.
// Source:  simdjson.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace moraine {

class JsonView {
 public:
  bool is_null() const;
  bool is_text() const;
  bool is_object() const;
  bool is_array() const;

  std::string_view text() const;
  int64_t integer() const;
  double number() const;
  bool boolean() const;

  // Members of an object. find gives false if it is absent or null.
  JsonView at(std::string_view key) const;
  bool find(std::string_view key, JsonView* value) const;
  void members(const std::function<void(std::string_view key, const JsonView& value)>& each) const;

  // Elements of an array.
  int64_t count() const;
  void elements(const std::function<void(int64_t index, const JsonView& value)>& each) const;

  // «tokenizer.json: "merges" element 5», for messages.
  std::string place() const;

 private:
  friend class JsonText;
  using Raw = std::array<std::byte, 16>;
  static constexpr int64_t kNoIndex = -1;

  alignas(8) Raw raw_{};               // the library's element
  const std::string* name_ = nullptr;  // of the text
  std::string_view key_;               // the innermost member it lies in
  int64_t index_ = kNoIndex;           // and the element in that
};

class JsonText {
 public:
  JsonText(std::string_view json, const std::string& name);
  ~JsonText();
  JsonText(const JsonText&) = delete;
  JsonText& operator=(const JsonText&) = delete;
  const JsonView& root() const { return root_; }

 private:
  struct Parser;
  const std::string name_;
  std::unique_ptr<Parser> parser_;
  JsonView root_;
};

}  // namespace moraine
