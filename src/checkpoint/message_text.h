// MessageText: numbers and strings in one message between ranks of the same program.
//
// Numbers are 8 bytes in the machine's order, strings are their length, then their bytes.
// Errors: reading past the end, or leaving bytes over, throws kPeerLost: the peer is another build.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace moraine {

class MessageWriter {
 public:
  void put(int64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void put(std::string_view value) {
    put(static_cast<int64_t>(value.size()));
    text_.append(value);
  }
  void put(const Hash128& hash) {
    put(static_cast<int64_t>(hash.high));
    put(static_cast<int64_t>(hash.low));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class MessageReader {
 public:
  explicit MessageReader(std::string_view text) : text_(text) {}

  int64_t number() {
    int64_t value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  // Of a list that follows: no more items than bytes, so a wrong one cannot ask for all memory.
  int64_t count() {
    const int64_t value = number();
    if (value < 0 || value > static_cast<int64_t>(text_.size())) refuse();
    return value;
  }
  std::string string() { return std::string(bytes(static_cast<size_t>(count()))); }
  Hash128 hash() {
    const uint64_t high = static_cast<uint64_t>(number());
    return {high, static_cast<uint64_t>(number())};
  }
  bool empty() const { return text_.empty(); }
  void end() const {
    if (!text_.empty()) refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw_error(Code::kPeerLost, "a message that cannot be read; are all ranks the same program?");
  }
  std::string_view bytes(size_t n) {
    if (n > text_.size()) refuse();
    const std::string_view result = text_.substr(0, n);
    text_.remove_prefix(n);
    return result;
  }

  std::string_view text_;
};

}  // namespace moraine
