// SharedArray: shared memory of an emulated block that knows who touched each element last, and so sees races.
//
//   Two accesses of one element by different threads are ordered if a barrier of the block is between them, or if
//   both are of one wave and sync_wave is between them. Otherwise, if one of them writes, they race. An element
//   remembers its last writer and enough of its readers: the last, the last other thread of that one's wave, and the
//   last of another wave. Who writes unordered with any reader is unordered with one of these.
//
//   An array serves all blocks of a launch, one after the other: barriers are counted on, so that what an earlier
//   block did is ordered before everything. begin() says from which count on an access is of this block.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/gpu/emulate.h"

namespace moraine::gpu {

// Where a thread stands: how many barriers it has passed.
struct AccessTime {
  SourceLine at = {nullptr, 0};
  int16_t thread = -1;  // -1: nobody yet
  int16_t wave = 0;
  int block_barriers = -1, wave_barriers = 0;
};

// Whether `before` and `now` are of two threads with no barrier between.
inline bool unordered(const AccessTime& before, const AccessTime& now) {
  if (before.block_barriers != now.block_barriers || before.thread == now.thread) return false;
  return before.wave != now.wave || before.wave_barriers == now.wave_barriers;
}

class SharedArray {
 public:
  SharedArray(std::string name, int64_t count, int64_t element_bytes, const SourceLine& at);

  // For a block whose first access has seen `block_barriers`: nobody has touched anything.
  void begin(int block_barriers) {
    begun_ = block_barriers;
    std::memset(bytes_.data(), 0xff, bytes_.size());
  }
  int begun() const { return begun_; }
  // Whether the access may be; it is remembered then. Otherwise fault_text() says what is wrong.
  bool read(int64_t index, const AccessTime& now);
  bool write(int64_t index, const AccessTime& now);
  std::string fault_text(int64_t index, const AccessTime& now, bool writes) const;
  // Of an index that is inside: whether this block has written it, and what to say of a read if it has not, and
  // nobody turns out to race with it.
  bool written(int64_t index) const {
    return history_[static_cast<size_t>(index)].writer.block_barriers >= begun_;
  }
  std::string unwritten_text(int64_t index, const AccessTime& now) const;
  void* element(int64_t index) { return bytes_.data() + index * element_bytes; }

  const std::string name;
  const int64_t count, element_bytes;
  const SourceLine declared;

 private:
  struct History {
    AccessTime writer, reader, reader_beside, reader_elsewhere;
  };
  bool inside(int64_t index) const {
    return static_cast<uint64_t>(index) < static_cast<uint64_t>(count);
  }

  int begun_ = -1;
  std::vector<uint8_t> bytes_;
  std::vector<History> history_;  // [count]
};

inline bool SharedArray::read(int64_t index, const AccessTime& now) {
  if (!inside(index)) return false;
  History& h = history_[static_cast<size_t>(index)];
  if (unordered(h.writer, now)) return false;
  if (h.reader.wave != now.wave) {
    h.reader_elsewhere = h.reader;
    h.reader_beside = AccessTime();
  } else if (h.reader.thread != now.thread) {
    h.reader_beside = h.reader;
  }
  h.reader = now;
  return true;
}

inline bool SharedArray::write(int64_t index, const AccessTime& now) {
  if (!inside(index)) return false;
  History& h = history_[static_cast<size_t>(index)];
  if (unordered(h.writer, now) || unordered(h.reader, now) || unordered(h.reader_beside, now) ||
      unordered(h.reader_elsewhere, now)) {
    return false;
  }
  h.writer = now;
  return true;
}

std::string place_text(const SourceLine& at);  // "swiglu.cu:12"

}  // namespace moraine::gpu
