// HostObserver: shows an observer what a GPU computes, in the host's memory.
//
// What is shown is copied out, and a route that it changes is copied in again; so an observed pass waits for the GPU in
// every layer, and its numbers are those of one that is not.
//
// Memory: the host's, as much as the largest tensor that is shown; grows with it.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/context.h"
#include "model/forward_observer.h"

namespace moraine {

class HostObserver final : public ForwardObserver {
 public:
  explicit HostObserver(ForwardObserver& to) : to_(to) {}

  // Whose tensors are shown from now on.
  void begin_pass(Context& ctx) { ctx_ = &ctx; }

  void reads(int64_t layer, ServedMatrix matrix, const Tensor& x,
             std::span<const int64_t> rows) override;
  void chooses(int64_t layer, const Tensor& expert) override;
  void route(int64_t layer, const Tensor& expert) override;
  void computed(int64_t layer, double seconds) override { to_.computed(layer, seconds); }

 private:
  Tensor fetch(const Tensor& there);

  ForwardObserver& to_;
  Context* ctx_ = nullptr;
  std::vector<std::byte> bytes_;
  std::vector<int64_t> rows_;
};

}  // namespace moraine
