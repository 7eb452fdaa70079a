// RouterChoice forward takes as many rows at a time as a vector has lanes, transposed in scratch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/router_choice.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/exp.h"
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

// Softmax down the columns: x[c] holds class c of `lanes` rows. NaN in a column fills it.
HWY_INLINE void softmax_columns(float* x, int64_t C) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  VF top = load(df, x), sum = hn::Zero(df);
  for (int64_t c = 1; c < C; ++c) top = hn::Max(top, load(df, x + c * lanes));
  for (int64_t c = 0; c < C; ++c) {
    const VF e = exp_nonpositive(df, hn::Sub(load(df, x + c * lanes), top));
    store(e, df, x + c * lanes);
    sum = hn::Add(sum, e);
  }
  const VF scale = hn::Div(hn::Set(df, 1.0f), sum);
  for (int64_t c = 0; c < C; ++c) store(hn::Mul(load(df, x + c * lanes), scale), df, x + c * lanes);
}

struct Best {
  VI index;
  VF prob;
};

// The largest key of each column that is not `before`, the lowest class among equals; marks
// `before` as taken.
HWY_INLINE Best best_keys(int32_t* key, const float* prob, int64_t C, VI before) {
  const DF df;
  const DI di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  VI top = hn::Set(di, kTaken);
  Best best = {.index = hn::Zero(di), .prob = load(df, prob)};
  for (int64_t c = 0; c < C; ++c) {
    const VI at = hn::Set(di, static_cast<int32_t>(c));
    const VI k =
        hn::IfThenElse(hn::Eq(at, before), hn::Set(di, kTaken), hn::LoadU(di, key + c * lanes));
    hn::StoreU(k, di, key + c * lanes);
    const auto more = hn::Gt(k, top);
    top = hn::IfThenElse(more, k, top);
    best.index = hn::IfThenElse(more, at, best.index);
    best.prob = hn::IfThenElse(hn::RebindMask(df, more), load(df, prob + c * lanes), best.prob);
  }
  return best;
}

// One transposed block: lanes rows from row `begin`, of which `rows` exist.
// scratch: prob and key [C][lanes], then index and gate [n][lanes].
HWY_INLINE void forward_block(const RouterChoiceForward& a, int64_t begin, int64_t rows,
                              float* scratch) {
  const DF df;
  const DI di;
  const int64_t C = a.logits.dims[1], n = a.expert.dims[1],
                lanes = static_cast<int64_t>(hn::Lanes(df));
  const float *logits = a.logits.as<float>() + begin * C, *bias = a.bias.as<float>();
  float *prob = scratch, *gate = scratch + 2 * C * lanes;
  int32_t *key = reinterpret_cast<int32_t*>(scratch + C * lanes),
          *index = reinterpret_cast<int32_t*>(gate + n * lanes);
  for (int64_t r = 0; r < lanes; ++r) {
    const float* from = logits + std::min(r, rows - 1) * C;  // missing rows repeat the last
    for (int64_t c = 0; c < C; ++c) prob[c * lanes + r] = from[c];
  }
  softmax_columns(prob, C);
  for (int64_t c = 0; c < C; ++c) {
    const VF score = hn::Add(load(df, prob + c * lanes), hn::Set(df, bias[c]));
    hn::StoreU(order_key(score), di, key + c * lanes);
  }
  const VI skip = hn::Set(di, a.skip);  // -1: never equal
  VI before = hn::Set(di, -1);
  auto skipped = hn::Lt(hn::Zero(di), hn::Zero(di));
  for (int64_t j = 0; j < n; ++j) {
    const Best best = best_keys(key, prob, C, before);
    before = best.index;
    hn::StoreU(hn::IfThenElse(skipped, skip, best.index), di, index + j * lanes);
    store(hn::IfThenZeroElse(hn::RebindMask(df, skipped), best.prob), df, gate + j * lanes);
    skipped = hn::Or(skipped, hn::Eq(best.index, skip));
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* to = a.prob.as<float>() + (begin + r) * C;
    for (int64_t c = 0; c < C; ++c) to[c] = prob[c * lanes + r];
    for (int64_t j = 0; j < n; ++j) {
      a.expert.as<int32_t>()[(begin + r) * n + j] = index[j * lanes + r];
      a.gate.as<float>()[(begin + r) * n + j] = gate[j * lanes + r];
    }
  }
}

void router_choice_forward_rows(const RouterChoiceForward& a, int64_t begin, int64_t end,
                                float* scratch) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (; begin < end; begin += lanes)
    forward_block(a, begin, std::min(lanes, end - begin), scratch);
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
constexpr int64_t kRowsPerTask = 64;  // whole vectors, a few microseconds
}  // namespace

void router_choice_forward(Context& ctx, const RouterChoiceForward& a) {
  const int64_t T = a.logits.dims[0], C = a.logits.dims[1];
  MR_CHECK(C <= kRouterClassesMax, "%ld classes", long(C));
  for_row_tasks(ctx, T, kRowsPerTask, [&](int64_t begin, int64_t end, int worker) {
    HWY_DYNAMIC_DISPATCH(router_choice_forward_rows)
    (a, begin, end, ctx.worker_scratch<float>(worker));
  });
}

void router_choice_backward(Context& ctx, const RouterChoiceBackward& a) {
  for_row_tasks(ctx, a.prob.dims[0], kRowsPerTask, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(router_choice_backward_rows)(a, begin, end);
  });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
