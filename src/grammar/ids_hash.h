// IdsHash: what the hash tables of grammars take lists of numbers by. For tables alone: it is not kept, nor spread well
// enough to be taken for what is hashed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moraine {

// One more value into a hash.
inline uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio
  return hash ^ (hash >> 29);
}

struct IdsHash {
  size_t operator()(std::span<const int32_t> ids) const {
    uint64_t hash = ids.size();
    for (const int32_t id : ids) hash = mix_hash(hash, static_cast<uint32_t>(id));
    return hash;
  }
};

}  // namespace moraine
