// Swiglu row by row in whole vectors; a task takes a few rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/exp.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/swiglu.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

// exp only ever sees -|v|: no overflow at either end.
HWY_INLINE VF sigmoid(DF df, VF v) {
  const VF one = hn::Set(df, 1.0f), e = exp_nonpositive(df, hn::Neg(hn::Abs(v)));
  const VF top = hn::IfThenElse(hn::Lt(v, hn::Zero(df)), e, one);
  return hn::Div(top, hn::Add(one, e));
}

template <class E>
void forward_rows(const SwigluForward& a, int64_t begin, int64_t end) {
  const DF df;
  const int64_t F = a.y.dims[1];
  for (int64_t t = begin; t < end; ++t) {
    const E *gate = a.gate_up.as<E>() + t * 2 * F, *up = gate + F;
    E* y = a.y.as<E>() + t * F;
    for_lanes(F, [&](int64_t f, auto part) MR_LANES {
      const VF g = get(df, gate + f, part);
      const VF silu = hn::Mul(g, sigmoid(df, g));
      put(hn::Mul(silu, get(df, up + f, part)), df, y + f, part);
    });
  }
}

template <class E>
void backward_rows(const SwigluBackward& a, int64_t begin, int64_t end) {
  const DF df;
  const VF one = hn::Set(df, 1.0f);
  const int64_t F = a.dy.dims[1];
  for (int64_t t = begin; t < end; ++t) {
    const E *gate = a.gate_up.as<E>() + t * 2 * F, *up = gate + F, *dy = a.dy.as<E>() + t * F;
    E *dgate = a.dgate_up.as<E>() + t * 2 * F, *dup = dgate + F;
    for_lanes(F, [&](int64_t f, auto part) MR_LANES {
      const VF g = get(df, gate + f, part), u = get(df, up + f, part), d = get(df, dy + f, part);
      const VF s = sigmoid(df, g);
      const VF slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
      put(hn::Mul(hn::Mul(d, u), slope), df, dgate + f, part);
      put(hn::Mul(d, hn::Mul(g, s)), df, dup + f, part);
    });
  }
}

void swiglu_forward_rows(const SwigluForward& a, int64_t begin, int64_t end) {
  a.y.dtype == DType::kBF16 ? forward_rows<BF16>(a, begin, end)
                            : forward_rows<float>(a, begin, end);
}

void swiglu_backward_rows(const SwigluBackward& a, int64_t begin, int64_t end) {
  a.dy.dtype == DType::kBF16 ? backward_rows<BF16>(a, begin, end)
                             : backward_rows<float>(a, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(swiglu_forward_rows);
HWY_EXPORT(swiglu_backward_rows);

void swiglu_forward(Context& ctx, const SwigluForward& a) {
  for_row_tasks(ctx, a.rows, rows_per_task(a.gate_up.dims[1]),
                [&](int64_t begin, int64_t end, int) {
                  HWY_DYNAMIC_DISPATCH(swiglu_forward_rows)(a, begin, end);
                });
}

void swiglu_backward(Context& ctx, const SwigluBackward& a) {
  for_row_tasks(ctx, a.rows, rows_per_task(a.gate_up.dims[1]),
                [&](int64_t begin, int64_t end, int) {
                  HWY_DYNAMIC_DISPATCH(swiglu_backward_rows)(a, begin, end);
                });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
