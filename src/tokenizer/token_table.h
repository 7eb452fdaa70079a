// Token table: a map from byte strings to ids, read-only once filled.
//
// Cost:    open addressing at most half full, the strings in one block; find is one hash (XXH3)
//          and usually one comparison.
// Threads: find from any thread once filling is over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moraine {

class TokenTable {
 public:
  // Optional: room for so many strings of so many bytes together.
  void reserve(int64_t tokens, int64_t bytes);

  // False, and nothing changes, if the string is there already. id >= 0.
  bool insert(std::string_view token, int32_t id);

  int32_t find(std::string_view token) const;  // -1 if absent

  int64_t count() const { return static_cast<int64_t>(entries_.size()); }

  // The strings in order of insertion. The view dies with the next insertion.
  std::string_view token(int64_t index) const {
    const Entry& entry = entries_[index];
    return std::string_view(bytes_).substr(entry.begin, entry.bytes);
  }
  int32_t id(int64_t index) const { return entries_[index].id; }

 private:
  struct Entry {
    int64_t begin;
    int32_t bytes;
    int32_t id;
  };
  void resize_slots(int64_t slots);
  uint64_t place_of(std::string_view token, uint64_t hash) const;

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<uint64_t> slots_;  // high half of the hash, then index + 1; 0 for empty
};

}  // namespace moraine
