// CcaConv with SIMD: a strip of channels walks down the rows with its neighbours in registers.
//
// A task takes kRowsPerBlock rows. Inside a head its rows of pair are contiguous, so the strips of
// a head find them in L1; each value is read once per block.
#include "kernels/cca_conv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cca_conv.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/halo_rows.h"
#include "kernels/segment_rows.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

// Rows [begin, end) of one segment, which itself is rows [first, last).
struct Run {
  int64_t begin, end, first, last;
};

// Calls f(run, segment index) for the runs of [row_begin, row_end).
template <class F>
HWY_INLINE void for_runs(Segments segments, int64_t row_begin, int64_t row_end, const F& f) {
  int64_t s = segment_index(segments, row_begin);
  for (int64_t t = row_begin; t < row_end; ++s) {
    const Segment& segment = segments[static_cast<size_t>(s)];
    const int64_t last = segment.row_begin + segment.rows, end = last < row_end ? last : row_end;
    f(Run{t, end, segment.row_begin, last}, s);
    t = end;
  }
}

template <class E, class Part>
HWY_INLINE VF get_or_zero(DF df, const E* p, Part part) {
  return p == nullptr ? hn::Zero(df) : get(df, p, part);
}

// One strip of channels of one run. p: this strip in row 0 of qkv; older, old: in the rows at
// begin - 2 and begin - 1, null for zeros; pair: in row 0 of this head's pairs.
template <class E>
struct ForwardStrip {
  const E *p, *older, *old;
  const float *w, *b;
  E* pair;
  int64_t p_stride, pair_stride;
};

template <class E, class Part>
HWY_INLINE void forward_strip(const ForwardStrip<E>& strip, const Run& run, Part part) {
  const DF df;
  VF w0, w1;
  get_pairs(df, strip.w, part, w0, w1);
  const VF b = get(df, strip.b, part);
  VF before = get_or_zero(df, strip.old, part);
  VF u_before = hn::MulAdd(w1, before, hn::MulAdd(w0, get_or_zero(df, strip.older, part), b));
  for (int64_t t = run.begin; t < run.end; ++t) {
    const VF now = get(df, strip.p + t * strip.p_stride, part);
    const VF u = hn::MulAdd(w1, now, hn::MulAdd(w0, before, b));
    put_pairs(u_before, u, df, strip.pair + t * strip.pair_stride, part);
    before = now;
    u_before = u;
  }
}

// The row `row` of p if the segment has it, else row `row - first + 2` of its halo, else null.
template <class E>
HWY_INLINE const E* row_before(const CcaConvForward& a, const Run& run, int64_t s, int64_t row) {
  if (row >= run.first) return static_cast<const E*>(a.qkv.data) + row * a.qkv.dims[1];
  const int64_t halo = a.halo.empty() ? -1 : halo_row_of(a.halo_row, s);
  if (halo < 0) return nullptr;
  return static_cast<const E*>(a.halo.data) + (2 * halo + row - run.first + 2) * a.b.dims[0];
}

template <class E>
void forward_of(const CcaConvForward& a, int64_t row_begin, int64_t row_end) {
  const int64_t G = a.pair.dims[0], T = a.pair.dims[1], d = a.pair.dims[2] / 2, N = a.qkv.dims[1];
  const float *w = static_cast<const float*>(a.w.data), *b = static_cast<const float*>(a.b.data);
  for_runs(a.segments, row_begin, row_end, [&](const Run& run, int64_t s) MR_LANES {
    const E* older = row_before<E>(a, run, s, run.begin - 2);
    const E* old = row_before<E>(a, run, s, run.begin - 1);
    for (int64_t g = 0; g < G; ++g) {
      for_lanes(d, [&](int64_t j, auto part) MR_LANES {
        const int64_t c = g * d + j;
        const ForwardStrip<E> strip = {static_cast<const E*>(a.qkv.data) + c,
                                       older == nullptr ? nullptr : older + c,
                                       old == nullptr ? nullptr : old + c,
                                       w + 2 * c,
                                       b + c,
                                       static_cast<E*>(a.pair.data) + g * T * 2 * d + 2 * j,
                                       N,
                                       2 * d};
        forward_strip(strip, run, part);
      });
    }
  });
}

// As ForwardStrip; sums: dw of tap 0, dw of tap 1 and db of this strip, C apart; halo, dhalo: two
// rows, C apart, null for none.
template <class E>
struct BackwardStrip {
  const E *p, *dpair, *halo;
  const float* w;
  E* dp;
  float *dhalo, *sums;
  int64_t p_stride, pair_stride, C;
};

