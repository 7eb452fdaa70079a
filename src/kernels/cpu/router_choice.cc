// RouterChoice: one row at a time in vectors over the classes, padded in scratch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/router_choice.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/router_choice.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

constexpr int32_t kTaken = std::numeric_limits<int32_t>::min();  // below every key
constexpr int32_t kNanKey = kTaken + 1;                          // below every number

// Integers in the order of the scores; a score is never -0 (a sum of +0 and anything is not).
HWY_INLINE VI order_key(VF score) {
  const DI di;
  const VI bits = hn::BitCast(di, score);
  const VI key =
      hn::IfThenElse(hn::Lt(bits, hn::Zero(di)), hn::Xor(bits, hn::Set(di, 0x7fffffff)), bits);
  return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(score)), hn::Set(di, kNanKey), key);
}

// The index of the largest of `padded` keys, the lowest among equals.
HWY_INLINE int32_t best_key(const int32_t* key, int64_t padded) {
  const DI di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(di));
  VI best = hn::LoadU(di, key), index = hn::Iota(di, 0), best_index = index;
  for (int64_t c = lanes; c < padded; c += lanes) {
    index = hn::Add(index, hn::Set(di, static_cast<int32_t>(lanes)));
    const VI k = hn::LoadU(di, key + c);
    const auto more = hn::Gt(k, best);
    best = hn::IfThenElse(more, k, best);
    best_index = hn::IfThenElse(more, index, best_index);
  }
  const VI top = hn::MaxOfLanes(di, best);
  const VI none = hn::Set(di, std::numeric_limits<int32_t>::max());
  return hn::GetLane(hn::MinOfLanes(di, hn::IfThenElse(hn::Eq(best, top), best_index, none)));
}

// row: C logits and padding of -inf in, probabilities and zeros out.
HWY_INLINE void softmax_row(float* row, int64_t padded) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  VF top = load(df, row);
  for (int64_t c = lanes; c < padded; c += lanes) top = hn::Max(top, load(df, row + c));
  top = hn::MaxOfLanes(df, top);
  VF sum = hn::Zero(df);
  for (int64_t c = 0; c < padded; c += lanes) {
    const VF d = hn::Sub(load(df, row + c), top);
    const VF e = hn::IfThenElse(hn::IsNaN(d), d, exp_f(df, d));  // exp_f(NaN) is 0: NaN must show
    store(e, df, row + c);
    sum = hn::Add(sum, e);
  }
  const VF scale = hn::Div(hn::Set(df, 1.0f), hn::SumOfLanes(df, sum));
  for (int64_t c = 0; c < padded; c += lanes) store(hn::Mul(load(df, row + c), scale), df, row + c);
}

// scratch: 3 * padded floats, 64-byte aligned.
void router_choice_forward_rows(const RouterChoiceForward& a, int64_t begin, int64_t end,
                                float* scratch) {
  const DF df;
  const DI di;
  const int64_t C = a.logits.dims[1], n = a.expert.dims[1],
                lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t padded = (C + lanes - 1) / lanes * lanes;
  float *row = scratch, *bias = scratch + padded;
  int32_t* key = reinterpret_cast<int32_t*>(scratch + 2 * padded);
  std::fill_n(bias, padded, 0.0f);
  std::copy_n(a.bias.as<float>(), C, bias);
  for (int64_t t = begin; t < end; ++t) {
    std::fill_n(row + padded - lanes, lanes, -std::numeric_limits<float>::infinity());
    std::copy_n(a.logits.as<float>() + t * C, C, row);
    softmax_row(row, padded);
    std::copy_n(row, C, a.prob.as<float>() + t * C);
    for (int64_t c = 0; c < padded; c += lanes) {
      hn::StoreU(order_key(hn::Add(load(df, row + c), load(df, bias + c))), di, key + c);
    }
    std::fill(key + C, key + padded, kTaken);
    int32_t* expert = a.expert.as<int32_t>() + t * n;
    float* gate = a.gate.as<float>() + t * n;
    bool skipped = false;
    for (int64_t j = 0; j < n; ++j) {
      const int32_t e = skipped ? a.skip : best_key(key, padded);
      expert[j] = e;
      gate[j] = skipped ? 0 : row[e];
      key[e] = kTaken;
      skipped = e == a.skip;
    }
  }
}

template <class E>
void backward_rows(const RouterChoiceBackward& a, int64_t begin, int64_t end) {
  const DF df;
  const int64_t C = a.prob.dims[1], n = a.expert.dims[1];
  for (int64_t t = begin; t < end; ++t) {
    const float *prob = a.prob.as<float>() + t * C, *dgate = a.dgate.as<float>() + t * n;
    const int32_t* expert = a.expert.as<int32_t>() + t * n;
    E* dlogits = a.dlogits.as<E>() + t * C;
    int64_t chosen = 0;  // choices that were not forced
    float mean = 0;
    for (bool skipped = false; chosen < n && !skipped; ++chosen) {
      const int32_t e = expert[chosen];
      MR_CHECK(e >= 0 && e < C, "expert[%ld, %ld] = %d of %ld", long(t), long(chosen), e, long(C));
      mean += dgate[chosen] * prob[e];
      skipped = e == a.skip;
    }
    const VF minus_mean = hn::Set(df, -mean);
    for_lanes(C, [&](int64_t c, auto part) MR_LANES {
      put(hn::Mul(get(df, prob + c, part), minus_mean), df, dlogits + c, part);
    });
    for (int64_t j = 0; j < chosen; ++j) {
      float dprob = 0;
      for (int64_t i = 0; i < chosen; ++i) dprob += expert[i] == expert[j] ? dgate[i] : 0;
      const float value = prob[expert[j]] * (dprob - mean);
      if constexpr (sizeof(E) == sizeof(float)) {
        dlogits[expert[j]] = value;
      } else {
        dlogits[expert[j]] = to_bf16(value);
      }
    }
  }
}

void router_choice_backward_rows(const RouterChoiceBackward& a, int64_t begin, int64_t end) {
  a.dlogits.dtype == DType::kBF16 ? backward_rows<BF16>(a, begin, end)
                                  : backward_rows<float>(a, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(router_choice_forward_rows);
HWY_EXPORT(router_choice_backward_rows);

namespace {
constexpr int64_t kMaxClasses =
    kWorkerScratchBytes / 32;  // three padded rows of floats fit the scratch
}

void router_choice_forward(Context& ctx, const RouterChoiceForward& a) {
  const int64_t T = a.logits.dims[0], C = a.logits.dims[1];
  MR_CHECK(C <= kMaxClasses, "%ld classes", long(C));
  for_row_tasks(ctx, T, rows_per_task(C), [&](int64_t begin, int64_t end, int worker) {
    HWY_DYNAMIC_DISPATCH(router_choice_forward_rows)
    (a, begin, end, ctx.worker_scratch<float>(worker));
  });
}

void router_choice_backward(Context& ctx, const RouterChoiceBackward& a) {
  const int64_t T = a.prob.dims[0], C = a.prob.dims[1];
  for_row_tasks(ctx, T, rows_per_task(C), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(router_choice_backward_rows)(a, begin, end);
  });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
