// The ranges, laid end to end, are cut into tasks of equal size: many tiny vectors cost no more
// than one long one.
#include "optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/check_tensor.h"
#include "optim/flat_math.h"
#include "optim/gpu_step.h"

namespace moraine {
namespace {

constexpr int64_t kTask = 1 << 15;  // elements; four streams of 128 KiB

}  // namespace

AdamWBlock adamw_block_of(const AdamWStep& a, const AdamWRange& range, int64_t begin, int64_t n) {
  const AdamWOptions& o = a.options;
  const double t = static_cast<double>(a.step), lr = a.lr * range.lr_scale;
  return {.w = a.weights.as<float>() + range.offset + begin,
          .m = a.m.as<float>() + range.state_offset + begin,
          .v = a.v.as<float>() + range.state_offset + begin,
          .g = a.gradients.as<float>() + range.offset + begin,
          .n = n,
          .g_scale = static_cast<float>(a.gradient_scale),
          .beta1 = static_cast<float>(o.beta1),
          .one_minus_beta1 = static_cast<float>(1 - o.beta1),
          .beta2 = static_cast<float>(o.beta2),
          .one_minus_beta2 = static_cast<float>(1 - o.beta2),
          .m_correction = static_cast<float>(1 / (1 - std::pow(o.beta1, t))),
          .v_correction = static_cast<float>(1 / (1 - std::pow(o.beta2, t))),
          .eps = static_cast<float>(o.eps),
          .keep = static_cast<float>(1 - lr * (range.weight_decay ? o.weight_decay : 0)),
          .rate = static_cast<float>(lr)};
}

void check_adamw(const AdamWStep& a) {
  check_dtype(a.weights, "weights", DType::kF32);
  check_tensor(a.gradients, "gradients", DType::kF32, {a.weights.dims[0]});
  check_dtype(a.m, "m", DType::kF32);
  check_tensor(a.v, "v", DType::kF32, {a.m.dims[0]});
  MR_CHECK(a.step >= 1, "step=%ld", long(a.step));
  for (const AdamWRange& range : a.ranges) {
    MR_CHECK(range.offset >= 0 && range.count >= 0 &&
             range.offset + range.count <= a.weights.count());
    MR_CHECK(range.state_offset >= 0 && range.state_offset + range.count <= a.m.count());
  }
}

void adamw_step(Context& ctx, const AdamWStep& a) {
  if (a.ranges.empty()) return;
  check_adamw(a);
  std::vector<int64_t> ends;  // of each range, laid end to end
  int64_t total = 0;
  for (const AdamWRange& range : a.ranges) ends.push_back(total += range.count);
  const OpTimer timer(ctx.profile, "adamw", 0, 28.0 * static_cast<double>(total));
  if (ctx.backend == Backend::kGpu) return gpu::adamw_step(*ctx.gpu, a);
  ctx.pool->parallel_for((total + kTask - 1) / kTask, [&](int64_t task, int) {
    const int64_t task_end = std::min(total, (task + 1) * kTask);
    int64_t at = task * kTask;
    size_t i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), at) - ends.begin());
    for (; at < task_end; ++i) {
      const AdamWRange& range = a.ranges[i];
      const int64_t n = std::min(ends[i], task_end) - at;
      if (n > 0) adamw_block(adamw_block_of(a, range, at - (ends[i] - range.count), n));
      at += n;
    }
  });
}

}  // namespace moraine
