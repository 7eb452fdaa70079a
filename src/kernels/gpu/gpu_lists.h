// GpuLists: short lists that the host makes for kernels, kept in a GPU's memory for who asks for the same again.
//
// Segments, pages and row bounds are the same for all layers of a pass: the first layer copies them in, the others find
// them by their content. A ring of 16 MiB, four times the longest list, holds the last ones. What was found stays at
// least for the next list, so a kernel may take two; what is overwritten was read by kernels that come before in the
// GPU's order of work. Only the newest kListsFound are looked for: a server's steps never end, and what they have in
// common is young.
//
// Errors:   kDevice for a list that is longer than kGpuListBytes.
// Cost:     a comparison with the lists of the same size; a copy for a new one, and for one in the older half.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace moraine::gpu {

class Gpu;

constexpr int64_t kGpuListBytes = int64_t{4} << 20;  // of the longest list
constexpr size_t kListsFound = 256;                  // several times those of a pass

class GpuLists {
 public:
  // Where it is; null for no bytes. The ring is taken with the first list, and is the GPU's until its end.
  const void* place(Gpu& gpu, const void* host, int64_t bytes);

 private:
  struct Placed {
    int64_t begin;  // in the ring
    std::vector<uint8_t> bytes;
  };
  uint8_t* ring_ = nullptr;
  int64_t end_ = 0;           // where the next one goes
  std::deque<Placed> lists_;  // oldest first
};

}  // namespace moraine::gpu
