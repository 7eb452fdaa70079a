// What each row of attention's backward subtracts: do . o, vectors along the head's width.
#include "kernels/attention_part.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_delta.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

// delta of rows [begin, end): do . o, vectors along d.
template <class E>
void delta_rows(const AttentionDelta& a, int64_t begin, int64_t end) {
  const DF df;
  const int64_t H = a.o.dims[1], d = a.o.dims[2];
  for (int64_t row = begin * H; row < end * H; ++row) {
    const E *x = a.do_.as<E>() + row * d, *y = a.o.as<E>() + row * d;
    VF sum = hn::Zero(df);
    int64_t c = 0;
    for (; c + kLanes <= d; c += kLanes) sum = hn::MulAdd(load(df, x + c), load(df, y + c), sum);
    if (c < d) {
      const auto rest = static_cast<size_t>(d - c);
      sum = hn::MulAdd(load_n(df, x + c, rest), load_n(df, y + c, rest), sum);
    }
    a.delta.as<float>()[row] = hn::GetLane(hn::SumOfLanes(df, sum));
  }
}

void run_delta(const AttentionDelta& a, int64_t begin, int64_t end) {
  a.o.dtype == DType::kF32 ? delta_rows<float>(a, begin, end) : delta_rows<BF16>(a, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(run_delta);

void attention_delta(Context& ctx, const AttentionDelta& a) {
  constexpr int64_t kRowsPerTask = 128;
  MR_CHECK(a.o.dtype != DType::kF64, "f64 is for the reference");
  for_row_tasks(ctx, a.o.dims[0], kRowsPerTask, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(run_delta)(a, begin, end);
  });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
