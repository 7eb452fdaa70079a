// GpuArenaMemory: takes whole words, and zeroes them.
#include "kernels/gpu/gpu_arena_memory.h"

#include <cstring>

namespace moraine::gpu {

void* GpuArenaMemory::take(int64_t bytes) {
  const int64_t words = (bytes + 7) / 8;
  void* const memory = gpu_.take(words * 8);
  gpu_.clear(memory, words * 8);
  return memory;
}

void* GpuArenaMemory::take_pinned(int64_t bytes) {
  void* const memory = gpu_.take_pinned(bytes);
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return memory;
}

}  // namespace moraine::gpu
