// Frame: hashes and bounds of heads.
#include "comm/rails/frame.h"

#include "base/hash.h"
#include "comm/transport.h"

namespace moraine {
namespace {

uint64_t head_hash(FrameHead head) {
  head.head_hash = 0;
  return hash_bytes(&head, sizeof head).low;
}

uint64_t payload_hash(const FrameHead& head, const std::byte* payload) {
  return head.payload_bytes == 0 ? 0 : hash_bytes(payload, head.payload_bytes).low;
}

bool is_chunk(const FrameHead& h, int64_t chunk_bytes) {
  if (h.bytes < 0 || h.bytes > kMostMessageBytes || h.offset < 0 || h.offset % chunk_bytes != 0)
    return false;
  if (h.offset >= h.bytes && h.offset != 0) return false;
  return h.payload_bytes == std::min(chunk_bytes, h.bytes - h.offset) && h.message > 0;
}

bool has_valid_size(const FrameHead& h, int64_t chunk_bytes) {
  if (h.channel >= kLanes) return false;
  switch (h.kind) {
    case FrameKind::kData:
      return is_chunk(h, chunk_bytes);
    case FrameKind::kProbe:
    case FrameKind::kFault:
      return h.payload_bytes <= chunk_bytes;
    case FrameKind::kAnnounce:
      return h.payload_bytes == 0 && h.bytes > chunk_bytes && h.bytes <= kMostMessageBytes &&
             h.message > 0;
    case FrameKind::kGrant:
      return h.payload_bytes == 0 && h.offset >= 0;
    default:
      return h.payload_bytes == 0;
  }
}

}  // namespace

void seal_frame(FrameHead& head, const std::byte* payload) {
  head.payload_hash = payload_hash(head, payload);
  head.head_hash = head_hash(head);
}

HeadFault check_head(const FrameHead& head, uint32_t generation, int64_t chunk_bytes) {
  if (head.magic != FrameHead::kMagic) return HeadFault::kMagic;
  if (head.head_hash != head_hash(head)) return HeadFault::kHash;
  if (head.generation != generation) return HeadFault::kGeneration;
  if (head.kind < FrameKind::kAcknowledge || head.kind > FrameKind::kGoodbye)
    return HeadFault::kKind;
  return has_valid_size(head, chunk_bytes) ? HeadFault::kNone : HeadFault::kSize;
}

bool payload_is_whole(const FrameHead& head, const std::byte* payload) {
  return head.payload_hash == payload_hash(head, payload);
}

}  // namespace moraine
