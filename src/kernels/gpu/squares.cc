// Squares, host side.
#include "kernels/gpu/squares.h"

#include "kernels/elementwise.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

static_assert(sizeof(ElementRange) == 2 * sizeof(int64_t), "the kernel reads begin, end");

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
  gpu.launch(a.x.dtype == DType::kBF16 ? "squares_bf16" : "squares_f32",
             {.blocks_x = count, .blocks_y = 1, .threads = kSquaresThreads}, &args);
  gpu.copy_out(a.sums.data(), sums.data(), static_cast<int64_t>(a.sums.size_bytes()));
}

}  // namespace moraine::gpu
