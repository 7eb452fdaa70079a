// XXH3-128 through the xxHash library; the only file that includes it.
#include "base/hash.h"

#include <xxhash.h>
#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same values by the widest instructions of this processor: twice as fast
#endif

#include <cstdio>

#include "base/check.h"

namespace moraine {

Hash128 hash_bytes(const void* data, int64_t bytes) {
  const XXH128_hash_t h = XXH3_128bits(data, static_cast<size_t>(bytes));
  return {.high = h.high64, .low = h.low64};
}

std::string hash_hex(const Hash128& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016lx%016lx", static_cast<unsigned long>(hash.high),
                static_cast<unsigned long>(hash.low));
  return text;
}

bool parse_hash(const std::string& hex, Hash128* hash) {
  if (hex.size() != 32) return false;
  uint64_t words[2] = {0, 0};
  for (int i = 0; i < 32; ++i) {
    const char c = hex[static_cast<size_t>(i)];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    words[i / 16] = words[i / 16] << 4 | static_cast<uint64_t>(digit);
  }
  *hash = {.high = words[0], .low = words[1]};
  return true;
}

struct Hasher::State {
  XXH3_state_t* xxh;
};

Hasher::Hasher() : state_(new State{XXH3_createState()}) {
  MR_CHECK(state_->xxh != nullptr);
  XXH3_128bits_reset(state_->xxh);
}

Hasher::~Hasher() { XXH3_freeState(state_->xxh); }

void Hasher::add(const void* data, int64_t bytes) {
  XXH3_128bits_update(state_->xxh, data, static_cast<size_t>(bytes));
}

Hash128 Hasher::digest() const {
  const XXH128_hash_t h = XXH3_128bits_digest(state_->xxh);
  return {.high = h.high64, .low = h.low64};
}

}  // namespace moraine
