// Hash: XXH3-128 of bytes, for integrity checks and answer comparison (not for security).
//
// Errors: none.
// Cost:   memory bandwidth.
// Source: xxHash library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace moraine {

struct Hash128 {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash128&) const = default;
};

Hash128 hash_bytes(const void* data, int64_t bytes);
std::string hash_hex(const Hash128& hash);               // 32 lower-case hex digits
bool parse_hash(const std::string& hex, Hash128* hash);  // false if not 32 hex digits

// Streaming: add pieces, then digest. The same as hash_bytes of the concatenation.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add(const void* data, int64_t bytes);
  void add_text(const std::string& text) { add(text.data(), static_cast<int64_t>(text.size())); }
  Hash128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moraine
