// VendorGpu: one device, one stream, one module.
#include "kernels/gpu/vendor_gpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "kernels/gpu/elementwise.h"
#include "tensor/tensor.h"

namespace moraine::gpu {
namespace {

// Of both drivers: the image, its code or its PTX is for another device or a newer driver.
constexpr int kOtherDevice[] = {200, 209, 218, 222};

// Of NVIDIA's driver: the capability, 9 and 0 for sm_90.
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;

constexpr unsigned kNoTiming = 2;  // of an event, of both drivers: it orders, and measures nothing
constexpr int64_t kMarks = 64;  // events in turn: who waits for an older mark waits for a later one

// AMD's code objects run on one generation each.
struct AmdGeneration {
  std::string_view target, name;
};
constexpr AmdGeneration kAmdGenerations[] = {{"gfx942", "cdna3"}, {"gfx90a", "cdna2"}};
std::string_view amd_generation(std::string_view target) {
  for (const AmdGeneration& known : kAmdGenerations) {
    if (known.target == target) return known.name;
  }
  return target;
}

// Whose context is the calling thread's: no two devices of a process have had the same number.
thread_local int64_t entered_serial = 0;
std::atomic<int64_t> last_serial = 0;

std::string error_text(const DriverTable& table, int error) {
  const char* text = nullptr;
  table.error_name(error, &text);
  return text == nullptr ? std::to_string(error) : text;
}

class VendorGpu final : public Gpu {
 public:
  VendorGpu(const DriverVendor& vendor, const DriverTable& table,
            std::span<const KernelImage> images, int number)
      : vendor_(vendor), table_(table), images_(images), number_(number) {
    check(table_.device(&device_, number), fmt::format("device {}", number));
    std::array<char, 256> name = {};
    check(table_.device_name(name.data(), static_cast<int>(name.size()), device_), "device name");
    name_ = name.data();
    check(table_.retain_context(&context_, device_), "context");
    enter();
    check(table_.make_stream(&stream_, 0), "stream");
  }
  ~VendorGpu() override {
    use_context();
    table_.wait_stream(stream_);
    for (const auto& [address, bytes] : taken_) table_.give_back(reinterpret_cast<void*>(address));
    if (pinned_ != nullptr) table_.give_back_pinned(pinned_);
  }
  VendorGpu(const VendorGpu&) = delete;
  VendorGpu& operator=(const VendorGpu&) = delete;

  std::string name() const override { return fmt::format("{} {}", vendor_.name, name_); }
  int wave() const override { return vendor_.second ? 64 : 32; }
  std::string generation() override {
    if (vendor_.second) {
      enter();
      if (module_ == nullptr) load_module();
      return generation_;
    }
    int major = 0, minor = 0;
    check(table_.device_attribute(&major, kCapabilityMajor, device_), "capability");
    check(table_.device_attribute(&minor, kCapabilityMinor, device_), "capability");
    return fmt::format("sm_{}{}", major, minor);
  }
  int number() const override { return number_; }
  std::optional<int64_t> free_bytes() override {
    enter();
    size_t free = 0, all = 0;
    check(table_.memory_info(&free, &all), "free memory");
    return static_cast<int64_t>(free);
  }
  void* stream() override { return stream_; }

  void* take(int64_t bytes) override {
    enter();
    void* memory = nullptr;
    check(table_.take(&memory, static_cast<size_t>(bytes)), fmt::format("{} bytes", bytes));
    taken_[reinterpret_cast<uintptr_t>(memory)] = bytes;
    return memory;
  }
  void give_back(void* memory) override {
    taken_.erase(reinterpret_cast<uintptr_t>(memory));
    // A destructor may call: what went wrong before is said by the next wait.
    remember(use_context());
    remember(table_.give_back(memory));
  }
  bool holds(const void* memory) const override {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    auto after = taken_.upper_bound(at);
    return after != taken_.begin() && at < (--after)->first + static_cast<uintptr_t>(after->second);
  }

