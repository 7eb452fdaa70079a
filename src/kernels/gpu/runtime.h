// Runtime: a GPU as its kernels need it: memory, copies, kernels by name, and one order in which all of it happens.
//
//   open_gpu()        the first device of NVIDIA's driver, or of AMD's: whichever library is on this machine. Nothing
//                     of a vendor is needed to build or to start (driver_table.h)
//   emulate_gpu(e)    a CPU that plays one (emulate.h). Its memory can be touched by kernels and copies alone: the host
//                     faults on it, and so does a kernel that goes past the end of what was taken
//
// Work is done in the order of the calls. launch() may return before it is done; copy_out and wait do not.
//
// Errors:   kDevice: no driver, no device, no kernel of a name, out of memory, whatever a kernel did wrong. A fault of
//           a launch may be reported by any later call, at the latest by wait().
// Threads:  one at a time.
// State:    compiled and emulated; the vendors' drivers were never called with a device behind them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/gpu/emulate.h"
#include "kernels/gpu/gpu_lists.h"

namespace moraine::gpu {

// What the program says of them.
constexpr const char kKernelsState[] = "compiled and emulated, never run on hardware";

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual std::string name() const = 0;  // "emulated sm_80, wave 32", or what the driver says
  virtual int wave() const = 0;          // 32 or 64

  virtual void* take(int64_t bytes) = 0;  // aligned to 16 bytes at least; not cleared
  virtual void give_back(void* memory) = 0;
  virtual bool holds(const void* memory) const = 0;  // whether it is of something that was taken
  // `host` may change when it returns.
  virtual void copy_in(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, int64_t bytes) = 0;
  virtual void clear(void* device, int64_t bytes) = 0;  // to zeros; whole words of 8 bytes
  // `arguments`: the kernel's struct, copied.
  virtual void launch(const char* kernel, const Grid& grid, const void* arguments) = 0;
  virtual void wait() = 0;

  // A short list that the host made for a kernel, in the GPU's memory: where it is already if it was asked for not
  // long ago, so what the layers of a pass have in common is copied once (gpu_lists.h). Null for no bytes.
  const void* list(const void* host, int64_t bytes) { return lists_.place(*this, host, bytes); }

 private:
  GpuLists lists_;
};

std::unique_ptr<Gpu> open_gpu();
std::unique_ptr<Gpu> emulate_gpu(const Emulation& emulation);

// Memory that goes back by itself; empty for 0 bytes.
class GpuMemory {
 public:
  GpuMemory(Gpu& gpu, int64_t bytes) : gpu_(gpu), data_(bytes > 0 ? gpu.take(bytes) : nullptr) {}
  GpuMemory(Gpu& gpu, const void* host, int64_t bytes) : GpuMemory(gpu, bytes) {
    if (bytes > 0) gpu.copy_in(data_, host, bytes);
  }
  ~GpuMemory() {
    if (data_ != nullptr) gpu_.give_back(data_);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Gpu& gpu_;
  void* const data_;
};

}  // namespace moraine::gpu
