// LateGpu: an emulated GPU whose copies from and to pinned memory happen when somebody waits, as a stream's may.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/gpu/runtime.h"

namespace moraine::testing {

// One thing at a time, as whoever waits is another thread than who launches, and both open its memory.
class LateGpu final : public gpu::Gpu {
 public:
  std::string name() const override { return gpu_->name(); }
  int wave() const override { return gpu_->wave(); }
  void* take(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    return gpu_->take(bytes);
  }
  void give_back(void* memory) override {
    const std::lock_guard lock(mutex_);
    gpu_->give_back(memory);
  }
  bool holds(const void* memory) const override {
    const std::lock_guard lock(mutex_);
    return gpu_->holds(memory);
  }
  void copy_in(void* device, const void* host, int64_t bytes) override {
    in_order([&] { gpu_->copy_in(device, host, bytes); });
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    in_order([&] { gpu_->copy_out(host, device, bytes); });
  }
  void copy_in_pinned(void* device, const void* pinned, int64_t bytes) override {
    add([=, this] { gpu_->copy_in(device, pinned, bytes); });
  }
  void copy_out_pinned(void* pinned, const void* device, int64_t bytes) override {
    add([=, this] { gpu_->copy_out(pinned, device, bytes); });
  }
  void clear(void* device, int64_t bytes) override {
    in_order([&] { gpu_->clear(device, bytes); });
  }
  void launch(const char* kernel, const gpu::Grid& grid, const void* arguments) override {
    in_order([&] { gpu_->launch(kernel, grid, arguments); });
  }
  int64_t mark() override {
    const std::lock_guard lock(mutex_);
    return done_ + static_cast<int64_t>(late_.size());
  }
  void wait_for(int64_t mark) override {  // no copy behind it
    const std::lock_guard lock(mutex_);
    do_until(mark);
  }
  void wait() override {
    in_order([] {});
  }

 private:
  void add(std::function<void()> copy) {
    const std::lock_guard lock(mutex_);
    late_.push_back(std::move(copy));
  }
  void do_until(int64_t mark) {
    for (; done_ < mark; ++done_) {
      late_.front()();
      late_.pop_front();
    }
  }
  template <class F>
  void in_order(const F& f) {
    const std::lock_guard lock(mutex_);
    do_until(done_ + static_cast<int64_t>(late_.size()));
    f();
  }

  const std::unique_ptr<gpu::Gpu> gpu_ = gpu::emulate_gpu({.wave = 32});
  mutable std::mutex mutex_;
  std::deque<std::function<void()>> late_;
  int64_t done_ = 0;  // copies
};

}  // namespace moraine::testing
