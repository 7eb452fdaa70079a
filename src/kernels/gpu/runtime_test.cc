// Runtime: fails if the host can touch the emulated GPU's memory, if a kernel can go past the end of what was taken, if
// a list is overwritten by the next one, or if a machine without a driver is not told so; and where cuda.h is, if a
// prototype of ours is not the header's.
#include "kernels/gpu/runtime.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/gpu/driver_table.h"
#include "kernels/gpu/linear.h"
#include "kernels/gpu/open_device.h"
#include "kernels/gpu/test_same_call.h"
#include "testing/sanitized.h"

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

TEST(GpuRuntime, DevicesHaveNames) {
  for (const char* name : {"cpu", "gpu", "gpu:0", "gpu:17", "emulated:cdna3"})
    EXPECT_TRUE(is_device(name)) << name;
  for (const char* name : {"", "gpu:", "gpu:x", "gpu:-1", "gpu:99999", "gpu1", "emulated:cdna3:1"})
    EXPECT_FALSE(is_device(name)) << name;
  EXPECT_EQ(device_kind("gpu:3"), "gpu");
  EXPECT_EQ(device_kind("emulated:sm_90"), "emulated:sm_90");
  const std::unique_ptr<Gpu> gpu = open_device("emulated:cdna2", 3);
  EXPECT_EQ(gpu->generation(), "cdna2");
  EXPECT_EQ(gpu->number(), -1);
  EXPECT_EQ(gpu->free_bytes(), std::nullopt);
}

// Of a library that plays a vendor's.
TEST(GpuRuntime, AStreamOfAnEmulatedGpuReachesItsMemory) {
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  const float in[3] = {1, 2, 3};
  float out[3] = {};
  const GpuMemory memory(*gpu, sizeof in);
  const auto& stream = *static_cast<const EmulatedStream*>(gpu->stream());
  stream.copy_in(stream.gpu, memory.data(), in, sizeof in);
  stream.copy_out(stream.gpu, out, memory.data(), sizeof out);
  EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
}

// A page that is there is opened and closed by each launch: a cache of which little is used must not be slow.
TEST(GpuRuntime, WhatIsClearedIsZeroAndTakesNoPagesUntilItIsUsed) {
  constexpr int64_t kBytes = (3 << 20) + 40;
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  const std::vector<uint8_t> ones(kBytes, 1);
  const GpuMemory memory(*gpu, ones.data(), kBytes);
  auto* const begin = static_cast<uint8_t*>(memory.data());
  gpu->clear(begin + 5, kBytes - 12);
  auto* const page = reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(begin) / 4096 * 4096);
  std::vector<unsigned char> there((kBytes + 4095) / 4096);
  ASSERT_EQ(mincore(page, kBytes, there.data()), 0);
  EXPECT_LE(std::count_if(there.begin(), there.end(), [](unsigned char t) { return t & 1; }), 2);
  std::vector<uint8_t> out(kBytes), wanted(kBytes, 0);
  for (const int64_t i : {0L, 1L, 2L, 3L, 4L}) wanted[i] = 1;
  for (int64_t i = kBytes - 7; i < kBytes; ++i) wanted[i] = 1;
  gpu->copy_out(out.data(), begin, kBytes);
  EXPECT_TRUE(out == wanted);
}

// `count` lists of random bytes, of 1 byte to the longest.
std::vector<std::vector<uint8_t>> random_lists(size_t count) {
  std::mt19937_64 random(12);
  std::vector<std::vector<uint8_t>> lists(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t longest = kGpuListBytes >> (i % 4);
    lists[i].resize(i == 0 ? longest : 1 + random() % longest);
    for (size_t at = 0; at < lists[i].size(); at += 997)
      lists[i][at] = static_cast<uint8_t>(random());
  }
  return lists;
}

const void* place(Gpu& gpu, const std::vector<uint8_t>& list) {
  return gpu.list(list.data(), static_cast<int64_t>(list.size()));
}

bool is_there(Gpu& gpu, const void* at, const std::vector<uint8_t>& list) {
  std::vector<uint8_t> there(list.size());
  gpu.copy_out(there.data(), at, static_cast<int64_t>(there.size()));
  return there == list;
}

