// Frame: what travels on a rail: a head of fixed size, then a payload.
//
//   kAcknowledge  nothing but the head: "received" counts, and the sender lives
//   kProbe        the first frame of a connection: as large as frames get, so that a path that swallows large
//                 packets is found before data is entrusted to it
//   kAnnounce     a message of several chunks follows: the receiver can make room before the first is through
//   kData         one chunk of a message
//   kGrant        chunks of `message` up to `offset` have a place now
//   kTaken        messages up to `message` of the channel were taken: there is room for more
//   kRailLost     connection `message` of rail `offset` is silent here: close it there too
//   kFault        the sender's job failed; the payload says why
//   kGoodbye      the sender has ended its work
//
// All but kAcknowledge are counted: the receiver says in each of its heads how many of them it has handled on this
// connection, and what is not acknowledged when a connection ends is sent again on another.
//
// Units:   bytes; numbers in the byte order of the machine (little endian wherever this program runs).
// Errors:  none; what is wrong with a head is a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/transport.h"  // kMaxChannels

namespace moraine {

constexpr int64_t kChunkBytes =
    128 << 10;  // of a message in one frame; a parameter for tests, which take less
// Lanes of a peer: the messages of each channel, then the frames of each (comm/far_messages.h).
constexpr int kLanes = 2 * kMaxChannels;
constexpr int frame_lane(int channel) { return kMaxChannels + channel; }
constexpr int64_t kMostMessageBytes = int64_t{1} << 40;

enum class FrameKind : uint8_t {
  kAcknowledge = 1,
  kProbe,
  kAnnounce,
  kData,
  kGrant,
  kTaken,
  kRailLost,
  kFault,
  kGoodbye,
};

struct FrameHead {
  static constexpr uint32_t kMagic = 0x314c524d;  // "MRL1"
  uint32_t magic = kMagic, generation = 0;
  FrameKind kind = FrameKind::kAcknowledge;
  uint8_t channel = 0;    // a lane
  uint8_t is_urgent = 0;  // acknowledge at once: the sender's memory is held until then
  uint8_t zero = 0;
  uint32_t payload_bytes = 0;  // behind this head
  uint64_t received =
      0;                 // counted frames handled so far, of the other direction of this connection
  uint64_t message = 0;  // from 1, per channel
  uint64_t label = 0;    // comm/label.h
  int64_t bytes = 0;     // of the whole message
  int64_t offset = 0;    // of the payload in the message
  uint64_t payload_hash = 0, head_hash = 0;
};
static_assert(sizeof(FrameHead) == 72);

enum class HeadFault : uint8_t { kNone, kMagic, kHash, kGeneration, kKind, kSize };

// Fills in both hashes. `payload`: head.payload_bytes of it.
void seal_frame(FrameHead& head, const std::byte* payload);

// Whether a head is whole, of this generation, and of a shape that its kind may have.
HeadFault check_head(const FrameHead& head, uint32_t generation, int64_t chunk_bytes = kChunkBytes);
bool payload_is_whole(const FrameHead& head, const std::byte* payload);

}  // namespace moraine
