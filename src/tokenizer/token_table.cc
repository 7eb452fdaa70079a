// Open addressing with linear probing over entries kept in order of insertion.
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

}  // namespace

void TokenTable::reserve(int64_t tokens, int64_t bytes) {
  entries_.reserve(tokens);
  bytes_.reserve(bytes);
  if (2 * tokens > static_cast<int64_t>(slots_.size())) resize_slots(2 * tokens);
}

void TokenTable::resize_slots(int64_t slots) {
  slots = std::max<int64_t>(kSlotsLeast, std::bit_ceil(static_cast<uint64_t>(slots)));
  slots_.assign(slots, -1);
  for (int64_t i = 0; i < count(); ++i) {
    uint64_t slot = entries_[i].hash & (slots_.size() - 1);
    while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<int32_t>(i);
  }
}

uint64_t TokenTable::slot_of(std::string_view wanted, uint64_t hash) const {
  const uint64_t mask = slots_.size() - 1;
  uint64_t slot = hash & mask;
  while (slots_[slot] >= 0) {
    const Entry& entry = entries_[slots_[slot]];
    if (entry.hash == hash && token(slots_[slot]) == wanted) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

bool TokenTable::insert(std::string_view token, int32_t id) {
  if (2 * (count() + 1) > static_cast<int64_t>(slots_.size())) resize_slots(4 * (count() + 1));
  const uint64_t hash = hash_of(token);
  const uint64_t slot = slot_of(token, hash);
  if (slots_[slot] >= 0) return false;
  slots_[slot] = static_cast<int32_t>(entries_.size());
  entries_.push_back(
      {static_cast<int64_t>(bytes_.size()), static_cast<int32_t>(token.size()), id, hash});
  bytes_.append(token);
  return true;
}

int32_t TokenTable::find(std::string_view token) const {
  if (slots_.empty()) return -1;
  const int32_t index = slots_[slot_of(token, hash_of(token))];
  return index < 0 ? -1 : entries_[index].id;
}

}  // namespace moraine