TEST(GpuRuntime, AListStaysForTheNextOneFoundOrNot) {
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  const std::vector<std::vector<uint8_t>> lists = random_lists(48);
  std::mt19937_64 random(13);
  for (int i = 0; i < 100; ++i) {
    const std::vector<uint8_t>&first = lists[random() % lists.size()],
          &second = lists[random() % lists.size()];
    const void *const at = place(*gpu, first), *const next = place(*gpu, second);
    ASSERT_TRUE(is_there(*gpu, at, first)) << i;
    ASSERT_TRUE(is_there(*gpu, next, second)) << i;
    ASSERT_EQ(place(*gpu, second), next) << i;  // found, not copied again
  }
}

TEST(GpuRuntime, AListFoundAtTheOldEndIsNotOverwrittenByTheNext) {
  uint8_t content = 0;
  const auto another = [&](size_t mebibytes) {
    return std::vector<uint8_t>(mebibytes << 20, ++content);
  };
  for (int between = 0; between < 7; ++between) {
    const std::unique_ptr<Gpu> gpu = emulate_gpu({});
    const std::vector<uint8_t> tiles = another(1), pages = another(3);
    place(*gpu, tiles);
    for (int i = 0; i < between; ++i) place(*gpu, another(3));
    const void *const found = place(*gpu, tiles), *const next = place(*gpu, pages);
    EXPECT_TRUE(is_there(*gpu, found, tiles)) << between;
    EXPECT_TRUE(is_there(*gpu, next, pages)) << between;
  }
}

// However many there were: looking is short.
TEST(GpuRuntime, OnlyTheNewestListsAreLookedFor) {
  const std::unique_ptr<Gpu> gpu = emulate_gpu({});
  std::vector<const void*> at;
  const auto list = [](size_t i) {
    return std::vector<uint8_t>{uint8_t(i), uint8_t(i >> 8), uint8_t(7)};
  };
  for (size_t i = 0; i <= kListsFound; ++i) at.push_back(place(*gpu, list(i)));
  EXPECT_EQ(place(*gpu, list(1)), at[1]);
  const void* const again = place(*gpu, list(0));
  EXPECT_NE(again, at[0]);
  EXPECT_TRUE(is_there(*gpu, again, list(0)));
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
  const PackArgs args = {
      .packed = packed.data(), .w = w.as<float>(), .groups = 1, .n = 1, .k = count};
  gpu->launch("pack_f32", {.blocks_x = 1, .blocks_y = 1, .threads = kPackThreads}, &args);
}

// A fault of the processor has no message, but a sanitizer's, which ends the process in its own way.
bool faults(int status) {
  return kSanitized || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
constexpr const char* kFaultText = kSanitized ? "SEGV" : "";

TEST(GpuRuntimeDeathTest, TheHostFaultsOnTheMemoryOfAGpu) {
  EXPECT_EXIT(touch_from_the_host(), faults, kFaultText);
}

TEST(GpuRuntimeDeathTest, AKernelFaultsPastTheEndOfWhatWasTaken) {
  pack_into_four(4);
  EXPECT_EXIT(pack_into_four(5), faults, kFaultText);
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
       {"no driver is on this machine", "libcuda.so.1", "libamdhip64.so", "; use --device cpu"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(GpuRuntime, ALibraryThatLacksAnEntryIsRefusedByIt) {
  std::string why;
  EXPECT_FALSE(load_driver({"a vendor", "libc.so.6", false}, why));
  EXPECT_EQ(why, "a vendor: libc.so.6 has no cuInit");
}

#ifdef CUDA_VERSION
#define MR_SAME_CALL(entry, theirs) \
  static_assert(SameCall<decltype(DriverTable::entry), decltype(&theirs)>::value, #theirs)
MR_SAME_CALL(init, cuInit);
MR_SAME_CALL(device_count, cuDeviceGetCount);
MR_SAME_CALL(device, cuDeviceGet);
MR_SAME_CALL(device_name, cuDeviceGetName);
MR_SAME_CALL(device_attribute, cuDeviceGetAttribute);
MR_SAME_CALL(retain_context, cuDevicePrimaryCtxRetain);
MR_SAME_CALL(use_context, cuCtxSetCurrent);
MR_SAME_CALL(load_module, cuModuleLoadData);
MR_SAME_CALL(find_function, cuModuleGetFunction);
MR_SAME_CALL(launch, cuLaunchKernel);
MR_SAME_CALL(memory_info, cuMemGetInfo);
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
MR_SAME_CALL(wait_event, cuEventSynchronize);
MR_SAME_CALL(event_ms, cuEventElapsedTime);
MR_SAME_CALL(error_name, cuGetErrorName);
#endif

}  // namespace
}  // namespace moraine::gpu
