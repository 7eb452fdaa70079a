// ExpertDispatch: rows copied and summed in whole vectors; a task takes a few tokens.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expert_dispatch.cc"
#include "hwy/foreach_target.h"

#include <cstring>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/expert_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

// One term of a token's sum: the expert's row, or the token's own for a skip that is the identity.
template <class E>
const E* term(const E* ye, const E* x, int64_t t, int32_t row, int64_t D) {
  if (row >= 0) return ye + row * D;
  return x == nullptr ? nullptr : x + t * D;
}

template <class E>
E* data_if(const Tensor& t, bool wanted) {
  return wanted ? t.as<E>() : nullptr;
}

template <class E>
void combine_rows(const CombineForward& a, int64_t begin, int64_t end) {
  const DF df;
  const int64_t D = a.h.dims[1], n = a.row_of.dims[1];
  const E *ye = a.ye.as<E>(), *x = data_if<E>(a.x, a.skip_identity);
  for (int64_t t = begin; t < end; ++t) {
    const int32_t* row = a.row_of.as<int32_t>() + t * n;
    const float* gate = a.gate.as<float>() + t * n;
    E* h = a.h.as<E>() + t * D;
    for_lanes(D, [&](int64_t d, auto part) MR_LANES {
      VF sum = hn::Zero(df);
      for (int64_t j = 0; j < n; ++j) {
        const E* y = term(ye, x, t, row[j], D);
        if (y != nullptr) sum = hn::MulAdd(hn::Set(df, gate[j]), get(df, y + d, part), sum);
      }
      put(sum, df, h + d, part);
    });
  }
}

template <class E>
void dispatch_backward_of(const DispatchBackward& a, int64_t begin, int64_t end) {
  const DF df;
  const int64_t D = a.dx.dims[1], n = a.row_of.dims[1];
  const E* dxe = a.dxe.as<E>();
  for (int64_t t = begin; t < end; ++t) {
    const int32_t* row = a.row_of.as<int32_t>() + t * n;
    float* dx = a.dx.as<float>() + t * D;
    for_lanes(D, [&](int64_t d, auto part) MR_LANES {
      VF sum = hn::Zero(df);
      for (int64_t j = 0; j < n; ++j) {
        if (row[j] >= 0) sum = hn::Add(sum, get(df, dxe + row[j] * D + d, part));
      }
      put(hn::Add(get(df, dx + d, part), sum), df, dx + d, part);
    });
  }
}

// dh . y, in an order that is a function of D: whole vectors to four sums in turn.
template <class E>
HWY_INLINE float dot(const E* dh, const E* y, int64_t D) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  VF s0 = hn::Zero(df), s1 = s0, s2 = s0, s3 = s0;
  int64_t d = 0;
  for (; d + 4 * lanes <= D; d += 4 * lanes) {
    s0 = hn::MulAdd(load(df, dh + d), load(df, y + d), s0);
    s1 = hn::MulAdd(load(df, dh + d + lanes), load(df, y + d + lanes), s1);
    s2 = hn::MulAdd(load(df, dh + d + 2 * lanes), load(df, y + d + 2 * lanes), s2);
    s3 = hn::MulAdd(load(df, dh + d + 3 * lanes), load(df, y + d + 3 * lanes), s3);
  }
  for_lanes(D - d, [&](int64_t i, auto part) MR_LANES {
    s0 = hn::MulAdd(get(df, dh + d + i, part), get(df, y + d + i, part), s0);
  });
  return sum_lanes(df, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

template <class E>
void combine_backward_of(const CombineBackward& a, int64_t begin, int64_t end) {
  const DF df;
  const int64_t D = a.dh.dims[1], n = a.row_of.dims[1];
  const E *ye = a.ye.as<E>(), *x = data_if<E>(a.x, a.skip_identity);
  for (int64_t t = begin; t < end; ++t) {
    const E* dh = a.dh.as<E>() + t * D;
    for (int64_t j = 0; j < n; ++j) {
      const int32_t row = a.row_of.as<int32_t>()[t * n + j];
      const E* y = term(ye, x, t, row, D);
      a.dgate.as<float>()[t * n + j] = y == nullptr ? 0 : dot(dh, y, D);
      const VF gate = hn::Set(df, a.gate.as<float>()[t * n + j]);
      if (row >= 0) {
        E* dye = a.dye.as<E>() + row * D;
        for_lanes(D, [&](int64_t d, auto part) MR_LANES {
          put(hn::Mul(gate, get(df, dh + d, part)), df, dye + d, part);
        });
      } else if (y != nullptr) {
        float* dx = a.dx.as<float>() + t * D;
        for_lanes(D, [&](int64_t d, auto part) MR_LANES {
          put(hn::MulAdd(gate, get(df, dh + d, part), get(df, dx + d, part)), df, dx + d, part);
        });
      }
    }
  }
}

void combine_forward_rows(const CombineForward& a, int64_t begin, int64_t end) {
  a.h.dtype == DType::kBF16 ? combine_rows<BF16>(a, begin, end)
                            : combine_rows<float>(a, begin, end);
}

void dispatch_backward_rows(const DispatchBackward& a, int64_t begin, int64_t end) {
  a.dxe.dtype == DType::kBF16 ? dispatch_backward_of<BF16>(a, begin, end)
                              : dispatch_backward_of<float>(a, begin, end);
}

void combine_backward_rows(const CombineBackward& a, int64_t begin, int64_t end) {
  a.dh.dtype == DType::kBF16 ? combine_backward_of<BF16>(a, begin, end)
                             : combine_backward_of<float>(a, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(combine_forward_rows);
HWY_EXPORT(combine_backward_rows);
HWY_EXPORT(dispatch_backward_rows);

void dispatch_forward(Context& ctx, const DispatchForward& a) {
  MR_CHECK(a.x.dtype != DType::kF64);
  const int64_t T = a.x.dims[0], D = a.x.dims[1], n = a.xe.dims[0] / T;
  const int64_t used = a.rows.as<int64_t>()[a.rows.count() - 1],
                row_bytes = D * dtype_bytes(a.x.dtype);
  const int32_t* choice_of = a.choice_of.as<int32_t>();
  for_row_tasks(ctx, used, rows_per_task(D), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(static_cast<char*>(a.xe.data) + row * row_bytes,
                  static_cast<const char*>(a.x.data) + choice_of[row] / n * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  });
}

void dispatch_backward(Context& ctx, const DispatchBackward& a) {
  const int64_t T = a.dx.dims[0], D = a.dx.dims[1];
  for_row_tasks(ctx, T, rows_per_task(D), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(dispatch_backward_rows)(a, begin, end);
  });
}

void combine_forward(Context& ctx, const CombineForward& a) {
  const int64_t T = a.h.dims[0], D = a.h.dims[1];
  for_row_tasks(ctx, T, rows_per_task(D), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(combine_forward_rows)(a, begin, end);
  });
}

void combine_backward(Context& ctx, const CombineBackward& a) {
  const int64_t T = a.dh.dims[0], D = a.dh.dims[1];
  for_row_tasks(ctx, T, rows_per_task(D), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(combine_backward_rows)(a, begin, end);
  });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
