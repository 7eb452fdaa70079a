// The ranges, laid end to end, are cut into tasks of equal size: many tiny vectors cost no more
// than one long one.
#include "optim/adamw.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/check_tensor.h"
#include "optim/flat_math.h"
#include "optim/gpu_step.h"

namespace moraine {
namespace {

constexpr int64_t kTask = 1 << 15;  // elements; four streams of 128 KiB

int64_t elements_of(std::span<const AdamWRange> ranges) {
  int64_t total = 0;
  for (const AdamWRange& range : ranges) total += range.count;
  return total;
}

// f(range, begin, n, first): elements [begin, begin + n) of the range, laid end to end from `first` on.
template <class F>
void for_parts(Pool& pool, std::span<const AdamWRange> ranges, const F& f) {
  std::vector<int64_t> ends;  // of each range, laid end to end
  int64_t total = 0;
  for (const AdamWRange& range : ranges) ends.push_back(total += range.count);
  pool.parallel_for((total + kTask - 1) / kTask, [&](int64_t task, int) {
    const int64_t task_end = std::min(total, (task + 1) * kTask);
    int64_t at = task * kTask;
    size_t i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), at) - ends.begin());
    for (; at < task_end; ++i) {
      const AdamWRange& range = ranges[i];
      const int64_t n = std::min(ends[i], task_end) - at;
      if (n > 0) f(range, at - (ends[i] - range.count), n, at);
      at += n;
    }
  });
}

// Of many threads, in any order.
class SharedSums {
 public:
  void add(const AdamWSums& sums) {
    w_ += sums.w;
    m_ += sums.m;
    v_ += sums.v;
  }
  AdamWSums total() const { return {.w = w_, .m = m_, .v = v_}; }

 private:
  std::atomic<uint64_t> w_ = 0, m_ = 0, v_ = 0;
};

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
  if (a.seen != nullptr) *a.seen = {};
  if (a.ranges.empty()) return;
  check_adamw(a);
  const OpTimer timer(ctx.profile, "adamw", 0, 28.0 * static_cast<double>(elements_of(a.ranges)));
  if (ctx.backend == Backend::kGpu) return gpu::adamw_step(*ctx.gpu, a);
  SharedSums before, after;
  for_parts(*ctx.pool, a.ranges,
            [&](const AdamWRange& range, int64_t begin, int64_t n, int64_t first) {
              const AdamWBlock block = adamw_block_of(a, range, begin, n);
              if (a.seen == nullptr) return adamw_block(block);
              const AdamWSeen seen = adamw_block_seen(block, first);
              before.add(seen.before);
              after.add(seen.after);
            });
  if (a.seen != nullptr) *a.seen = {.before = before.total(), .after = after.total()};
}

AdamWSums adamw_sums(Context& ctx, const AdamWMemory& a) {
  SharedSums sums;
  for_parts(*ctx.pool, a.ranges,
            [&](const AdamWRange& range, int64_t begin, int64_t n, int64_t first) {
              const int64_t at = range.offset + begin, state = range.state_offset + begin;
              sums.add({.w = word_sum_block(a.weights.as<float>() + at, n, first),
                        .m = word_sum_block(a.m.as<float>() + state, n, first),
                        .v = word_sum_block(a.v.as<float>() + state, n, first)});
            });
  return sums.total();
}

}  // namespace moraine
