// Swiglu, device side.
#include "kernels/gpu/element.h"
#include "kernels/gpu/exp.h"
#include "kernels/gpu/swiglu.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void swiglu_channel(const SwigluArgs& a) {
  const int64_t i = element();
  if (i >= a.rows * a.F) return;
  const int64_t t = i / a.F, f = i % a.F;
  if (a.last != nullptr && t >= load(a.last)) return;
  const E* const gate = static_cast<const E*>(a.gate_up) + (t * 2 * a.F + f);
  const float g = widen(load(gate)), u = widen(load(gate + a.F));
  store(static_cast<E*>(a.y) + i, narrow_to<E>(g * sigmoid(g) * u));
}

MR_KERNEL(swiglu_f32, kElementThreads, SwigluArgs a) { swiglu_channel<float>(a); }
MR_KERNEL(swiglu_bf16, kElementThreads, SwigluArgs a) { swiglu_channel<BF16>(a); }

template <class E>
MR_DEVICE void swiglu_gradient(const SwigluBackwardArgs& a) {
  const int64_t i = element();
  if (i >= a.rows * a.F) return;
  const int64_t t = i / a.F, gate = t * 2 * a.F + i % a.F, up = gate + a.F;
  if (a.last != nullptr && t >= load(a.last)) return;
  const E* const gate_up = static_cast<const E*>(a.gate_up);
  E* const dgate_up = static_cast<E*>(a.dgate_up);
  const float g = widen(load(gate_up + gate)), u = widen(load(gate_up + up)), s = sigmoid(g);
  const float dy = widen(load(static_cast<const E*>(a.dy) + i));
  store(dgate_up + gate, narrow_to<E>(dy * u * s * fused(g, 1.0f - s, 1.0f)));
  store(dgate_up + up, narrow_to<E>(dy * g * s));
}

MR_KERNEL(swiglu_backward_f32, kElementThreads, SwigluBackwardArgs a) { swiglu_gradient<float>(a); }
MR_KERNEL(swiglu_backward_bf16, kElementThreads, SwigluBackwardArgs a) { swiglu_gradient<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
