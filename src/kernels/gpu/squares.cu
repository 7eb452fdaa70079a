// Squares, device side.
#include "kernels/gpu/device.h"
#include "kernels/gpu/squares.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <class E>
MR_DEVICE void squares_of_range(const SquaresArgs& a) {
  MR_SHARED(double, parts, kSquaresThreads);
  int64_t begin = block_x() * a.length, end = begin + a.length;
  if (end > a.count) end = a.count;
  if (a.ranges != nullptr) {
    begin = load(a.ranges + 2 * block_x());
    end = load(a.ranges + (2 * block_x() + 1));
  }
  double sum = 0;
  for (int64_t i = begin + thread(); i < end; i += kSquaresThreads) {
    const double v = static_cast<double>(widen(load(static_cast<const E*>(a.x) + i)));
    sum += v * v;
  }
  store(parts + thread(), sum);
  for (int half = kSquaresThreads / 2; half > 0; half /= 2) {
    sync_block();
    if (thread() < half)
      store(parts + thread(), load(parts + thread()) + load(parts + (thread() + half)));
  }
  if (thread() == 0) store(a.sums + block_x(), load(parts));
}

MR_KERNEL(squares_f32, kSquaresThreads, SquaresArgs a) { squares_of_range<float>(a); }
MR_KERNEL(squares_bf16, kSquaresThreads, SquaresArgs a) { squares_of_range<BF16>(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
