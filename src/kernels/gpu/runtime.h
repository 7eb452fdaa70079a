// Runtime: a GPU as its kernels need it: memory, copies, kernels by name, and one order in which all of it happens.
//
//   open_gpu(n)       device n of NVIDIA's driver, or of AMD's: whichever library is on this machine. Nothing of a
//                     vendor is needed to build or to start (driver_table.h)
//   emulate_gpu(e)    a CPU that plays one (emulate.h). Its memory can be touched by kernels and copies alone: the host
//                     faults on it, and so does a kernel that goes past the end of what was taken
//
// Work is done in the order of the calls. launch() may return before it is done; copy_out and wait do not. Copies from
// and to pinned memory of the host go on by themselves as well: mark() is the place in the order behind what was asked
// for so far, and wait_for(mark) returns when all before it is done.
//
// Errors:   kDevice: no driver, no device, no kernel of a name, out of memory, whatever a kernel did wrong. A fault of
//           a launch may be reported by any later call, at the latest by wait().
// Threads:  any, one at a time; wait_for beside any other call.
// State:    NVIDIA's driver was called with an H100 behind it, AMD's never with a device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/gpu/emulate.h"
#include "kernels/gpu/gpu_lists.h"

namespace moraine::gpu {

// What the program says of them.
constexpr const char kKernelsState[] = "run on an H100; for other devices compiled and emulated";

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual std::string name() const = 0;  // "emulated sm_80, wave 32", or what the driver says
  virtual int wave() const = 0;          // 32 or 64
  // Whose bits it has: "cdna3", "sm_90". Errors: kDevice: no kernels for it are in this program.
  virtual std::string generation() { return name(); }
  virtual int number() const {
    return -1;
  }  // of the host's devices; -1: a CPU's, one for each who opens it
  // Of its own memory, as things are; nothing: it is the host's.
  virtual std::optional<int64_t> free_bytes() { return std::nullopt; }
  // The order of work, for libraries of the vendor that put theirs into it: a CUstream or hipStream_t. Of an emulated
  // GPU an EmulatedStream.
  virtual void* stream() { return nullptr; }

  virtual void* take(int64_t bytes) = 0;  // aligned to 16 bytes at least; not cleared
  virtual void give_back(void* memory) = 0;
  virtual bool holds(const void* memory) const = 0;  // whether it is of something that was taken
  // `host` may change when it returns.
  virtual void copy_in(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, int64_t bytes) = 0;
  // Memory of the host where copies need no copy of their own: it is not to change, or not to be read, before they are
  // done. Here, and where it is emulated, they are when they return.
  virtual void* take_pinned(int64_t bytes);  // not cleared
  virtual void give_back_pinned(void* memory);
  virtual void copy_in_pinned(void* device, const void* pinned, int64_t bytes) {
    copy_in(device, pinned, bytes);
  }
  virtual void copy_out_pinned(void* pinned, const void* device, int64_t bytes) {
    copy_out(pinned, device, bytes);
  }
  virtual int64_t mark() { return 0; }
  virtual void wait_for(int64_t /*mark*/) {}
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

// What a library that plays a vendor's is given for a stream: how to reach the memory of an emulated GPU.
struct EmulatedStream {
  void* gpu;
  void (*copy_in)(void* gpu, void* device, const void* host, int64_t bytes);
  void (*copy_out)(void* gpu, void* host, const void* device, int64_t bytes);
};

// How the messages end that say that nothing is there.
inline constexpr const char kWithoutGpu[] = "; use --device cpu";

// Errors: kDevice: no driver, or no such device; how many there are.
std::unique_ptr<Gpu> open_gpu(int number = 0);
// That of one of several ranks of this host: they take turns, rank r device r modulo the number of devices.
std::unique_ptr<Gpu> open_gpu_of_rank(int rank_of_host);
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
