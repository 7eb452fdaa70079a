// VendorGpu on a table whose entries are an emulated GPU: copies happen late there, as a stream's do.
//
// Fails if what was copied in is read after the host has changed it, if a full ring of pinned memory is written before
// the stream has read it, if an image for another device is used, if a driver's error is not named, if memory is not
// given back, if a thread's context is another device's, or if a device is not the one that was asked for.
#include "kernels/gpu/vendor_gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "kernels/gpu/elementwise.h"
#include "tensor/tensor.h"

namespace moraine::gpu {
namespace {

// What the driver's functions find, as they have no argument of ours. One test at a time.
struct StandIn {
  std::unique_ptr<Gpu> gpu = emulate_gpu({.wave = 32, .rule = MatrixRule::kSm80});
  std::vector<std::function<void()>> late;  // copies that the stream has not come to
  std::string takes = "the second";         // the image that the device can run
  std::set<std::string> names;              // of functions that were found
  int modules = 0, pinned = 0, waits = 0;
  int64_t room = INT64_MAX;  // of the device
  int devices = 3;
  std::map<std::thread::id, std::vector<int>>
      contexts;                  // what threads made theirs, device by device
  std::vector<size_t> recorded;  // copies before each event; event i + 1
  int switches = 0;
};
StandIn* stand_in = nullptr;

// Of the calling thread; -1: none.
int device_here() {
  const auto found = stand_in->contexts.find(std::this_thread::get_id());
  return found == stand_in->contexts.end() ? -1 : found->second.back();
}

enum StandInError : int { kNoRoom = 2, kNoBinary = 209, kNotFound = 500 };

void reach_the_end() {
  for (const auto& copy : stand_in->late) copy();
  stand_in->late.clear();
}

void fill_device(DriverTable& t) {
  t.init = [](unsigned) { return 0; };
  t.device_count = [](int* count) { return *count = stand_in->devices, 0; };
  t.device = [](int* device, int index) { return *device = 10 + index, 0; };
  t.device_attribute = [](int* value, int attribute, int device) {
    EXPECT_EQ(device, 10);
    return *value = attribute == 75 ? 9 : 0, 0;
  };
  t.device_name = [](char* name, int bytes, int) {
    std::strncpy(name, "stand-in", static_cast<size_t>(bytes));
    return 0;
  };
  t.retain_context = [](void** context, int device) {
    return *context = reinterpret_cast<void*>(intptr_t{device}), 0;
  };
  t.use_context = [](void* context) {
    const auto device = static_cast<int>(reinterpret_cast<intptr_t>(context)) - 10;
    stand_in->contexts[std::this_thread::get_id()].push_back(device);
    return ++stand_in->switches, 0;
  };
  t.load_module = [](void** module, const void* image) {
    if (stand_in->takes != static_cast<const char*>(image)) return int{kNoBinary};
    *module = stand_in;
    ++stand_in->modules;
    return 0;
  };
  t.find_function = [](void** function, void* module, const char* name) {
    EXPECT_EQ(module, stand_in);
    if (std::string(name) == "no_such") return int{kNotFound};
    *function = const_cast<char*>(stand_in->names.insert(name).first->c_str());
    return 0;
  };
  t.launch = [](void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                unsigned, unsigned, void*, void** arguments, void**) {
    EXPECT_EQ(z, 1u);
    reach_the_end();
    stand_in->gpu->launch(static_cast<const char*>(function),
                          {.blocks_x = x, .blocks_y = y, .threads = static_cast<int>(threads)},
                          arguments[0]);
    return 0;
  };
}

void fill_memory(DriverTable& t) {
  t.memory_info = [](size_t* free, size_t* all) { return *free = 1000, *all = 2000, 0; };
  t.take = [](void** memory, size_t bytes) {
    EXPECT_GE(device_here(), 0);
    if (static_cast<int64_t>(bytes) > stand_in->room) return int{kNoRoom};
    *memory = stand_in->gpu->take(static_cast<int64_t>(bytes));
    return 0;
  };
  t.give_back = [](void* memory) {
    reach_the_end();
    stand_in->gpu->give_back(memory);
    return 0;
  };
  t.take_pinned = [](void** memory, size_t bytes, unsigned) {
    ++stand_in->pinned;
    *memory = new char[bytes];
    return 0;
  };
  t.give_back_pinned = [](void* memory) {
    --stand_in->pinned;
    delete[] static_cast<char*>(memory);
    return 0;
  };
  t.copy_in = [](void* device, const void* host, size_t bytes, void*) {
    stand_in->late.push_back(
        [=] { stand_in->gpu->copy_in(device, host, static_cast<int64_t>(bytes)); });
    return 0;
  };
  t.copy_out = [](void* host, const void* device, size_t bytes, void*) {
    stand_in->late.push_back(
        [=] { stand_in->gpu->copy_out(host, device, static_cast<int64_t>(bytes)); });
    return 0;
  };
}

DriverTable stand_in_table() {
  DriverTable t = {};
  fill_device(t);
  fill_memory(t);
  t.make_stream = [](void** stream, unsigned) { return *stream = stand_in, 0; };
  t.make_event = [](void** event, unsigned) {
    stand_in->recorded.push_back(0);
    return *event = reinterpret_cast<void*>(stand_in->recorded.size()), 0;
  };
  t.record_event = [](void* event, void* stream) {
    EXPECT_EQ(stream, stand_in);
    stand_in->recorded[reinterpret_cast<uintptr_t>(event) - 1] = stand_in->late.size();
    return 0;
  };
  t.wait_event = [](void* event) {
    const size_t copies = stand_in->recorded[reinterpret_cast<uintptr_t>(event) - 1];
    for (size_t i = 0; i < copies; ++i) std::exchange(stand_in->late[i], [] {})();
    return 0;
  };
  t.wait_stream = [](void*) {
    reach_the_end();
    ++stand_in->waits;
    return 0;
  };
  t.error_name = [](int error, const char** name) {
    *name = error == kNoRoom ? "NO_ROOM" : error == kNoBinary ? "NO_BINARY" : "NOT_FOUND";
    return 0;
  };
  return t;
}

class VendorGpuTest : public ::testing::Test {
 protected:
  VendorGpuTest() { stand_in = &driver; }
  ~VendorGpuTest() override { stand_in = nullptr; }

