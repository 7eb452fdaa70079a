// DeviceMemory: memory that is not the host's, for an arena that takes it from there.
#pragma once

#include <cstdint>

namespace moraine {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* take(int64_t bytes) = 0;  // zeroed, aligned to 16 bytes at least
  virtual void give_back(void* memory) = 0;
  // Of the host, where the device copies from and to without help: zeroed.
  virtual void* take_pinned(int64_t bytes) = 0;
  virtual void give_back_pinned(void* memory) = 0;
};

}  // namespace moraine
