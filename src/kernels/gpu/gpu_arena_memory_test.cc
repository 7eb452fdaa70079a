// An arena of a GPU's memory: fails if what is the host's is counted as the device's, or if a device that is full is
// not said with the buffer's name and what fitted before it.
#include "kernels/gpu/gpu_arena_memory.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tensor/arena.h"

namespace moraine::gpu {
namespace {

TEST(GpuArenaMemory, IsToldApartFromTheHosts) {
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  GpuArenaMemory memory(*gpu);
  Arena arena(Arena::Mode::kReal, &memory), host(Arena::Mode::kReal);
  EXPECT_TRUE(gpu->holds(arena.take("x", "scratch", DType::kF32, {25}).data));
  EXPECT_FALSE(gpu->holds(arena.take_host("y", "scratch", DType::kF32, {7}).data));
  EXPECT_EQ(arena.bytes(), 128);
  EXPECT_EQ(arena.device_bytes(), 100);
  EXPECT_NE(memory_table(arena).find("in the device's memory"), std::string::npos);
  host.take_host("y", "scratch", DType::kF32, {7});
  EXPECT_EQ(host.device_bytes(), 0);
  EXPECT_EQ(memory_table(host).find("in the device's memory"), std::string::npos);
}

class SmallMemory final : public DeviceMemory {
 public:
  void* take(int64_t bytes) override {
    if (bytes > 100) throw_error(Code::kDevice, "out of memory");
    return &some_;
  }
  void give_back(void*) override {}
  void* take_pinned(int64_t) override { return &some_; }
  void give_back_pinned(void*) override {}

 private:
  int some_ = 0;
};

TEST(GpuArenaMemory, SaysWhatDidNotFit) {
  SmallMemory memory;
  Arena arena(Arena::Mode::kReal, &memory);
  arena.take("weights", "weights", DType::kF32, {25});
  try {
    arena.take("cache.k", "cache", DType::kF32, {26});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kDevice);
    EXPECT_EQ(std::string(e.what()),
              "take memory for cache.k: 104 bytes, after 100 that were to be had: out of memory; "
              "`moraine plan memory` prints what this needs");
  }
}

}  // namespace
}  // namespace moraine::gpu