  std::unique_ptr<Gpu> open(bool second = false) const {
    return make_vendor_gpu({"Vendor", "none", second}, stand_in_table(), images);
  }
  std::unique_ptr<Gpu> open_number(int number) const {
    return make_vendor_gpu({"Vendor", "none", false}, stand_in_table(), images, number);
  }
  static std::string error_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kDevice);
      return error.what();
    }
    return "";
  }

  StandIn driver;
  const std::vector<KernelImage> images = {{"sm_90", false, "the first", 9},
                                           {"sm_80", false, "the second", 10}};
};

TEST_F(VendorGpuTest, WhatIsCopiedInIsWhatTheHostHadThen) {
  const std::unique_ptr<Gpu> gpu = open();
  EXPECT_EQ(gpu->name(), "Vendor stand-in");
  const GpuMemory a(*gpu, 16), b(*gpu, 16);
  float host[4] = {1, 2, 3, 4};
  gpu->copy_in(a.data(), host, sizeof host);
  for (float& v : host) v = 10;
  gpu->copy_in(b.data(), host, sizeof host);
  for (float& v : host) v = 1000;
  EXPECT_EQ(driver.waits, 0);
  add_into(*gpu, make_tensor(a.data(), DType::kF32, {4}), make_tensor(b.data(), DType::kF32, {4}));
  gpu->copy_out(host, a.data(), sizeof host);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(host[i], static_cast<float>(11 + i));
  EXPECT_TRUE(gpu->holds(a.as<char>() + 15));
  EXPECT_FALSE(gpu->holds(host));
}

TEST_F(VendorGpuTest, MoreThanTheRingOfPinnedMemoryArrivesWhole) {
  const std::unique_ptr<Gpu> gpu = open();
  const std::vector<int64_t> sizes = {kPinnedBytes - 100, 90, 64, kPinnedBytes + 12345,
                                      kPinnedBytes / 2};
  int64_t all = 0;
  for (const int64_t size : sizes) all += size;
  std::vector<uint8_t> from(static_cast<size_t>(all)), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  const GpuMemory memory(*gpu, all);
  int64_t at = 0;
  for (const int64_t size : sizes) {
    gpu->copy_in(memory.as<uint8_t>() + at, from.data() + at, size);
    at += size;
  }
  gpu->copy_out(to.data(), memory.data(), all);
  EXPECT_TRUE(from == to);
}

TEST_F(VendorGpuTest, TheFirstImageThatTheDeviceTakesIsLoadedOnce) {
  {
    const std::unique_ptr<Gpu> gpu = open();
    const GpuMemory memory(*gpu, 64);
    EXPECT_EQ(driver.modules, 0);
    for (int i = 0; i < 3; ++i) gpu->clear(memory.data(), 64);
    EXPECT_EQ(driver.modules, 1);
    EXPECT_EQ(driver.names.size(), 1u);
  }
  EXPECT_EQ(driver.pinned, 0);
}

TEST_F(VendorGpuTest, WhatADriverRefusesIsNamed) {
  const std::unique_ptr<Gpu> gpu = open();
  const Grid grid = {.blocks_x = 1, .threads = 32};
  driver.takes = "another";
  EXPECT_EQ(error_of([&] { gpu->launch("zero_elements", grid, nullptr); }),
            "Vendor stand-in: the kernels in this program are for other devices (sm_90: NO_BINARY, "
            "sm_80: NO_BINARY)");
  driver.takes = "the first";
  EXPECT_EQ(error_of([&] { gpu->launch("no_such", grid, nullptr); }),
            "Vendor driver: no_such: NOT_FOUND");
  driver.room = 100;
  EXPECT_EQ(error_of([&] { gpu->take(101); }), "Vendor driver: 101 bytes: NO_ROOM");
  const std::string none = error_of([&] { open(true)->launch("zero_elements", grid, nullptr); });
  EXPECT_NE(none.find("-DMORAINE_GPU_KERNELS=ON"), std::string::npos) << none;
}

