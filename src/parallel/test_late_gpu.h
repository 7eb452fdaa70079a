// LateGpu: an emulated GPU whose copies from and to pinned memory happen when somebody waits, as a stream's may.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpu/runtime.h"

namespace moraine::testing {

class LateGpu final : public gpu::Gpu {
 public:
  std::string name() const override { return gpu_->name(); }
  int wave() const override { return gpu_->wave(); }
  void* take(int64_t bytes) override { return gpu_->take(bytes); }
  void give_back(void* memory) override { gpu_->give_back(memory); }
  bool holds(const void* memory) const override { return gpu_->holds(memory); }
  void copy_in(void* device, const void* host, int64_t bytes) override {
    wait();
    gpu_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    wait();
    gpu_->copy_out(host, device, bytes);
  }
  void copy_in_pinned(void* device, const void* pinned, int64_t bytes) override {
    add([=, this] { gpu_->copy_in(device, pinned, bytes); });
  }
  void copy_out_pinned(void* pinned, const void* device, int64_t bytes) override {
    add([=, this] { gpu_->copy_out(pinned, device, bytes); });
  }
  void clear(void* device, int64_t bytes) override {
    wait();
    gpu_->clear(device, bytes);
  }
  void launch(const char* kernel, const gpu::Grid& grid, const void* arguments) override {
    wait();
    gpu_->launch(kernel, grid, arguments);
  }
  int64_t mark() override {
    const std::lock_guard lock(mutex_);
    return done_ + static_cast<int64_t>(late_.size());
  }
  // No copy behind the mark.
  void wait_for(int64_t mark) override {
    const std::lock_guard lock(mutex_);
    const int64_t copies = mark - done_;
    for (int64_t i = 0; i < copies; ++i) late_[static_cast<size_t>(i)]();
    if (copies <= 0) return;
    late_.erase(late_.begin(), late_.begin() + copies);
    done_ = mark;
  }
  void wait() override { wait_for(mark()); }

 private:
  void add(std::function<void()> copy) {
    const std::lock_guard lock(mutex_);
    late_.push_back(std::move(copy));
  }

  const std::unique_ptr<gpu::Gpu> gpu_ = gpu::emulate_gpu({.wave = 32});
  std::mutex mutex_;
  std::vector<std::function<void()>> late_;
  int64_t done_ = 0;  // copies
};

}  // namespace moraine::testing