  void copy_in(void* device, const void* host, int64_t bytes) override {
    enter();
    if (pinned_ == nullptr) pinned_ = static_cast<std::byte*>(take_pinned(kPinnedBytes));
    for (int64_t at = 0; at < bytes;) {
      const int64_t part = std::min(bytes - at, kPinnedBytes);
      if (used_ + part > kPinnedBytes) wait();
      std::byte* const here = pinned_ + used_;
      std::memcpy(here, static_cast<const std::byte*>(host) + at, static_cast<size_t>(part));
      copy_in_pinned(static_cast<std::byte*>(device) + at, here, part);
      used_ += (part + 63) / 64 * 64;
      at += part;
    }
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    copy_out_pinned(host, device, bytes);
    wait();
  }
  void* take_pinned(int64_t bytes) override {
    enter();
    void* memory = nullptr;
    check(table_.take_pinned(&memory, static_cast<size_t>(bytes), 0),
          fmt::format("{} bytes of pinned memory", bytes));
    return memory;
  }
  void give_back_pinned(void* memory) override {
    remember(use_context());
    remember(table_.give_back_pinned(memory));
  }
  void copy_in_pinned(void* device, const void* pinned, int64_t bytes) override {
    enter();
    check(table_.copy_in(device, pinned, static_cast<size_t>(bytes), stream_), "copy");
  }
  void copy_out_pinned(void* pinned, const void* device, int64_t bytes) override {
    enter();
    check(table_.copy_out(pinned, device, static_cast<size_t>(bytes), stream_), "copy");
  }
  int64_t mark() override {
    enter();
    void*& event = events_[static_cast<size_t>(++marked_ % kMarks)];
    if (event == nullptr) check(table_.make_event(&event, kNoTiming), "event");
    check(table_.record_event(event, stream_), "event");
    return marked_;
  }
  // Looks at nothing that another call changes, but for an event that is recorded again: behind this mark.
  void wait_for(int64_t mark) override {
    enter();
    check(table_.wait_event(events_[static_cast<size_t>(mark % kMarks)]), "wait");
  }
  void clear(void* device, int64_t bytes) override {
    zero(*this, make_tensor(device, DType::kI64, {bytes / 8}));
  }
  void launch(const char* kernel, const Grid& grid, const void* arguments) override {
    enter();
    void* pointers[] = {const_cast<void*>(arguments)};
    check(table_.launch(function(kernel), static_cast<unsigned>(grid.blocks_x),
                        static_cast<unsigned>(grid.blocks_y), 1,
                        static_cast<unsigned>(grid.threads), 1, 1, 0, stream_, pointers, nullptr),
          kernel);
  }
  void wait() override {
    enter();
    check(table_.wait_stream(stream_), "wait");
    check(std::exchange(lost_, 0), "memory that was given back");
    used_ = 0;  // all that was to be copied is
  }

 private:
  int use_context() const {
    if (entered_serial == serial_) return 0;
    const int error = table_.use_context(context_);
    if (error == 0) entered_serial = serial_;
    return error;
  }
  void enter() const { check(use_context(), "context"); }
  void remember(int error) {
    if (lost_ == 0) lost_ = error;
  }

  void* function(const char* kernel) {
    const auto known = functions_.find(kernel);
    if (known != functions_.end()) return known->second;
    if (module_ == nullptr) load_module();
    void* function = nullptr;
    check(table_.find_function(&function, module_, kernel), kernel);
    return functions_[kernel] = function;
  }

