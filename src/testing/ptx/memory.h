// PtxMemory: what an interpreted kernel may touch, and who touched it.
//
// Global memory is the buffers that were added: an access that is not within one of them is not given. Shared memory
// remembers for every two bytes who wrote and who read since the last barrier of the block, so that an access without a
// barrier between is named, whatever the order in which threads were run.
//
//   a race   two threads, one of which writes; no bar.sync between, and none of bar.warp.sync if they are of one warp.
//            What shfl.sync and mma.sync do is no barrier for memory
//
// Limits:   races on global memory, and between blocks, are not looked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "testing/ptx/program.h"

namespace moraine::testing {

// Bytes at an address that is not necessarily where they lie.
struct PtxBuffer {
  uint64_t address;
  std::vector<uint8_t> data;
  std::vector<uint8_t>
      stored;  // of a byte: the size of the element that a launch stored there; empty: none
};

class PtxMemory {
 public:
  void add(uint64_t address, int64_t bytes);  // zeros
  void remove(uint64_t address);
  // Null unless all of it is in one buffer.
  uint8_t* find(uint64_t address, int64_t bytes);
  uint8_t* find_for_store(uint64_t address, int64_t bytes);  // remembered in `stored`
  // "8 bytes from the begin of a buffer of 40"
  std::string nearest_text(uint64_t address) const;
  std::vector<PtxBuffer>& buffers() { return buffers_; }

 private:
  PtxBuffer* buffer_of(uint64_t address, int64_t bytes);
  std::vector<PtxBuffer> buffers_;  // by address
  size_t last_ = 0;                 // that was found
};

// Who asks.
struct PtxAccess {
  int thread;
  int warp;
  uint32_t warp_epoch;
  int line;
};

class PtxSharedMemory {
 public:
  void begin(const std::vector<PtxSharedVariable>& variables);  // a block: nothing is written
  void barrier() { ++epoch_; }                                  // of the block
  // The bytes, or null and what is wrong.
  const uint8_t* read(uint64_t address, int bytes, const PtxAccess& who, std::string& wrong);
  uint8_t* write(uint64_t address, int bytes, const PtxAccess& who, std::string& wrong);

 private:
  static constexpr int32_t kNobody = -1, kSeveral = -2;
  struct Cell {  // of two bytes
    uint32_t write_epoch = 0, write_warp_epoch = 0;
    uint32_t read_epoch = 0, read_warp_epoch = 0;
    int32_t writer = kNobody, reader = kNobody;  // reader: or kSeveral of reader_warp
    int32_t reader_warp = kNobody;               // or kSeveral
    int32_t write_line = 0, read_line = 0;
  };
  int64_t place(uint64_t address, int bytes, std::string& wrong) const;  // or -1
  bool writer_races(const Cell& c, const PtxAccess& who) const;
  bool reader_races(const Cell& c, const PtxAccess& who) const;
  std::string race_text(uint64_t address, const Cell& c, bool with_writer, bool writes) const;

  const std::vector<PtxSharedVariable>* variables_ = nullptr;
  std::vector<uint8_t> bytes_;
  std::vector<Cell> cells_;
  uint32_t epoch_ = 1;
};

}  // namespace moraine::testing