TEST_F(VendorGpuTest, WhatIsCopiedOutToPinnedMemoryIsThereBehindItsMark) {
  const std::unique_ptr<Gpu> gpu = open();
  const float in[4] = {1, 2, 3, 4};
  const GpuMemory memory(*gpu, in, sizeof in);
  auto* const pinned = static_cast<float*>(gpu->take_pinned(2 * sizeof in));
  std::fill(pinned, pinned + 8, 0.0f);
  gpu->copy_out_pinned(pinned, memory.data(), sizeof in);
  const int64_t first = gpu->mark();
  gpu->copy_out_pinned(pinned + 4, memory.data(), sizeof in);
  const int64_t second = gpu->mark();
  EXPECT_EQ(pinned[0], 0);
  gpu->wait_for(first);
  EXPECT_EQ(pinned[3], 4);
  EXPECT_EQ(pinned[7], 0);
  gpu->wait_for(second);
  EXPECT_EQ(pinned[7], 4);
  pinned[0] = 5;
  gpu->copy_in_pinned(memory.data(), pinned, sizeof in);
  pinned[0] = 6;  // too early
  float out[4];
  gpu->copy_out(out, memory.data(), sizeof out);
  EXPECT_EQ(out[0], 6);
  for (int i = 0; i < 200; ++i) gpu->wait_for(gpu->mark());
  EXPECT_LE(driver.recorded.size(), 64u);
  gpu->give_back_pinned(pinned);
  EXPECT_EQ(gpu->stream(), &driver);
}

TEST_F(VendorGpuTest, AnyThreadGoesOnWithADevicesWork) {
  const std::unique_ptr<Gpu> one = open_number(1), two = open_number(2);
  const float in[4] = {1, 2, 3, 4};
  float out[4] = {};
  const GpuMemory memory(*two, 16);
  const auto use = [&](Gpu& gpu, int device) {
    gpu.copy_in(memory.data(), in, sizeof in);
    EXPECT_EQ(device_here(), device);
    gpu.copy_out(out, memory.data(), sizeof out);
    EXPECT_EQ(out[3], 4);
  };
  std::thread([&] {
    EXPECT_EQ(device_here(), -1);
    use(*two, 2);
    use(*one, 1);
    const int before = driver.switches;
    use(*one, 1);
    EXPECT_EQ(driver.switches, before);  // nothing to change
  }).join();
  use(*two, 2);
  std::thread([&] {
    two->wait_for(two->mark());
    EXPECT_EQ(device_here(), 2);
  }).join();
  std::thread([&] {
    two->give_back(two->take(16));
    EXPECT_EQ(device_here(), 2);
  }).join();
}

TEST_F(VendorGpuTest, ADeviceHasItsNumberGenerationAndMemory) {
  const std::unique_ptr<Gpu> gpu = open_number(2);
  EXPECT_EQ(gpu->number(), 2);
  EXPECT_EQ(device_here(), 2);
  EXPECT_EQ(gpu->free_bytes(), 1000);
  EXPECT_EQ(open()->generation(), "sm_90");
  EXPECT_EQ(error_of([&] { open_number(3); }),
            "Vendor driver: device 3: there are 3; wanted gpu:0 to gpu:2");
  driver.devices = 0;
  EXPECT_EQ(error_of([&] { open(); }),
            "Vendor driver: no device: it counts none; use --device cpu");
  // AMD's is that of the image that the device takes.
  driver.devices = 1;
  const std::vector<KernelImage> amd = {{"gfx942", true, "the first", 9},
                                        {"gfx90a", true, "the second", 10}};
  EXPECT_EQ(make_vendor_gpu({"Vendor", "none", true}, stand_in_table(), amd)->generation(),
            "cdna2");
}

TEST_F(VendorGpuTest, KernelsInThisProgramAreNamed) {
  const std::string text = kernel_images_text();
  if (kernel_images().empty()) {
    EXPECT_NE(text.find("none in this program"), std::string::npos);
    return;
  }
  EXPECT_EQ(text, "sm_90, sm_80, gfx942, gfx90a");
  for (const KernelImage& image : kernel_images()) {
    const std::string_view bytes(static_cast<const char*>(image.data), image.bytes);
    // Every kernel is in every image, by name.
    for (const char* kernel : {"zero_elements", "linear_bf16", "attention_dkv_128"})
      EXPECT_NE(bytes.find(kernel), std::string_view::npos) << image.target << " " << kernel;
    if (!image.amd) {
      EXPECT_EQ(static_cast<const char*>(image.data)[image.bytes], '\0');
    }
  }
}

}  // namespace
}  // namespace moraine::gpu