template <class E, class Part>
HWY_INLINE void backward_strip(const BackwardStrip<E>& strip, const Run& run, Part part) {
  const DF df;
  VF w0, w1;
  get_pairs(df, strip.w, part, w0, w1);
  VF dw0 = hn::Zero(df), dw1 = dw0, db = dw0, before = dw0;
  if (run.begin > run.first) before = get(df, strip.p + (run.begin - 1) * strip.p_stride, part);
  // tap0, odd: the gradients of u[row - 1] and u[row] in a row of pairs; zero after the segment.
  VF tap0, odd, odd_next = hn::Zero(df);
  get_pairs(df, strip.dpair + run.begin * strip.pair_stride, part, tap0, odd);
  const VF du_before = tap0;  // of u[-1], if this is the segment's first row
  if (run.begin == run.first) db = tap0;
  if (run.begin == run.first && strip.halo != nullptr) {
    before = get(df, strip.halo + strip.C, part);
    dw0 = hn::Mul(tap0, get(df, strip.halo, part));
    dw1 = hn::Mul(tap0, before);
  }
  tap0 = hn::Zero(df);
  if (run.begin + 1 < run.last) {
    get_pairs(df, strip.dpair + (run.begin + 1) * strip.pair_stride, part, tap0, odd_next);
  }
  VF du = hn::Add(odd, tap0);
  if (run.begin == run.first && strip.dhalo != nullptr) {
    put(hn::Mul(w0, du_before), df, strip.dhalo, part);
    put(hn::MulAdd(w1, du_before, hn::Mul(w0, du)), df, strip.dhalo + strip.C, part);
  }
  for (int64_t t = run.begin; t < run.end; ++t) {
    odd = odd_next;
    tap0 = odd_next = hn::Zero(df);
    if (t + 2 < run.last) {
      get_pairs(df, strip.dpair + (t + 2) * strip.pair_stride, part, tap0, odd_next);
    }
    const VF du_next = hn::Add(odd, tap0);
    const VF now = get(df, strip.p + t * strip.p_stride, part);
    E* dp = strip.dp + t * strip.p_stride;
    const VF sum = hn::MulAdd(w1, du, hn::MulAdd(w0, du_next, get(df, dp, part)));
    put(sum, df, dp, part);
    dw0 = hn::MulAdd(du, before, dw0);
    dw1 = hn::MulAdd(du, now, dw1);
    db = hn::Add(db, du);
    before = now;
    du = du_next;
  }
  float* sums = strip.sums;
  put(hn::Add(dw0, get(df, sums, part)), df, sums, part);
  sums += strip.C;
  put(hn::Add(dw1, get(df, sums, part)), df, sums, part);
  sums += strip.C;
  put(hn::Add(db, get(df, sums, part)), df, sums, part);
}

template <class E>
void backward_of(const CcaConvBackward& a, int64_t row_begin, int64_t row_end, float* sums) {
  const int64_t G = a.dpair.dims[0], T = a.dpair.dims[1], d = a.dpair.dims[2] / 2;
  const int64_t N = a.qkv.dims[1], C = G * d;
  for_runs(a.segments, row_begin, row_end, [&](const Run& run, int64_t s) MR_LANES {
    const int64_t row = halo_row_of(a.halo_row, s), at = row * 2 * C;
    const bool with_halo = row >= 0 && !a.halo.empty(), with_dhalo = row >= 0 && !a.dhalo.empty();
    const E* halo = with_halo ? static_cast<const E*>(a.halo.data) + at : nullptr;
    float* dhalo = with_dhalo ? static_cast<float*>(a.dhalo.data) + at : nullptr;
    for (int64_t g = 0; g < G; ++g) {
      for_lanes(d, [&](int64_t j, auto part) MR_LANES {
        const int64_t c = g * d + j;
        const BackwardStrip<E> strip = {static_cast<const E*>(a.qkv.data) + c,
                                        static_cast<const E*>(a.dpair.data) + g * T * 2 * d + 2 * j,
                                        halo == nullptr ? nullptr : halo + c,
                                        static_cast<const float*>(a.w.data) + 2 * c,
                                        static_cast<E*>(a.dqkv.data) + c,
                                        dhalo == nullptr ? nullptr : dhalo + c,
                                        sums + c,
                                        N,
                                        2 * d,
                                        C};
        backward_strip(strip, run, part);
      });
    }
  });
}

void cca_conv_forward_rows(const CcaConvForward& a, int64_t begin, int64_t end) {
  a.qkv.dtype == DType::kBF16 ? forward_of<BF16>(a, begin, end) : forward_of<float>(a, begin, end);
}

void cca_conv_backward_rows(const CcaConvBackward& a, int64_t begin, int64_t end, float* sums) {
  a.qkv.dtype == DType::kBF16 ? backward_of<BF16>(a, begin, end, sums)
                              : backward_of<float>(a, begin, end, sums);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {
namespace {

HWY_EXPORT(cca_conv_forward_rows);
HWY_EXPORT(cca_conv_backward_rows);

}  // namespace

namespace cpu {

void cca_conv_forward(Context& ctx, const CcaConvForward& a) {
  MR_CHECK(a.qkv.dtype != DType::kF64);
  for_row_tasks(ctx, a.qkv.dims[0], kRowsPerBlock, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(cca_conv_forward_rows)(a, begin, end);
  });
}

void cca_conv_backward(Context& ctx, const CcaConvBackward& a) {
  MR_CHECK(a.qkv.dtype != DType::kF64);
  const int64_t C = a.db.dims[0];
  const auto block = [&](int64_t begin, int64_t end, float* sums, int) {
    HWY_DYNAMIC_DISPATCH(cca_conv_backward_rows)(a, begin, end, sums);
  };
  sum_row_blocks(ctx, a.qkv.dims[0], 3 * C, block, [&](const float* sums) {
    for (int64_t c = 0; c < C; ++c) {
      a.dw.as<float>()[2 * c] += sums[c];
      a.dw.as<float>()[2 * c + 1] += sums[C + c];
      a.db.as<float>()[c] += sums[2 * C + c];
    }
  });
}

}  // namespace cpu
}  // namespace moraine
#endif  // HWY_ONCE
