// Staging: where ranks with a device each exchange a flat buffer of theirs: its twin in the host's pinned memory.
//
//   copy_out   parts of the device's buffer to their places here: there behind gpu.mark()
//   copy_in    and back; what is here must stay until the device has come to it
//
// Errors:  kDevice.
// Memory:  one buffer of the gradients, of the host. Gradients leave through it, then the weights that were moved.
#pragma once

#include <span>

#include "comm/collectives.h"
#include "kernels/context.h"
#include "parallel/device_collectives.h"

namespace moraine {

class Staging {
 public:
  Staging(Arena& arena, int64_t count)
      : host_(arena.take_pinned("ranks.staged", "comm", DType::kF32, {count})) {}

  void copy_out(Context& ctx, const Tensor& flat, std::span<const Range> parts);
  void copy_in(Context& ctx, const Tensor& flat, std::span<const Range> parts);
  const Tensor& host() const { return host_; }  // [count]

 private:
  Tensor host_;
};

// How ranks with a device each exchange gradients and weights: one of the two. Neither: on the CPU, or one rank.
struct DeviceWay {
  Staging* staging = nullptr;
  DeviceCollectives* links = nullptr;
};

}  // namespace moraine