  // A driver knows what its device takes: the newest image that it does not refuse.
  void load_module() {
    std::string refused;
    for (const KernelImage& image : images_) {
      if (image.amd != vendor_.second) continue;
      const int error = table_.load_module(&module_, image.data);
      if (error == 0) {
        generation_ = amd_generation(image.target);
        return;
      }
      if (std::find(std::begin(kOtherDevice), std::end(kOtherDevice), error) ==
          std::end(kOtherDevice))
        check(error, fmt::format("the kernels for {}", image.target));
      refused += fmt::format("{}{}: {}", refused.empty() ? "" : ", ", image.target,
                             error_text(table_, error));
    }
    module_ = nullptr;
    if (refused.empty())
      throw_error(Code::kDevice,
                  "{}: no kernels of {}'s are in this program: build it with cmake "
                  "-DMORAINE_GPU_KERNELS=ON (docs/gpu.md)",
                  name(), vendor_.name);
    throw_error(Code::kDevice, "{}: the kernels in this program are for other devices ({})", name(),
                refused);
  }

  void check(int error, const std::string& what) const {
    if (error != 0)
      throw_error(Code::kDevice, "{} driver: {}: {}", vendor_.name, what,
                  error_text(table_, error));
  }

  const DriverVendor vendor_;
  const DriverTable table_;
  const std::span<const KernelImage> images_;
  const int number_;
  const int64_t serial_ = ++last_serial;
  int device_ = 0;
  void* context_ = nullptr;
  std::string name_, generation_;  // the latter of AMD's, when the module is there
  void* stream_ = nullptr;
  void* module_ = nullptr;
  std::map<std::string, void*, std::less<>> functions_;
  std::map<uintptr_t, int64_t> taken_;  // where, and how many bytes
  std::byte* pinned_ = nullptr;
  int64_t used_ = 0;  // of it, since the stream was waited for
  int lost_ = 0;      // the first error of what gives back
  std::array<void*, kMarks> events_ = {};
  int64_t marked_ = 0;
};

// Begins with the driver.
int count_devices(const DriverVendor& vendor, const DriverTable& table) {
  int devices = 0;
  int error = table.init(0);
  if (error == 0) error = table.device_count(&devices);
  if (error != 0 || devices == 0)
    throw_error(Code::kDevice, "{} driver: no device: {}{}", vendor.name,
                error == 0 ? "it counts none" : error_text(table, error), kWithoutGpu);
  return devices;
}

std::unique_ptr<Gpu> open_number(const DriverVendor& vendor, const DriverTable& table,
                                 std::span<const KernelImage> images, int number, int devices) {
  if (number >= devices)
    throw_error(Code::kDevice, "{} driver: device {}: there {}; wanted gpu:0 to gpu:{}",
                vendor.name, number,
                devices == 1 ? std::string("is one") : fmt::format("are {}", devices), devices - 1);
  return std::make_unique<VendorGpu>(vendor, table, images, number);
}

// `number` of so many devices.
using Choose = std::function<int(int devices)>;

std::unique_ptr<Gpu> open_chosen(const Choose& number) {
  std::string reasons;
  for (const DriverVendor& vendor : {kNvidiaDriver, kAmdDriver}) {
    std::string why;
    const std::optional<DriverTable> table = load_driver(vendor, why);
    if (table) {
      const int devices = count_devices(vendor, *table);
      return open_number(vendor, *table, kernel_images(), number(devices), devices);
    }
    reasons += (reasons.empty() ? "" : "; ") + why;
  }
  throw_error(Code::kDevice, "open a GPU: no driver is on this machine ({}){}", reasons,
              kWithoutGpu);
}

}  // namespace

std::unique_ptr<Gpu> make_vendor_gpu(const DriverVendor& vendor, const DriverTable& table,
                                     std::span<const KernelImage> images, int number) {
  return open_number(vendor, table, images, number, count_devices(vendor, table));
}

std::unique_ptr<Gpu> open_gpu(int number) {
  return open_chosen([number](int) { return number; });
}

std::unique_ptr<Gpu> open_gpu_of_rank(int rank_of_host) {
  return open_chosen([rank_of_host](int devices) { return rank_of_host % devices; });
}

}  // namespace moraine::gpu
