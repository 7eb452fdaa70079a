// VendorGpu: one device, one stream, one module.
#include "kernels/gpu/vendor_gpu.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "kernels/gpu/elementwise.h"
#include "tensor/tensor.h"

namespace moraine::gpu {
namespace {

// Of both drivers: the image, its code or its PTX is for another device or a newer driver.
constexpr int kOtherDevice[] = {200, 209, 218, 222};

class VendorGpu final : public Gpu {
 public:
  VendorGpu(const DriverVendor& vendor, const DriverTable& table,
            std::span<const KernelImage> images)
      : vendor_(vendor), table_(table), images_(images) {
    check(table_.init(0), "init");
    int device = 0;
    check(table_.device(&device, 0), "first device");
    std::array<char, 256> name = {};
    check(table_.device_name(name.data(), static_cast<int>(name.size()), device), "device name");
    name_ = name.data();
    void* context = nullptr;
    check(table_.retain_context(&context, device), "context");
    check(table_.use_context(context), "context");
    check(table_.make_stream(&stream_, 0), "stream");
  }
  ~VendorGpu() override {
    table_.wait_stream(stream_);
    if (pinned_ != nullptr) table_.give_back_pinned(pinned_);
  }
  VendorGpu(const VendorGpu&) = delete;
  VendorGpu& operator=(const VendorGpu&) = delete;

  std::string name() const override { return fmt::format("{} {}", vendor_.name, name_); }
  int wave() const override { return vendor_.second ? 64 : 32; }

  void* take(int64_t bytes) override {
    void* memory = nullptr;
    check(table_.take(&memory, static_cast<size_t>(bytes)), fmt::format("{} bytes", bytes));
    taken_[reinterpret_cast<uintptr_t>(memory)] = bytes;
    return memory;
  }
  void give_back(void* memory) override {
    taken_.erase(reinterpret_cast<uintptr_t>(memory));
    // A destructor may call: what went wrong before is said by the next wait.
    const int error = table_.give_back(memory);
    if (lost_ == 0) lost_ = error;
  }
  bool holds(const void* memory) const override {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    auto after = taken_.upper_bound(at);
    return after != taken_.begin() && at < (--after)->first + static_cast<uintptr_t>(after->second);
  }

  void copy_in(void* device, const void* host, int64_t bytes) override {
    if (pinned_ == nullptr) {
      void* memory = nullptr;
      check(table_.take_pinned(&memory, kPinnedBytes, 0), "pinned memory");
      pinned_ = static_cast<std::byte*>(memory);
    }
    for (int64_t at = 0; at < bytes;) {
      const int64_t part = std::min(bytes - at, kPinnedBytes);
      if (used_ + part > kPinnedBytes) wait();
      std::byte* const here = pinned_ + used_;
      std::memcpy(here, static_cast<const std::byte*>(host) + at, static_cast<size_t>(part));
      check(table_.copy_in(static_cast<std::byte*>(device) + at, here, static_cast<size_t>(part),
                           stream_),
            "copy");
      used_ += (part + 63) / 64 * 64;
      at += part;
    }
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    check(table_.copy_out(host, device, static_cast<size_t>(bytes), stream_), "copy");
    wait();
  }
  void clear(void* device, int64_t bytes) override {
    zero(*this, make_tensor(device, DType::kI64, {bytes / 8}));
  }
  void launch(const char* kernel, const Grid& grid, const void* arguments) override {
    void* pointers[] = {const_cast<void*>(arguments)};
    check(table_.launch(function(kernel), static_cast<unsigned>(grid.blocks_x),
                        static_cast<unsigned>(grid.blocks_y), 1,
                        static_cast<unsigned>(grid.threads), 1, 1, 0, stream_, pointers, nullptr),
          kernel);
  }
  void wait() override {
    check(table_.wait_stream(stream_), "wait");
    check(std::exchange(lost_, 0), "memory that was given back");
    used_ = 0;  // all that was to be copied is
  }

 private:
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
      if (error == 0) return;
      if (std::find(std::begin(kOtherDevice), std::end(kOtherDevice), error) ==
          std::end(kOtherDevice))
        check(error, fmt::format("the kernels for {}", image.target));
      refused += fmt::format("{}{}: {}", refused.empty() ? "" : ", ", image.target, text_of(error));
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

  std::string text_of(int error) const {
    const char* text = nullptr;
    table_.error_name(error, &text);
    return text == nullptr ? std::to_string(error) : text;
  }
  void check(int error, const std::string& what) const {
    if (error != 0)
      throw_error(Code::kDevice, "{} driver: {}: {}", vendor_.name, what, text_of(error));
  }

  const DriverVendor vendor_;
  const DriverTable table_;
  const std::span<const KernelImage> images_;
  std::string name_;
  void* stream_ = nullptr;
  void* module_ = nullptr;
  std::map<std::string, void*, std::less<>> functions_;
  std::map<uintptr_t, int64_t> taken_;  // where, and how many bytes
  std::byte* pinned_ = nullptr;
  int64_t used_ = 0;  // of it, since the stream was waited for
  int lost_ = 0;      // the first error of give_back
};

}  // namespace

std::unique_ptr<Gpu> make_vendor_gpu(const DriverVendor& vendor, const DriverTable& table,
                                     std::span<const KernelImage> images) {
  return std::make_unique<VendorGpu>(vendor, table, images);
}

std::unique_ptr<Gpu> open_gpu() {
  std::string reasons;
  for (const DriverVendor& vendor : {kNvidiaDriver, kAmdDriver}) {
    std::string why;
    const std::optional<DriverTable> table = load_driver(vendor, why);
    if (table) return make_vendor_gpu(vendor, *table, kernel_images());
    reasons += (reasons.empty() ? "" : "; ") + why;
  }
  throw_error(Code::kDevice,
              "open a GPU: no driver is on this machine ({}); everything runs on the CPU", reasons);
}

}  // namespace moraine::gpu
