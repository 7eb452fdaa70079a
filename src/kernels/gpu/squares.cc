// Squares, host side.
#include "kernels/gpu/squares.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

static_assert(sizeof(ElementRange) == 2 * sizeof(int64_t), "the kernel reads begin, end");

namespace {

const char* kernel_of(const Tensor& x) {
  return x.dtype == DType::kBF16 ? "squares_bf16" : "squares_f32";
}

}  // namespace

void squares_of_ranges(Gpu& gpu, const SquaresOfRanges& a) {
  const auto count = static_cast<int64_t>(a.ranges.size());
  if (count == 0) return;
  const void* const ranges = gpu.list(a.ranges.data(), static_cast<int64_t>(a.ranges.size_bytes()));
  const GpuMemory sums(gpu, count * static_cast<int64_t>(sizeof(double)));
  const SquaresArgs args = {.sums = sums.as<double>(),
                            .x = a.x.data,
                            .ranges = static_cast<const int64_t*>(ranges),
                            .length = 0,
                            .count = 0};
  gpu.launch(kernel_of(a.x), {.blocks_x = count, .blocks_y = 1, .threads = kSquaresThreads}, &args);
  gpu.copy_out(a.sums.data(), sums.data(), static_cast<int64_t>(a.sums.size_bytes()));
}

bool all_finite(Gpu& gpu, const Tensor& x) {
  constexpr int64_t kLength = 1 << 14;
  std::vector<double> sums(static_cast<size_t>((x.count() + kLength - 1) / kLength));
  const auto count = static_cast<int64_t>(sums.size()),
             bytes = count * static_cast<int64_t>(sizeof(double));
  if (count == 0) return true;
  const GpuMemory there(gpu, bytes);
  const SquaresArgs args = {.sums = there.as<double>(),
                            .x = x.data,
                            .ranges = nullptr,
                            .length = kLength,
                            .count = x.count()};
  gpu.launch(kernel_of(x), {.blocks_x = count, .blocks_y = 1, .threads = kSquaresThreads}, &args);
  gpu.copy_out(sums.data(), there.data(), bytes);
  return std::all_of(sums.begin(), sums.end(), [](double sum) { return std::isfinite(sum); });
}

}  // namespace moraine::gpu
