// Staging: a copy for each part.
#include "train/staging.h"

#include "kernels/gpu/runtime.h"

namespace moraine {

void Staging::copy_out(Context& ctx, const Tensor& flat, std::span<const Range> parts) {
  for (const Range& r : parts) {
    const Tensor from = flat.rows(r.begin, r.end), to = host_.rows(r.begin, r.end);
    if (from.bytes() > 0) ctx.gpu->copy_out_pinned(to.data, from.data, from.bytes());
  }
}

void Staging::copy_in(Context& ctx, const Tensor& flat, std::span<const Range> parts) {
  for (const Range& r : parts) {
    const Tensor to = flat.rows(r.begin, r.end), from = host_.rows(r.begin, r.end);
    if (from.bytes() > 0) ctx.gpu->copy_in_pinned(to.data, from.data, from.bytes());
  }
}

}  // namespace moraine
