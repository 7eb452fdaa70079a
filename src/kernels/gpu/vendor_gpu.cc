// open_gpu: a device behind a vendor's driver. No kernels are embedded yet, so it ends where a module would be loaded.
#include <array>
#include <map>
#include <vector>

#include "base/error.h"
#include "kernels/gpu/driver_table.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/runtime.h"
#include "tensor/tensor.h"

namespace moraine::gpu {
namespace {

class VendorGpu final : public Gpu {
 public:
  VendorGpu(const DriverVendor& vendor, const DriverTable& table) : vendor_(vendor), table_(table) {
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

  std::string name() const override { return fmt::format("{} {}", vendor_.name, name_); }
  int wave() const override { return vendor_.second ? 64 : 32; }

  void* take(int64_t bytes) override {
    void* memory = nullptr;
    check(table_.take(&memory, static_cast<size_t>(bytes)), "memory");
    taken_[reinterpret_cast<uintptr_t>(memory)] = bytes;
    return memory;
  }
  void give_back(void* memory) override {
    check(table_.give_back(memory), "memory");
    taken_.erase(reinterpret_cast<uintptr_t>(memory));
  }
  bool holds(const void* memory) const override {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    auto after = taken_.upper_bound(at);
    return after != taken_.begin() && at < (--after)->first + static_cast<uintptr_t>(after->second);
  }
  void copy_in(void* device, const void* host, int64_t bytes) override {
    check(table_.copy_in(device, host, static_cast<size_t>(bytes), stream_), "copy");
    wait();  // memory that is not pinned may be read late
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    check(table_.copy_out(host, device, static_cast<size_t>(bytes), stream_), "copy");
    wait();
  }
  void clear(void* device, int64_t bytes) override {
    zero(*this, make_tensor(device, DType::kI64, {bytes / 8}));
  }
  void launch(const char* kernel, const Grid& grid, const void* arguments) override {
    void* function = nullptr;
    check(table_.find_function(&function, module(), kernel), kernel);
    void* pointers[] = {const_cast<void*>(arguments)};
    check(table_.launch(function, static_cast<unsigned>(grid.blocks_x),
                        static_cast<unsigned>(grid.blocks_y), 1,
                        static_cast<unsigned>(grid.threads), 1, 1, 0, stream_, pointers, nullptr),
          kernel);
  }
  void wait() override { check(table_.wait_stream(stream_), "wait"); }

 private:
  void* module() const {
    throw_error(Code::kDevice, "{}: this program has no kernels in it: they are {} (docs/gpu.md)",
                name(), kKernelsState);
  }
  void check(int error, const char* what) const {
    if (error == 0) return;
    const char* text = nullptr;
    table_.error_name(error, &text);
    throw_error(Code::kDevice, "{} driver: {}: {}", vendor_.name, what,
                text == nullptr ? std::to_string(error) : text);
  }

  const DriverVendor vendor_;
  const DriverTable table_;
  std::string name_;
  void* stream_ = nullptr;
  std::map<uintptr_t, int64_t> taken_;  // where, and how many bytes
};

}  // namespace

std::unique_ptr<Gpu> open_gpu() {
  std::string reasons;
  for (const DriverVendor& vendor : {kNvidiaDriver, kAmdDriver}) {
    std::string why;
    const std::optional<DriverTable> table = load_driver(vendor, why);
    if (table) return std::make_unique<VendorGpu>(vendor, *table);
    reasons += (reasons.empty() ? "" : "; ") + why;
  }
  throw_error(Code::kDevice,
              "open a GPU: no driver is on this machine ({}); everything runs on the CPU", reasons);
}

}  // namespace moraine::gpu
