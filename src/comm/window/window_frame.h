// WindowFrame: what ranks of different hosts send each other for a window: a request, or the answer to one.
//
//   kPut          payload to (segment, offset); the part of a put of whole_bytes that is called `group`. When the last
//                 part has been written, one is added to the signal's word, if it has one.
//   kGet          answered with payload_wanted bytes
//   kFetchAdd     adds value to the word, answered with what was there before
//   kCompareSwap  writes value if the word is `expected`, answered with what was there before
//   kAnswer       to request `id`: status, value, payload
//
// Every request has exactly one answer. Requests may be handled in any order: a put counts its parts.
//
// Units: bytes; numbers in the byte order of the machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/far_messages.h"  // kMostFrameBytes

namespace moraine {

enum class WindowAction : uint8_t { kPut = 1, kGet, kFetchAdd, kCompareSwap, kAnswer };

enum class WindowStatus : uint8_t {
  kOk = 0,
  kNoSegment,      // there never was one, or it was removed
  kOldGeneration,  // another one is there
  kOutside,        // the bytes are not all inside
  kUnaligned,      // a word that is not at a multiple of its size
  kMalformed,      // no request that this program makes
};

// A segment of the rank that handles the frame.
struct WindowPlace {
  int64_t offset = 0;
  uint64_t generation = 0;
  int32_t segment = 0;
  int32_t zero = 0;
};

struct WindowFrame {
  static constexpr uint32_t kMagic = 0x31575257;  // "WRW1"
  uint32_t magic = kMagic;
  WindowAction action = WindowAction::kAnswer;
  WindowStatus status = WindowStatus::kOk;
  uint8_t has_signal = 0;
  uint8_t zero = 0;
  uint64_t id = 0;     // chosen by who asks, never used twice
  uint64_t group = 0;  // id of the put's first part
  WindowPlace place = {}, signal = {};
  int64_t whole_bytes = 0;
  uint64_t value = 0, expected = 0;
  uint32_t payload_bytes = 0;   // behind this head
  uint32_t payload_wanted = 0;  // kGet
};
static_assert(sizeof(WindowFrame) == 104);

constexpr int64_t kMostPartBytes = kMostFrameBytes - static_cast<int64_t>(sizeof(WindowFrame));

// "has no such segment", ...: what is wrong at the owner.
const char* window_status_text(WindowStatus status);

}  // namespace moraine
