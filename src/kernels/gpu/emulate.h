// Emulate: runs a kernel of kernels/gpu on a CPU, one fiber per thread, and watches what hardware would not say.
//
//   Blocks run one after the other. A thread runs until it meets others: at a barrier of the block, or at an
//   operation of its wave. Who goes first is the order: ascending, descending, or drawn anew in every round from a
//   seed. Threads meet at one line of source. Shared memory holds 0xff (NaN in every float type) until it is written.
//
//   found                                       said
//   two threads touch an element of shared      "race on shared p[17]: thread 3 wrote at a.cu:12, thread 40 reads at
//   memory, one writes, and no barrier of the   a.cu:15, and no barrier is between": whatever the order
//   block or of their wave is between
//   an index outside a shared array             "shared p[64] of 64: thread 3 reads at a.cu:15"
//   an element whose copy nobody waited for     rubbish, so a wrong result; read before a barrier it is a race
//   an element that nobody wrote                "shared p[5] was never written: thread 3 reads at a.cu:15"
//   threads that wait at different lines,       "threads do not meet: 0 waits for the block at a.cu:10, 5 has ended"
//   or for one that has ended
//   shared arrays of more than kSharedBytes     "shared p at a.cu:9: 49168 bytes in all, at most 49152"
//
// Not seen: other blocks at the same time, memory order between blocks, speed, what a compiler or a driver does wrong.
//
// Errors:   kDevice, with the kernel's name and the above. The block is given up where it stands.
// Order:    the same result for the same order and seed; a kernel without a fault has one result in all of them.
// Threads:  any; a launch runs on the thread that calls.
// Cost:     a switch for each thread that meets; shared memory some 3 ns an access.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/gpu/matrix_rules.h"

namespace moraine::gpu {

enum class ThreadOrder : uint8_t { kAscending, kDescending, kRandom };

struct Emulation {
  int wave = 32;  // 32 or 64: which compilation of the kernel it is
  ThreadOrder order = ThreadOrder::kAscending;
  uint64_t seed = 0;                     // of kRandom
  MatrixRule rule = MatrixRule::kPlain;  // how tiles are multiplied
};

constexpr int64_t kSharedBytes =
    48 * 1024;                     // of a block: what every target gives without being asked
constexpr int kMaxThreads = 1024;  // of a block

struct Grid {
  int64_t blocks_x = 0, blocks_y = 1;
  int threads = 0;  // of a block, a multiple of the wave
};

using EmulatedKernel = void (*)(const void* arguments);
struct EmulatedEntry {
  const char* name;
  EmulatedKernel run;
};

void emulate(const Emulation& emulation, const EmulatedEntry& kernel, const Grid& grid,
             const void* arguments);

// ------------------------------------------------- what a running thread calls, through device_emulated.h

struct SourceLine {
  const char* file;
  int line;
  static constexpr SourceLine here(const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE()) {
    return {file, line};
  }
};

struct EmulatedThread {
  int thread;  // of the block
  int64_t block_x, block_y;
};
const EmulatedThread& emulated_thread();
const Emulation& current_emulation();

void meet_block(const SourceLine& at);

// Runs `together(lanes, count)` when all lanes of the wave are at `at`; lanes[i] is what lane i gave as `mine`.
using WaveOperation = void (*)(void** lanes, int count);
void meet_wave(WaveOperation together, void* mine, const SourceLine& at);

// An array of the block: the memory, and what is known of each element.
class SharedArray;
SharedArray* declare_shared(const char* name, int64_t count, int64_t element_bytes,
                            const SourceLine& at);
// The element's memory; the access is checked and remembered.
void* read_shared(SharedArray* array, int64_t index, const SourceLine& at);
void* write_shared(SharedArray* array, int64_t index, const SourceLine& at);
// The element is rubbish until the thread waits for the group that the copy is of; then it is what lies at `from`, or
// zeros for null. Both moments are a write of it.
void copy_shared_later(SharedArray* array, int64_t index, const void* from, const SourceLine& at);
void commit_shared_copies();
void wait_shared_copies(int later_groups);  // for all groups but the last so many

}  // namespace moraine::gpu
