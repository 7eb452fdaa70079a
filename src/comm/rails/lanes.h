// Lanes: the messages between this rank and one peer, as parcels that may take any rail and come in any order, twice
// too.
//
// A lane is one channel. Sending cuts a message into chunks. A word of what comes and the first chunk leave at once;
// the rest when the receiver has opened the message and granted room, so that nothing but first chunks ever waits in
// memory that nobody asked for. Receiving places each chunk by its offset, and knows what it has: a chunk that comes
// again is thrown away, wherever it comes from.
//
// Knows no rail, socket, clock or thread: RailPeer gives parcels to rails, and hands back those that a rail lost.
//
// Memory:  first chunks of at most kOpenMessages messages a channel, a window of kWindowChunks for each channel that
//          takes a larger message piece by piece; copies of messages up to copied_bytes() until acknowledged.
// Errors:  none. What a peer may not do is refused (accepts).
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <vector>

#include "comm/rails/frame.h"
#include "comm/transport.h"

namespace moraine {

constexpr int kOpenMessages = 8;  // of a channel that the receiver has not taken yet
constexpr int64_t kWindowChunks = 16;

// A frame that must arrive, less what belongs to the connection that carries it.
struct Parcel {
  FrameKind kind = FrameKind::kData;
  uint8_t channel = 0;
  bool is_urgent = false;
  uint64_t message = 0, label = 0;
  int64_t bytes = 0, offset = 0;
  uint32_t payload_bytes = 0;
};

struct MessageHead {
  uint64_t label = 0;
  int64_t bytes = 0;
};

class Lanes {
 public:
  explicit Lanes(int64_t chunk_bytes = kChunkBytes) : chunk_(chunk_bytes) {}
  int64_t chunk_bytes() const { return chunk_; }
  int64_t copied_bytes() const {
    return chunk_ / 8;
  }  // messages up to it are copied by send, and so finished

  // Sending ---------------------------------------------------------------------------------------
  bool has_room(int channel) const;
  // The message's number; `data` must stay until is_sent, unless it was copied.
  uint64_t send(int channel, uint64_t label, ConstBytes data);
  bool is_sent(int channel, uint64_t message) const;
  bool all_sent() const;
  // Its memory is not looked at any more.
  void withdraw(int channel, uint64_t message);

  // Receiving: one message of a channel at a time -------------------------------------------------
  bool has_next(int channel, MessageHead* head) const;
  // Takes the next message: into `out` (all its bytes), or, if `out` is empty, into a window.
  void open(int channel, Bytes out);
  int64_t arrived(int channel) const;  // bytes from its begin without a hole
  // Of the window: where byte `offset` is, and how many follow it in one piece.
  ConstBytes window(int channel, int64_t offset) const;
  void release(int channel, int64_t offset);  // the window's bytes before it may be overwritten
  void close(int channel);                    // taken, or not wanted any more

  // Parcels ---------------------------------------------------------------------------------------
  bool next_parcel(Parcel* parcel);
  void acknowledge(const Parcel& parcel);
  void carry_again(const Parcel& parcel);
  // Where its payload is; null if the message was withdrawn.
  const std::byte* payload(const Parcel& parcel) const;

  bool accepts(const FrameHead& head) const;  // false: the peer breaks the protocol
  // Where the payload of an accepted frame goes; null: nowhere, it was here before. Ask again before each write.
  std::byte* place(const FrameHead& head);
  // An accepted frame is whole. False: it was here before.
  bool take(const FrameHead& head);

 private:
  struct Outgoing {
    uint64_t number = 0, label = 0;
    int64_t bytes = 0, chunks = 1;
    const std::byte* data = nullptr;
    std::vector<std::byte> copy = {};
    bool is_announced = false;
    int64_t next_chunk = 0, granted = 0, acknowledged = 0;  // chunks
  };
  struct Early {  // a message that is not opened
    MessageHead head;
    bool is_known = false;        // the head: it was announced, or the first chunk is whole
    std::vector<std::byte> data;  // of the first chunk; not empty: some connection reads into it
    bool is_whole = false;
  };
  struct Inbox {  // the message that is open
    bool is_open = false;
    MessageHead head;
    std::byte* base = nullptr;
    int64_t room = 0;     // bytes at base; offsets are taken modulo it
    int64_t granted = 0;  // bytes
    int64_t whole = 0;    // chunks from the first without a hole
    std::vector<bool> have;
  };
  struct Lane {
    uint64_t last_sent = 0, peer_taken = 0;
    std::deque<Outgoing> out;
    uint64_t opened = 0, taken = 0, told = 0;  // numbers of messages of the peer
    std::map<uint64_t, Early> early;
    Early first;
    Inbox in;
    std::vector<std::byte> window;
  };

  const Outgoing* find(const Lane& lane, uint64_t message) const;
  Outgoing* find(Lane& lane, uint64_t message);
  bool next_chunk(int channel, Parcel* parcel);
  void grant(int channel, int64_t granted);
  bool take_chunk(Lane& lane, const FrameHead& head);
  static bool fits(const Early& early, const FrameHead& head);
  bool fits(const Inbox& in, const FrameHead& head) const;
  // The first chunk of the open message is still on its way into the memory it had before it was opened.
  static bool is_in_first(const Lane& lane, const FrameHead& head);

  int64_t chunk_count(int64_t bytes) const {
    return std::max<int64_t>(1, (bytes + chunk_ - 1) / chunk_);
  }

  const int64_t chunk_;
  std::array<Lane, kLanes> lanes_;
  std::deque<Parcel> control_, again_;
  int turn_ = 0;  // the channel that gives the next chunk
};

}  // namespace moraine
