// Window: memory of every member that the others read and write without its help, by global addresses.
//
//   put           bytes to an address. They may be changed when it returns; they are there when quiet() returns, or
//                 when the owner sees the signal
//   put_signal    the same, then adds one to a word of the same rank: who sees the word sees the bytes
//   get           bytes from an address
//   fetch_add     adds to a word of 8 bytes; what was there before
//   compare_swap  writes `desired` if the word is `expected`; what was there before
//   wait_until    until a word of this member's own is `least` or more
//   quiet         until every put of this member is where it belongs
//
// Inside a host these are plain loads, stores and atomic operations of the processor on shared memory. Between hosts
// they are emulated: frames over the transport's messages, which an agent of the owner carries out, on whatever thread
// of it moves bytes (docs/global_memory.md). Words are the same words for both.
//
// Order: two puts have none; a signal comes after its own bytes. Count signals, and rely on nothing else. A get or a
//        load beside a put to the same bytes gives any mixture.
//
// A segment has a generation, which grows with each that is registered. An address is checked where it is used
// and, between hosts, again by its owner: segment, generation, bounds, alignment of words.
//
// Errors:  kInvalidArgument (outside of the segment, a rank that is no member, no word), kNotFound (the segment is
//          gone, or another has its place), kPeerLost (transport.h; also a put to a rank that died), kIo (no memory).
//          Nothing is written then. What only the owner can refuse of a put is thrown by a later call: quiet at last.
// Threads: all but add_segment and remove_segment: any.
// Cost:    in a host a copy, and 8 bytes for a signal; between hosts 104 bytes beside each 16 KiB, one answer of 104
//          bytes for each frame, at most kMostPutsInFlight frames to a rank unanswered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/global_address.h"
#include "comm/window/segment_memory.h"
#include "comm/window/window_agent.h"

namespace moraine {

class FarMessages;

class Window {
 public:
  static constexpr int kMostPutsInFlight = 32;

  // Collective; one at a time for a communicator, which stays. Collectives of the same communicator may follow.
  explicit Window(Communicator& comm);
  ~Window();  // not collective: requests of others for its segments are dropped from then on
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Collective: every member brings `bytes` of its own number, zeroed. The segment's number, the same on all.
  int add_segment(int64_t bytes, const std::string& name);
  // Collective, when all puts of all members are where they belong.
  void remove_segment(int segment);

  Bytes memory(int segment) const;  // this member's own
  int64_t bytes_of(int member, int segment) const;
  GlobalAddress address(int member, int segment, int64_t offset = 0) const;

  void put(const GlobalAddress& to, ConstBytes data);
  void put_signal(const GlobalAddress& to, ConstBytes data, const GlobalAddress& signal);
  void get(const GlobalAddress& from, Bytes out);
  uint64_t fetch_add(const GlobalAddress& word, uint64_t value);
  uint64_t compare_swap(const GlobalAddress& word, uint64_t expected, uint64_t desired);
  // `word`: of this member. from: the member who will raise it; its death ends the wait.
  void wait_until(const GlobalAddress& word, uint64_t least, int from);
  void quiet();

 private:
  struct Part {  // of one member
    int64_t bytes = 0;
    std::shared_ptr<SegmentMemory> memory;  // null: on another host
  };
  struct Segment {
    std::string name;
    uint64_t generation = 0;
    std::vector<Part> parts;  // empty: removed
  };
  struct Use {  // of an address, for messages
    const char* doing;
    const GlobalAddress& address;
    int64_t bytes;
  };

  uint64_t next_generation();
  bool is_near(int rank) const;
  // Where the bytes are; null: on another host.
  std::byte* find(const Use& use);
  uint64_t* find_word(const char* doing, const GlobalAddress& a);
  uint64_t change_word(const WindowRequest& request, const char* doing);
  void put_far(const Use& use, ConstBytes data, const GlobalAddress* signal);
  void wait_for_puts(int rank, int most);
  WindowAnswer wait_for_answer(const Use& use, uint64_t id);
  void throw_refused();
  [[noreturn]] void refuse(const Use& use, const std::string& found, WindowStatus status) const;
  std::string text(const Use& use) const;

  Communicator& comm_;
  HostTransport& host_;
  FarMessages* const far_;  // null: all members are on this host
  uint64_t label_ = 0, generation_ = 0;
  std::optional<WindowAgent> agent_;
  std::vector<Segment> segments_;
};

}  // namespace moraine
