// ValueShift, device side.
#include "kernels/gpu/element.h"
#include "kernels/gpu/value_shift.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE E shifted_value(const ValueShiftArgs& a, int64_t t, int64_t j) {
  const E* const values = static_cast<const E*>(a.qkv) + (a.N - a.width + j);
  if (j < a.plain) return load(values + t * a.N);
  const RowPlace place = load(a.place + t);
  if (place.before > 0) return load(values + (t - 1) * a.N);
  if (place.halo < 0) return E{};
  return load(static_cast<const E*>(a.halo) + (place.halo * (a.width - a.plain) + j - a.plain));
}

template <class E>
MR_DEVICE void value_shift_channel(const ValueShiftArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.width) return;
  store(static_cast<E*>(a.v) + i, shifted_value<E>(a, i / a.width, i % a.width));
}

MR_KERNEL(value_shift_f32, kElementThreads, ValueShiftArgs a) { value_shift_channel<float>(a); }
MR_KERNEL(value_shift_bf16, kElementThreads, ValueShiftArgs a) { value_shift_channel<BF16>(a); }

template <class E>
MR_DEVICE void value_shift_gradient(const ValueShiftBackwardArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.width) return;
  const int64_t t = i / a.width, j = i % a.width;
  const E* const dv = static_cast<const E*>(a.dv);
  E* const to = static_cast<E*>(a.dqkv) + (t * a.N + a.N - a.width + j);
  if (j < a.plain) {
    store(to, load(dv + i));
    return;
  }
  const RowPlace place = load(a.place + t);
  if (place.before == 0 && place.halo >= 0) {
    store(static_cast<E*>(a.dhalo) + (place.halo * (a.width - a.plain) + j - a.plain),
          load(dv + i));
  }
  const bool follows = t + 1 < a.T && load(a.place + (t + 1)).before > 0;
  store(to, follows ? load(dv + (i + a.width)) : E{});
}

MR_KERNEL(value_shift_backward_f32, kElementThreads, ValueShiftBackwardArgs a) {
  value_shift_gradient<float>(a);
}
MR_KERNEL(value_shift_backward_bf16, kElementThreads, ValueShiftBackwardArgs a) {
  value_shift_gradient<BF16>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
