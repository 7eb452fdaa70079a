// Token table: open addressing with linear probing over entries in order of insertion.
#include "tokenizer/token_table.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"

namespace moraine {
namespace {

constexpr int64_t kSlotsLeast = 16;

uint64_t hash_of(std::string_view token) {
  return hash_bytes(token.data(), static_cast<int64_t>(token.size())).low;
}

// A slot: the upper half of the hash tells most other tokens apart without looking at them.
uint64_t slot_value(uint64_t hash, int64_t index) {
  return (hash & ~uint64_t{UINT32_MAX}) | static_cast<uint64_t>(index + 1);
}
int64_t slot_index(uint64_t slot) { return static_cast<int64_t>(slot & UINT32_MAX) - 1; }

}  // namespace

void TokenTable::reserve(int64_t tokens, int64_t bytes) {
  entries_.reserve(tokens);
  bytes_.reserve(bytes);
  if (2 * tokens > static_cast<int64_t>(slots_.size())) resize_slots(2 * tokens);
}

void TokenTable::resize_slots(int64_t slots) {
  slots_.assign(std::max<uint64_t>(kSlotsLeast, std::bit_ceil(static_cast<uint64_t>(slots))), 0);
  for (int64_t i = 0; i < count(); ++i) {
    const uint64_t hash = hash_of(token(i));
    uint64_t place = hash & (slots_.size() - 1);
    while (slots_[place] != 0) place = (place + 1) & (slots_.size() - 1);
    slots_[place] = slot_value(hash, i);
  }
}

uint64_t TokenTable::place_of(std::string_view wanted, uint64_t hash) const {
  const uint64_t mask = slots_.size() - 1;
  uint64_t place = hash & mask;
  while (slots_[place] != 0) {
    const bool same_half = (slots_[place] ^ hash) >> 32 == 0;
    if (same_half && token(slot_index(slots_[place])) == wanted) break;
    place = (place + 1) & mask;
  }
  return place;
}

bool TokenTable::insert(std::string_view token, int32_t id) {
  if (2 * (count() + 1) > static_cast<int64_t>(slots_.size())) resize_slots(4 * (count() + 1));
  const uint64_t hash = hash_of(token);
  const uint64_t place = place_of(token, hash);
  if (slots_[place] != 0) return false;
  slots_[place] = slot_value(hash, count());
  entries_.push_back({static_cast<int64_t>(bytes_.size()), static_cast<int32_t>(token.size()), id});
  bytes_.append(token);
  return true;
}

int32_t TokenTable::find(std::string_view token) const {
  if (slots_.empty()) return -1;
  const uint64_t slot = slots_[place_of(token, hash_of(token))];
  return slot == 0 ? -1 : entries_[slot_index(slot)].id;
}

}  // namespace moraine
