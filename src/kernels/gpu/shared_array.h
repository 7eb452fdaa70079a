// SharedArray: shared memory of an emulated block that knows who touched each element last, and so sees races.
//
//   Two accesses of one element by different threads are ordered if a barrier of the block is between them, or if
//   both are of one wave and sync_wave is between them. Otherwise, if one of them writes, they race. An element
//   remembers its last writer and enough of its readers: the last, the last other thread of that one's wave, and the
//   last of another wave. Who writes unordered with any reader is unordered with one of these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gpu/emulate.h"

namespace moraine::gpu {

// Where a thread stands: how many barriers it has passed.
struct AccessTime {
  int thread = -1;  // -1: nobody yet
  int wave = 0;
  int block_barriers = 0, wave_barriers = 0;
  SourceLine at = {nullptr, 0};
};

struct SharedArray {
  SharedArray(std::string name, int64_t count, int64_t element_bytes, const SourceLine& at);

  // Empty if it may be; what is wrong otherwise. The access is remembered.
  std::string read(int64_t index, const AccessTime& now);
  std::string write(int64_t index, const AccessTime& now);
  // What to say of a read if nobody turns out to race with it.
  std::string unwritten(int64_t index, const AccessTime& now) const;
  void* element(int64_t index) { return bytes.data() + index * element_bytes; }

  struct History {
    AccessTime writer, reader, reader_beside, reader_elsewhere;
  };
  const std::string name;
  const int64_t count, element_bytes;
  const SourceLine declared;
  std::vector<uint8_t> bytes;
  std::vector<History> history;  // [count]
};

std::string place_text(const SourceLine& at);  // "swiglu.cu:12"

}  // namespace moraine::gpu
