// Read, not mapped: a bad sector must be an Error, so that the checkpoint before can be taken.
#include "checkpoint/file_bytes.h"

#include <algorithm>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"

namespace moraine {
namespace {

constexpr int64_t kHashedBytes = int64_t{1} << 20;  // hashed at once: stays in the cache
constexpr int64_t kAheadBytes = int64_t{64} << 20;  // asked of the disk before it is needed

}  // namespace

void add_file_bytes(const MappedFile& file, int64_t offset, int64_t bytes, Hasher* hasher) {
  std::vector<uint8_t> piece(static_cast<size_t>(std::min(kHashedBytes, bytes)));
  for (int64_t at = 0; at < bytes; at += kHashedBytes) {
    if (at % kAheadBytes == 0) file.will_need(offset + at, std::min(bytes - at, 2 * kAheadBytes));
    const int64_t count = std::min(kHashedBytes, bytes - at);
    file.read_at(offset + at, count, piece.data());
    hasher->add(piece.data(), count);
  }
}

}  // namespace moraine
