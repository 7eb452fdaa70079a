// GlobalAddress: a byte of the memory that the ranks of a window share.
#pragma once

#include <cstdint>

namespace moraine {

constexpr int64_t kWindowWordBytes =
    sizeof(uint64_t);  // of what is signalled, read and added to at an address

struct GlobalAddress {
  int32_t rank = 0;         // of the job, not of a group
  int32_t segment = 0;      // which of the rank's segments in the window
  int64_t offset = 0;       // bytes from the segment's begin
  uint64_t generation = 0;  // of the segment: an address of one that is gone fits no other

  GlobalAddress operator+(int64_t bytes) const {
    return {rank, segment, offset + bytes, generation};
  }
  bool operator==(const GlobalAddress&) const = default;
};

}  // namespace moraine
