// AttentionMerge, host side: which rows there are.
#include <vector>

#include "kernels/attention_part.h"
#include "kernels/gpu/attention_part.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {

void attention_merge(Gpu& gpu, const AttentionMerge& a) {
  std::vector<int64_t> rows;
  for (const Segment& s : a.segments) {
    for (int64_t t = 0; t < s.rows; ++t) rows.push_back(s.row_begin + t);
  }
  const auto count = static_cast<int64_t>(rows.size());
  const AttentionMergeArgs args = {
      .o = a.o.as<float>(),
      .lse = a.lse.as<float>(),
      .o_part = a.o_part.as<float>(),
      .lse_part = a.lse_part.as<float>(),
      .rows = static_cast<const int64_t*>(gpu.list(rows.data(), count * 8)),
      .H = a.o.dims[1],
      .d = a.o.dims[2]};
  gpu.launch("attention_merge_rows",
             {.blocks_x = count, .blocks_y = args.H, .threads = kMergeThreads}, &args);
}

}  // namespace moraine::gpu
