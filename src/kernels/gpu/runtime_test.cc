// Runtime: fails if the host can touch the emulated GPU's memory, if a kernel can go past the end of what was taken, or
// if a machine without a driver is not told so; and where cuda.h is, if a prototype of ours is not the header's.
#include "kernels/gpu/runtime.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/gpu/driver_table.h"
#include "kernels/gpu/linear.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#elif __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
#endif

namespace moraine::gpu {
namespace {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDevice);
    return error.what();
  }
  return "";
}

TEST(GpuRuntime, WhatIsCopiedInComesOut) {
  const std::unique_ptr<Gpu> gpu = emulate_gpu({.wave = 64, .rule = MatrixRule::kCdna3});
  EXPECT_EQ(gpu->name(), "emulated cdna3, wave 64");
  const float in[3] = {1, 2, 3};
  float out[3] = {};
  const GpuMemory memory(*gpu, in, sizeof in), other(*gpu, 5);
  gpu->copy_out(out, memory.data(), sizeof out);
  gpu->wait();
  EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
}

void touch_from_the_host() {
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  const float in[3] = {1, 2, 3};
  const GpuMemory memory(*gpu, in, sizeof in);
  *static_cast<volatile float*>(memory.data()) = 1;
}

// Writes `count` floats where 4 were taken.
void pack_into_four(int64_t count) {
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  const std::vector<float> in(static_cast<size_t>(count), 1.0f);
  const GpuMemory w(*gpu, in.data(), count * 4), packed(*gpu, 16);
  const PackArgs args = {.packed = packed.data(),
                         .w = w.as<float>(),
                         .groups = 1,
                         .n = 1,
                         .k = count,
                         .transpose = false};
  gpu->launch("pack_f32", {.blocks_x = 1, .blocks_y = 1, .threads = kPackThreads}, &args);
}

TEST(GpuRuntimeDeathTest, TheHostFaultsOnTheMemoryOfAGpu) {
  EXPECT_DEATH(touch_from_the_host(), "");
}

TEST(GpuRuntimeDeathTest, AKernelFaultsPastTheEndOfWhatWasTaken) {
  pack_into_four(4);
  EXPECT_DEATH(pack_into_four(5), "");
}

TEST(GpuRuntime, AKernelThatIsNotThereIsNamed) {
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  EXPECT_EQ(error_of([&] { gpu->launch("no_such", {.blocks_x = 1, .threads = 32}, nullptr); }),
            "emulated plain, wave 32: no kernel no_such");
}

TEST(GpuRuntime, AMachineWithoutADriverSaysWhatWasLookedFor) {
  std::string why;
  if (load_driver(kNvidiaDriver, why) || load_driver(kAmdDriver, why)) {
    GTEST_SKIP() << "skipped: this machine has a driver";
  }
  const std::string message = error_of([] { open_gpu(); });
  for (const char* part :
       {"no driver is on this machine", "libcuda.so.1", "libamdhip64.so", "runs on the CPU"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(GpuRuntime, ALibraryThatLacksAnEntryIsRefusedByIt) {
  std::string why;
  EXPECT_FALSE(load_driver({"a vendor", "libc.so.6", false}, why));
  EXPECT_EQ(why, "a vendor: libc.so.6 has no cuInit");
}

#ifdef CUDA_VERSION
// As many arguments of the same sizes, and a result of one size.
template <class Ours, class Theirs>
struct SameCall;
template <class R, class... A, class S, class... B>
struct SameCall<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    return sizeof(R) == sizeof(S) && std::array{sizeof(A)...} == std::array{sizeof(B)...};
  }();
};
#define MR_SAME_CALL(entry, theirs) \
  static_assert(SameCall<decltype(DriverTable::entry), decltype(&theirs)>::value, #theirs)
MR_SAME_CALL(init, cuInit);
MR_SAME_CALL(device, cuDeviceGet);
MR_SAME_CALL(device_name, cuDeviceGetName);
MR_SAME_CALL(retain_context, cuDevicePrimaryCtxRetain);
MR_SAME_CALL(use_context, cuCtxSetCurrent);
MR_SAME_CALL(load_module, cuModuleLoadData);
MR_SAME_CALL(find_function, cuModuleGetFunction);
MR_SAME_CALL(launch, cuLaunchKernel);
MR_SAME_CALL(take, cuMemAlloc);
MR_SAME_CALL(give_back, cuMemFree);
MR_SAME_CALL(take_pinned, cuMemHostAlloc);
MR_SAME_CALL(give_back_pinned, cuMemFreeHost);
MR_SAME_CALL(copy_in, cuMemcpyHtoDAsync);
MR_SAME_CALL(copy_out, cuMemcpyDtoHAsync);
MR_SAME_CALL(make_stream, cuStreamCreate);
MR_SAME_CALL(wait_stream, cuStreamSynchronize);
MR_SAME_CALL(make_event, cuEventCreate);
MR_SAME_CALL(record_event, cuEventRecord);
MR_SAME_CALL(event_ms, cuEventElapsedTime);
MR_SAME_CALL(error_name, cuGetErrorName);
#endif

}  // namespace
}  // namespace moraine::gpu
