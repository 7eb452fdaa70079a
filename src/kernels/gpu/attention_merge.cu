// AttentionMerge, device side: a block to a row of a head.
#include "kernels/gpu/attention_part.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/exp.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

MR_KERNEL(attention_merge_rows, kMergeThreads, AttentionMergeArgs a) {
  const int64_t row = load(a.rows + block_x()) * a.H + block_y();
  const float mine = load(a.lse + row), its = load(a.lse_part + row);
  sync_block();  // all have read lse before it is written
  if (its < -3e38f) return;
  const float most = its > mine ? its : mine, w = exp_nonpositive(mine - most),
              p = exp_nonpositive(its - most), sum = w + p;
  for (int64_t c = thread(); c < a.d; c += kMergeThreads) {
    const float o = load(a.o + (row * a.d + c)), part = load(a.o_part + (row * a.d + c));
    store(a.o + (row * a.d + c), fused(w, o, p * part) / sum);
  }
  if (thread() == 0) store(a.lse + row, most + log_positive(sum));
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
