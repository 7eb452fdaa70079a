// Elementwise, device side.
#include "kernels/gpu/element.h"
#include "kernels/gpu/elementwise.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void zero_at(void* y, int64_t i) {
  store(static_cast<E*>(y) + i, E{});
}

MR_KERNEL(zero_elements, kElementThreads, ZeroArgs a) {
  const int64_t i = element();
  if (i >= a.count) return;
  if (a.element_bytes == 1) zero_at<uint8_t>(a.y, i);
  if (a.element_bytes == 2) zero_at<uint16_t>(a.y, i);
  if (a.element_bytes == 4) zero_at<uint32_t>(a.y, i);
  if (a.element_bytes == 8) zero_at<uint64_t>(a.y, i);
}

template <class E>
MR_DEVICE void add_element(const AddIntoArgs& a) {
  const int64_t i = element();
  if (i >= a.count) return;
  store(a.y + i,
        load(static_cast<const float*>(a.y) + i) + widen(load(static_cast<const E*>(a.x) + i)));
}

MR_KERNEL(add_into_f32, kElementThreads, AddIntoArgs a) { add_element<float>(a); }
MR_KERNEL(add_into_bf16, kElementThreads, AddIntoArgs a) { add_element<BF16>(a); }

template <class E>
MR_DEVICE void scale_element(const ScaleArgs& a) {
  const int64_t i = element();
  if (i >= a.count) return;
  E* const y = static_cast<E*>(a.y) + i;
  store(y, narrow_to<E>(widen(load(static_cast<const E*>(y))) * a.factor));
}

MR_KERNEL(scale_f32, kElementThreads, ScaleArgs a) { scale_element<float>(a); }
MR_KERNEL(scale_bf16, kElementThreads, ScaleArgs a) { scale_element<BF16>(a); }

MR_KERNEL(round_copy_elements, kElementThreads, RoundCopyArgs a) {
  const int64_t i = element();
  if (i >= a.count) return;
  const float x = a.x_bf16 ? widen(load(static_cast<const BF16*>(a.x) + i))
                           : load(static_cast<const float*>(a.x) + i);
  if (a.y_bf16) {
    store(static_cast<BF16*>(a.y) + i, narrow(x));
  } else {
    store(static_cast<float*>(a.y) + i, a.round ? widen(narrow(x)) : x);
  }
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
