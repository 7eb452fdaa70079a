// Swiglu, device side.
#include "kernels/gpu/exp.h"
#include "kernels/gpu/swiglu.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void swiglu_channel(const SwigluArgs& a) {
  const int64_t i = block_x() * kSwigluThreads + thread();
  if (i >= a.rows * a.F) return;
  const int64_t t = i / a.F, f = i % a.F;
  if (a.last != nullptr && t >= load(a.last)) return;
  const E* const gate = static_cast<const E*>(a.gate_up) + (t * 2 * a.F + f);
  const float g = widen(load(gate)), u = widen(load(gate + a.F));
  store(static_cast<E*>(a.y) + i, narrow_to<E>(g * sigmoid(g) * u));
}

MR_KERNEL(swiglu_f32, kSwigluThreads, SwigluArgs a) { swiglu_channel<float>(a); }
MR_KERNEL(swiglu_bf16, kSwigluThreads, SwigluArgs a) { swiglu_channel<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
