// SegmentMemory: zeroed memory of one rank that the other ranks of its host can map.
//
// It has no name in any file system: others open it through the process that made it (/proc/PID/fd), while that keeps
// its descriptor. A mapping stays when its maker is gone, so no rank writes into memory that another took down.
//
// Errors: kIo if the system gives no memory or does not let it be opened.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "comm/transport.h"

namespace moraine {

class SegmentMemory {
 public:
  static std::shared_ptr<SegmentMemory> make(int64_t bytes);
  static std::shared_ptr<SegmentMemory> open(pid_t maker, int descriptor, int64_t bytes);
  ~SegmentMemory();
  SegmentMemory(const SegmentMemory&) = delete;
  SegmentMemory& operator=(const SegmentMemory&) = delete;

  Bytes bytes() const { return {data_, size_}; }
  int descriptor() const { return descriptor_; }  // -1: of an empty one, or closed
  void close_descriptor();                        // all who want it have opened it

 private:
  SegmentMemory(int descriptor, int64_t bytes);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace moraine
