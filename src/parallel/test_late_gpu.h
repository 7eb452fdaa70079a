// LateGpu: an emulated GPU whose copies from and to pinned memory happen when somebody waits, as a stream's may.
//
// A copy in may be late beyond a launch too, so what it reads must stay as it is until the host has waited for it: that
// it did not is a failure of the test.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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
  void give_back(void* memory) override {  // a driver waits for all before it frees
    in_order([&] { gpu_->give_back(memory); });
  }
  bool holds(const void* memory) const override {
    const std::lock_guard lock(mutex_);
    return gpu_->holds(memory);
  }
  void copy_in(void* device, const void* host, int64_t bytes) override {
    in_order([&] { gpu_->copy_in(device, host, bytes); });
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    in_order([&] {
      expect_unchanged(done_);
      gpu_->copy_out(host, device, bytes);
    });
  }
  void give_back_pinned(void* memory) override {
    in_order([this] { expect_unchanged(done_); });
    Gpu::give_back_pinned(memory);
  }
  void copy_in_pinned(void* device, const void* pinned, int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    const std::byte* const from = static_cast<const std::byte*>(pinned);
    late_.emplace_back([=, this] { gpu_->copy_in(device, pinned, bytes); });
    read_.push_back({done_ + static_cast<int64_t>(late_.size()), from, {from, from + bytes}});
  }
  void copy_out_pinned(void* pinned, const void* device, int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    late_.emplace_back([=, this] {
      expect_read(pinned, bytes);  // before, in the device's own order
      gpu_->copy_out(pinned, device, bytes);
    });
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
    expect_unchanged(mark);
    do_until(mark);
  }
  void wait() override {
    in_order([this] { expect_unchanged(done_); });
  }

 private:
  struct Read {    // of pinned memory
    int64_t mark;  // behind it
    const std::byte* from;
    std::vector<std::byte> bytes;  // that were there when it was asked for
  };
  static void expect_same(const Read& r) {
    EXPECT_EQ(std::memcmp(r.from, r.bytes.data(), r.bytes.size()), 0)
        << "pinned memory was written before its copy to the device was waited for";
  }
  void expect_unchanged(int64_t mark) {
    for (; !read_.empty() && read_.front().mark <= mark; read_.pop_front())
      expect_same(read_.front());
  }
  void expect_read(const void* pinned, int64_t bytes) {
    const std::byte *const begin = static_cast<const std::byte*>(pinned), *const end =
                                                                              begin + bytes;
    std::erase_if(read_, [&](const Read& r) {
      const bool meets = r.mark <= done_ && r.from < end && begin < r.from + r.bytes.size();
      if (meets) expect_same(r);
      return meets;
    });
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
  std::deque<Read> read_;
  int64_t done_ = 0;  // copies
};

}  // namespace moraine::testing
