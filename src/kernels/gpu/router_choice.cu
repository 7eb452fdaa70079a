// RouterChoice, device side: softmax of a row, then its best classes one after the other.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/element.h"
#include "kernels/gpu/exp.h"
#include "kernels/gpu/router_choice.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// A class and its score as an integer in the order of scores.
struct ScoredClass {
  int32_t key, index;
};

constexpr int32_t kFirstKey = 0x7fffffff;  // above every number's
constexpr int32_t kNanKey = -0x7fffffff;   // below
constexpr int32_t kNoClassKey = -0x7fffffff - 1;

MR_DEVICE bool better(const ScoredClass& a, const ScoredClass& b) {
  return a.key > b.key || (a.key == b.key && a.index < b.index);
}

// A score is never -0: a sum of +0 and anything is not.
MR_DEVICE ScoredClass scored(float score, int64_t c) {
  const auto bits = static_cast<int32_t>(bits_of(score));
  const int32_t key = bits < 0 ? bits ^ 0x7fffffff : bits;
  return {score == score ? key : kNanKey, static_cast<int32_t>(c)};
}

// prob of the row.
MR_DEVICE void softmax_row(const RouterChoiceArgs& a, int64_t row) {
  float top = from_bits(0xff800000u), sum = 0;
  for (int64_t c = thread(); c < a.C; c += kChoiceThreads) {
    const float x = load(a.logits + (row + c));
    top = x > top ? x : top;
  }
  top = block_max<kChoiceThreads>(top);
  for (int64_t c = thread(); c < a.C; c += kChoiceThreads) {
    const float e = exp_nonpositive(load(a.logits + (row + c)) - top);
    store(a.prob + (row + c), e);
    sum += e;
  }
  const float factor = 1.0f / block_sum<kChoiceThreads>(sum);
  for (int64_t c = thread(); c < a.C; c += kChoiceThreads) {
    store(a.prob + (row + c), load(static_cast<const float*>(a.prob) + (row + c)) * factor);
  }
}

// The best class that is worse than `last`; all threads get it.
MR_DEVICE ScoredClass next_class(const RouterChoiceArgs& a, int64_t row, const ScoredClass& last) {
  MR_SHARED(int32_t, keys, kChoiceThreads);
  MR_SHARED(int32_t, classes, kChoiceThreads);
  ScoredClass best = {kNoClassKey, 0};
  for (int64_t c = thread(); c < a.C; c += kChoiceThreads) {
    const float prob = load(static_cast<const float*>(a.prob) + (row + c));
    const ScoredClass of = scored(prob + load(a.bias + c), c);
    if (better(last, of) && better(of, best)) best = of;
  }
  store(keys + thread(), best.key);
  store(classes + thread(), best.index);
  sync_block();
  for (int i = 0; i < kChoiceThreads; ++i) {
    const ScoredClass of = {load(keys + i), load(classes + i)};
    if (better(of, best)) best = of;
  }
  sync_block();
  return best;
}

MR_KERNEL(router_choice_f32, kChoiceThreads, RouterChoiceArgs a) {
  const int64_t row = block_x() * a.C;
  softmax_row(a, row);
  sync_block();
  ScoredClass last = {kFirstKey, 0};
  bool skipped = false;
  for (int64_t j = 0; j < a.n; ++j) {
    if (!skipped) last = next_class(a, row, last);
    const float gate =
        skipped ? 0.0f : load(static_cast<const float*>(a.prob) + (row + last.index));
    if (thread() == 0) {
      store(a.expert + (block_x() * a.n + j), last.index);
      store(a.gate + (block_x() * a.n + j), gate);
    }
    skipped = last.index == a.skip;
  }
}

template <class E>
MR_DEVICE void choice_gradient_of(const RouterChoiceBackwardArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.C) return;
  const int64_t t = i / a.C, c = i % a.C;
  float mean = 0, dprob = 0;
  bool skipped = false;  // what follows was forced
  for (int64_t j = 0; j < a.n && !skipped; ++j) {
    const int32_t e = load(a.expert + (t * a.n + j));
    const float dgate = load(a.dgate + (t * a.n + j));
    mean = fused(dgate, load(a.prob + (t * a.C + e)), mean);
    if (e == c) dprob += dgate;
    skipped = e == a.skip;
  }
  store(static_cast<E*>(a.dlogits) + i, narrow_to<E>(load(a.prob + i) * (dprob - mean)));
}

MR_KERNEL(router_choice_backward_f32, kElementThreads, RouterChoiceBackwardArgs a) {
  choice_gradient_of<float>(a);
}
MR_KERNEL(router_choice_backward_bf16, kElementThreads, RouterChoiceBackwardArgs a) {
  choice_gradient_of<BF16>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
