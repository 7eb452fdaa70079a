// GpuArenaMemory: a GPU's memory for an arena.
#pragma once

#include "kernels/gpu/runtime.h"
#include "tensor/device_memory.h"

namespace moraine::gpu {

class GpuArenaMemory final : public DeviceMemory {
 public:
  explicit GpuArenaMemory(Gpu& gpu) : gpu_(gpu) {}

  void* take(int64_t bytes) override;  // zeroed
  void give_back(void* memory) override { gpu_.give_back(memory); }
  void* take_pinned(int64_t bytes) override;  // zeroed
  void give_back_pinned(void* memory) override { gpu_.give_back_pinned(memory); }

 private:
  Gpu& gpu_;
};

}  // namespace moraine::gpu
