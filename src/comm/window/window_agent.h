// WindowAgent: does what ranks of other hosts ask of this rank's segments, and keeps what this rank asked of theirs.
//
// Between hosts nobody can read another's memory: one-sided access is emulated. The agent of the owner, called by
// whatever thread moves the transport's bytes, checks segment, generation and bounds of each request and carries it
// out. What it refuses is answered with a status, and touches nothing.
//
// Knows no transport, clock or thread of its own: frames come in through handle and go out as values, so the
// simulation in window_agent_test.cc stands below it.
//
// Memory:  for each put in several parts that has not arrived whole: 32 bytes, at most kMostOpenPuts of a rank.
// Errors:  none; what is wrong is a WindowStatus.
// Threads: any; calls happen one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "comm/global_address.h"
#include "comm/window/window_frame.h"

namespace moraine {

constexpr size_t kMostOpenPuts = 64;

// Something that this rank asks of `rank`.
struct WindowRequest {
  WindowAction action = WindowAction::kPut;
  GlobalAddress address;
  ConstBytes data = {};  // kPut: this part
  Bytes out = {};        // kGet: gets the bytes while the answer is handled
  uint64_t value = 0, expected = 0;
  const GlobalAddress* signal = nullptr;  // kPut
  uint64_t group = 0;                     // kPut: 0 for the first part
  int64_t whole_bytes = 0;                // kPut: of all parts
};

struct WindowAnswer {
  WindowStatus status = WindowStatus::kOk;
  uint64_t value = 0;  // of the word, before
};

// A put that was refused.
struct RefusedPut {
  GlobalAddress address;
  int64_t bytes = 0;
  WindowStatus status = WindowStatus::kOk;
};

class WindowAgent {
 public:
  // `first_id`: none of an earlier agent of this rank is as large, so that late answers to it fit no request.
  explicit WindowAgent(uint64_t first_id) : next_id_(first_id) {}

  // Owner -----------------------------------------------------------------------------------------
  void add_segment(int segment, uint64_t generation, Bytes memory);
  void remove_segment(int segment);  // no request touches its memory any more
  // A request of rank `from` is carried out and its answer returned; an answer is taken, and nothing returned, as for
  // bytes that are no frame. *signalled: a signal was added to.
  std::vector<std::byte> handle(int from, ConstBytes frame, bool* signalled);

  // Who asks --------------------------------------------------------------------------------------
  // The request's number, and the frame to send.
  uint64_t ask(const WindowRequest& request, std::vector<std::byte>* frame);
  // The answer of a get or of an operation on a word, once.
  std::optional<WindowAnswer> take_answer(uint64_t id);
  void forget(uint64_t id);  // its answer is not wanted any more: `out` may go
  int puts_in_flight(int rank) const;
  std::optional<RefusedPut> take_refused();  // the first one

 private:
  struct Segment {
    uint64_t generation = 0;
    Bytes memory;
  };
  struct OpenPut {
    int64_t missing = 0;  // bytes
    bool is_refused = false;
  };
  struct Pending {
    WindowAction action;
    GlobalAddress address;
    int64_t bytes = 0;
    Bytes out;
    std::optional<WindowAnswer> answer = {};
  };

  WindowStatus find(const WindowPlace& place, int64_t bytes, std::byte** at) const;
  WindowStatus find_word(const WindowPlace& place, uint64_t** word) const;
  std::vector<std::byte> act(int from, const WindowFrame& head, ConstBytes payload,
                             bool* signalled);
  WindowStatus put(int from, const WindowFrame& head, ConstBytes payload, bool* signalled);
  WindowStatus write_part(const WindowFrame& head, ConstBytes payload);
  void take(int from, const WindowFrame& head, ConstBytes payload);

  mutable std::mutex mutex_;
  std::map<int, Segment> segments_;
  std::map<std::pair<int, uint64_t>, OpenPut> open_puts_;  // by rank and group
  std::map<int, size_t> open_counts_;                      // of them, by rank
  uint64_t next_id_;
  std::map<uint64_t, Pending> pending_;
  std::map<int, int> puts_in_flight_;
  std::optional<RefusedPut> refused_;
};

// Sequentially consistent, as the words of segments are for everybody.
uint64_t add_to_word(uint64_t* word, uint64_t value);  // returns what was there
uint64_t swap_word_if(uint64_t* word, uint64_t expected, uint64_t desired);  // likewise
uint64_t load_word(const uint64_t* word);

}  // namespace moraine
