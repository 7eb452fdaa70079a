// QkNormRope with SIMD: all heads of a row wait in scratch while their lengths are found.
//
// A head's sum, root and division take longer than the rest of its work; done for all heads of a
// row at once they overlap. The scratch of a row (two values per channel) stays in L1.
#include "kernels/qk_norm_rope.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/qk_norm_rope.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

constexpr float kTiny = 1e-12f;
constexpr int64_t kRowsAhead =
    4;  // of qkv and its gradient, whose rows are not read from front to back

template <class E>
HWY_INLINE const E* at(const Tensor& t, int64_t offset) {
  return static_cast<const E*>(t.data) + offset;
}
template <class E>
HWY_INLINE E* out_at(const Tensor& t, int64_t offset) {
  return static_cast<E*>(t.data) + offset;
}

// to = rotate(from * factor), the first `rotary` channels by the angles of `rope`.
template <class E>
HWY_INLINE void rotate(const float* from, float factor, const float* rope, int64_t rotary,
                       int64_t d, E* to) {
  const DF df;
  const VF scale = hn::Set(df, factor);
  const int64_t half = rotary / 2;
  for_lanes(half, [&](int64_t i, auto part) MR_LANES {
    VF cosine, sine;
    get_pairs(df, rope + 2 * i, part, cosine, sine);
    const VF first = hn::Mul(get(df, from + i, part), scale);
    const VF second = hn::Mul(get(df, from + half + i, part), scale);
    put(hn::NegMulAdd(second, sine, hn::Mul(first, cosine)), df, to + i, part);
    put(hn::MulAdd(first, sine, hn::Mul(second, cosine)), df, to + half + i, part);
  });
  for_lanes(d - rotary, [&](int64_t i, auto part) MR_LANES {
    put(hn::Mul(get(df, from + rotary + i, part), scale), df, to + rotary + i, part);
  });
}

// to = the transposed rotation of from.
template <class E, class O>
HWY_INLINE void rotate_back(const E* from, const float* rope, int64_t rotary, int64_t d, O* to) {
  const DF df;
  const int64_t half = rotary / 2;
  for_lanes(half, [&](int64_t i, auto part) MR_LANES {
    VF cosine, sine;
    get_pairs(df, rope + 2 * i, part, cosine, sine);
    const VF first = get(df, from + i, part), second = get(df, from + half + i, part);
    put(hn::MulAdd(second, sine, hn::Mul(first, cosine)), df, to + i, part);
    put(hn::NegMulAdd(first, sine, hn::Mul(second, cosine)), df, to + half + i, part);
  });
  for_lanes(d - rotary, [&](int64_t i, auto part) MR_LANES {
    put(get(df, from + rotary + i, part), df, to + rotary + i, part);
  });
}

// The sum of the query heads of one group.
template <class E>
HWY_INLINE void sum_heads(const E* pq, int64_t repeat, int64_t d, float* sum) {
  const DF df;
  for_lanes(d, [&](int64_t j, auto part) MR_LANES {
    VF v = get(df, pq + j, part);
    for (int64_t h = 1; h < repeat; ++h) v = hn::Add(v, get(df, pq + h * d + j, part));
    put(v, df, sum + j, part);
  });
}

// a = z + (first * weight + second) / 2; returns |a|^2. For a query head weight is 1; for a key
// head `first` is the sum of its group's queries and weight 1 / repeat.
template <class E, class F>
HWY_INLINE float add_mean(const E* z, const F* first, float weight, const E* second, int64_t d,
                          float* a) {
  const DF df;
  const VF scale = hn::Set(df, weight), half = hn::Set(df, 0.5f);
  VF square = hn::Zero(df);
  for_lanes(d, [&](int64_t j, auto part) MR_LANES {
    const VF both = hn::MulAdd(get(df, first + j, part), scale, get(df, second + j, part));
    const VF v = hn::MulAdd(both, half, get(df, z + j, part));
    put(v, df, a + j, part);
    square = hn::MulAdd(v, v, square);
  });
  return sum_lanes(df, square);
}

// n[i] = sqrt(d) / max(sqrt(square[i]), tiny) for `count` heads; both arrays are padded to whole
// vectors.
HWY_INLINE void inverse_norms(const float* square, int64_t count, int64_t d, float* n) {
  const DF df;
  const VF root_d = hn::Sqrt(hn::Set(df, static_cast<float>(d))), tiny = hn::Set(df, kTiny);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  for (int64_t i = 0; i < count; i += lanes) {
    const VF length = hn::Max(hn::Sqrt(load(df, square + i)), tiny);
    store(hn::Div(root_d, length), df, n + i);
  }
}

HWY_INLINE float dot(const float* x, const float* y, int64_t d) {
  const DF df;
  VF sum = hn::Zero(df);
  for_lanes(d, [&](int64_t j, auto part)
                   MR_LANES { sum = hn::MulAdd(get(df, x + j, part), get(df, y + j, part), sum); });
  return sum_lanes(df, sum);
}

// Scratch of one row: [H+K, d] each, then a number per head, padded to whole vectors.
struct Rows {
  float* before;         // a of the header: queries, then keys
  float* dn;             // gradient after the norm
  float *square, *n;     // |a|^2; sqrt(d) / |a|
  float *scale, *along;  // of the backward pass: da = (dn - a along) scale
  float* sum;            // [d] of one group's queries
};

constexpr int64_t padded(int64_t count) { return (count + 15) / 16 * 16; }

Rows rows_in(float* scratch, int64_t G, int64_t d) {
  Rows rows;
  rows.before = scratch;
  rows.dn = rows.before + padded(G * d);
  rows.square = rows.dn + padded(G * d);
  rows.n = rows.square + padded(G);
  rows.scale = rows.n + padded(G);
  rows.along = rows.scale + padded(G);
  rows.sum = rows.along + padded(G);
  return rows;
}

// before[head] and square[head] of row t.
template <class E>
HWY_INLINE void heads_before_norm(const Tensor& qkv, const Tensor& z, int64_t t, int64_t H,
                                  const Rows& rows) {
  const int64_t G = z.dims[0], T = z.dims[1], d = z.dims[2], N = qkv.dims[1];
  const int64_t K = G - H, repeat = H / K;
  for (int64_t g = 0; g < K; ++g) {
    const E* pk = at<E>(qkv, t * N + (H + g) * d);
    for (int64_t h = g * repeat; h < (g + 1) * repeat; ++h) {
      rows.square[h] = add_mean(at<E>(z, (h * T + t) * d), at<E>(qkv, t * N + h * d), 1.0f, pk, d,
                                rows.before + h * d);
    }
    sum_heads(at<E>(qkv, t * N + g * repeat * d), repeat, d, rows.sum);
    rows.square[H + g] =
        add_mean(at<E>(z, ((H + g) * T + t) * d), rows.sum, 1.0f / static_cast<float>(repeat), pk,
                 d, rows.before + (H + g) * d);
  }
}

template <class E>
void forward_plain(const QkNormRopeForward& a, int64_t row_begin, int64_t row_end, float* scratch) {
  const DF df;
  const int64_t H = a.q.dims[1], K = a.k.dims[1], d = a.q.dims[2], N = a.qkv.dims[1];
  const int64_t half = a.rope.dims[1];
  for (int64_t t = row_begin; t < row_end; ++t) {
    const float* rope = at<float>(a.rope, int64_t{at<int32_t>(a.position, t)[0]} * half * 2);
    for (int64_t head = 0; head < H + K; ++head) {
      const E* p = at<E>(a.qkv, t * N + head * d);
      for_lanes(d, [&](int64_t j, auto part)
                       MR_LANES { put(get(df, p + j, part), df, scratch + j, part); });
      E* to =
          head < H ? out_at<E>(a.q, (t * H + head) * d) : out_at<E>(a.k, (t * K + head - H) * d);
      rotate(scratch, 1.0f, rope, 2 * half, d, to);
    }
  }
}

template <class E>
void forward_normed(const QkNormRopeForward& a, int64_t row_begin, int64_t row_end,
                    float* scratch) {
  const int64_t H = a.q.dims[1], K = a.k.dims[1], d = a.q.dims[2], half = a.rope.dims[1];
  const float* temp = at<float>(a.temp, 0);
  const Rows rows = rows_in(scratch, H + K, d);
  for (int64_t t = row_begin; t < row_end; ++t) {
    const float* rope = at<float>(a.rope, int64_t{at<int32_t>(a.position, t)[0]} * half * 2);
    cpu::ask_for_row(a.qkv, t + kRowsAhead, (H + K) * d);
    heads_before_norm<E>(a.qkv, a.z, t, H, rows);
    inverse_norms(rows.square, H + K, d, rows.n);
    for (int64_t h = 0; h < H; ++h) {
      const float n = rows.n[h];
      out_at<float>(a.nq, t * H + h)[0] = n;
      rotate(rows.before + h * d, n, rope, 2 * half, d, out_at<E>(a.q, (t * H + h) * d));
    }
    for (int64_t g = 0; g < K; ++g) {
      const float n = rows.n[H + g];
      out_at<float>(a.nk, t * K + g)[0] = n;
      rotate(rows.before + (H + g) * d, n * temp[g], rope, 2 * half, d,
             out_at<E>(a.k, (t * K + g) * d));
    }
  }
}

template <class E>
void backward_plain(const QkNormRopeBackward& a, int64_t row_begin, int64_t row_end) {
  const int64_t H = a.dq.dims[1], K = a.dk.dims[1], d = a.dq.dims[2], N = a.dqkv.dims[1];
  const int64_t half = a.rope.dims[1];
  for (int64_t t = row_begin; t < row_end; ++t) {
    const float* rope = at<float>(a.rope, int64_t{at<int32_t>(a.position, t)[0]} * half * 2);
    for (int64_t head = 0; head < H + K; ++head) {
      const E* dy =
          head < H ? at<E>(a.dq, (t * H + head) * d) : at<E>(a.dk, (t * K + head - H) * d);
      rotate_back(dy, rope, 2 * half, d, out_at<E>(a.dqkv, t * N + head * d));
    }
  }
}

// scale and along of every head of row t, so that da = (dn - a along) scale; adds to the sums of
// dtemp. With xhat = a / |a|: da = n temp (dn - xhat (xhat . dn)). Products of n are ordered so
// that the largest n
// (|a| near tiny) does not overflow. Below tiny the length is a constant, without a second term.
HWY_INLINE void head_factors(const QkNormRopeBackward& a, int64_t t, const Rows& rows,
                             float* dtemp) {
  const int64_t H = a.dq.dims[1], K = a.dk.dims[1], d = a.dq.dims[2];
  // The quotient at `tiny`, less a few roundings: another backend may have made n.
  const float n_constant = std::sqrt(static_cast<float>(d)) / kTiny * (1 - 0x1p-21f);
  for (int64_t head = 0; head < H + K; ++head) {
    const bool query = head < H;
    const float n = query ? at<float>(a.nq, t * H + head)[0] : at<float>(a.nk, t * K + head - H)[0];
    const float a_dot_dn = dot(rows.before + head * d, rows.dn + head * d, d);
    if (!query) dtemp[head - H] += a_dot_dn * n;
    rows.scale[head] = query ? n : n * at<float>(a.temp, head - H)[0];
    rows.along[head] = n >= n_constant ? 0 : a_dot_dn * n / static_cast<float>(d) * n;
  }
}

// dz of one group's heads, and the mean's gradient into dqkv: dmq[h] = da_q[h] + da_k / repeat.
template <class E>
HWY_INLINE void group_gradients(const QkNormRopeBackward& a, int64_t t, int64_t g,
                                const Rows& rows) {
  const DF df;
  const int64_t T = a.dq.dims[0], H = a.dq.dims[1], d = a.dq.dims[2], N = a.dqkv.dims[1];
  const int64_t repeat = H / a.dk.dims[1], key = H + g;
  const VF half = hn::Set(df, 0.5f), share = hn::Set(df, 1.0f / static_cast<float>(repeat));
  for_lanes(d, [&](int64_t j, auto part) MR_LANES {
    const auto gradient = [&](int64_t head) MR_LANES {
      const VF before = get(df, rows.before + head * d + j, part);
      const VF across = hn::NegMulAdd(before, hn::Set(df, rows.along[head]),
                                      get(df, rows.dn + head * d + j, part));
      const VF da = hn::Mul(across, hn::Set(df, rows.scale[head]));
      put(da, df, out_at<E>(a.dz, (head * T + t) * d + j), part);
      return da;
    };
    const VF da_key = gradient(key), da_shared = hn::Mul(da_key, share);
    VF sum = da_key;
    for (int64_t h = g * repeat; h < (g + 1) * repeat; ++h) {
      const VF da = gradient(h);
      sum = hn::Add(sum, da);
      put(hn::Mul(hn::Add(da, da_shared), half), df, out_at<E>(a.dqkv, t * N + h * d + j), part);
    }
    put(hn::Mul(sum, half), df, out_at<E>(a.dqkv, t * N + key * d + j), part);
  });
}

template <class E>
void backward_normed(const QkNormRopeBackward& a, int64_t row_begin, int64_t row_end, float* dtemp,
                     float* scratch) {
  const int64_t H = a.dq.dims[1], K = a.dk.dims[1], d = a.dq.dims[2], half = a.rope.dims[1];
  const Rows rows = rows_in(scratch, H + K, d);
  for (int64_t t = row_begin; t < row_end; ++t) {
    const float* rope = at<float>(a.rope, int64_t{at<int32_t>(a.position, t)[0]} * half * 2);
    cpu::ask_for_row(a.qkv, t + kRowsAhead, (H + K) * d);
    cpu::ask_for_row(a.dqkv, t + kRowsAhead, (H + K) * d);
    heads_before_norm<E>(a.qkv, a.z, t, H, rows);
    for (int64_t h = 0; h < H; ++h) {
      rotate_back(at<E>(a.dq, (t * H + h) * d), rope, 2 * half, d, rows.dn + h * d);
    }
    for (int64_t g = 0; g < K; ++g) {
      rotate_back(at<E>(a.dk, (t * K + g) * d), rope, 2 * half, d, rows.dn + (H + g) * d);
    }
    head_factors(a, t, rows, dtemp);
    for (int64_t g = 0; g < K; ++g) group_gradients<E>(a, t, g, rows);
  }
}

template <class E>
void forward_of(const QkNormRopeForward& a, int64_t begin, int64_t end, float* scratch) {
  a.z.empty() ? forward_plain<E>(a, begin, end, scratch)
              : forward_normed<E>(a, begin, end, scratch);
}

template <class E>
void backward_of(const QkNormRopeBackward& a, int64_t begin, int64_t end, float* dtemp,
                 float* scratch) {
  a.z.empty() ? backward_plain<E>(a, begin, end)
              : backward_normed<E>(a, begin, end, dtemp, scratch);
}

void qk_norm_rope_forward_rows(const QkNormRopeForward& a, int64_t begin, int64_t end,
                               float* scratch) {
  a.q.dtype == DType::kBF16 ? forward_of<BF16>(a, begin, end, scratch)
                            : forward_of<float>(a, begin, end, scratch);
}

void qk_norm_rope_backward_rows(const QkNormRopeBackward& a, int64_t begin, int64_t end,
                                float* dtemp, float* scratch) {
  a.dq.dtype == DType::kBF16 ? backward_of<BF16>(a, begin, end, dtemp, scratch)
                             : backward_of<float>(a, begin, end, dtemp, scratch);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {
namespace {

HWY_EXPORT(qk_norm_rope_forward_rows);
HWY_EXPORT(qk_norm_rope_backward_rows);

void check_heads(int64_t G, int64_t d) {
  MR_CHECK(heads_fit_scratch(G, d), "%ld heads of %ld", long(G), long(d));
}

}  // namespace

namespace cpu {

void rope_table(Context& ctx, const RopeTable& a) {
  const int64_t P = a.table.dims[0], half = a.table.dims[1];
  MR_CHECK(a.table.dtype == DType::kF32);
  for_row_tasks(ctx, P, rows_per_task(32 * half), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = 0; i < half; ++i) {
      const double exponent = -static_cast<double>(i) / static_cast<double>(half);
      const double frequency = std::pow(a.theta, exponent);
      for (int64_t p = begin; p < end; ++p) {
        const double angle = static_cast<double>(p) * frequency;
        float* pair = a.table.as<float>() + (p * half + i) * 2;
        pair[0] = static_cast<float>(std::cos(angle));
        pair[1] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void qk_norm_rope_forward(Context& ctx, const QkNormRopeForward& a) {
  MR_CHECK(a.q.dtype != DType::kF64);
  const int64_t T = a.q.dims[0], d = a.q.dims[2], heads = a.q.dims[1] + a.k.dims[1];
  check_heads(heads, d);
  for_row_tasks(ctx, T, rows_per_task(heads * d), [&](int64_t begin, int64_t end, int worker) {
    HWY_DYNAMIC_DISPATCH(qk_norm_rope_forward_rows)(a, begin, end, spare_scratch(ctx, worker));
  });
}

void qk_norm_rope_backward(Context& ctx, const QkNormRopeBackward& a) {
  MR_CHECK(a.dq.dtype != DType::kF64);
  const int64_t T = a.dq.dims[0], K = a.dk.dims[1], d = a.dq.dims[2];
  check_heads(a.dq.dims[1] + K, d);
  const auto block = [&](int64_t begin, int64_t end, float* dtemp, int worker) {
    float* const scratch = spare_scratch(ctx, worker);
    HWY_DYNAMIC_DISPATCH(qk_norm_rope_backward_rows)(a, begin, end, dtemp, scratch);
  };
  sum_row_blocks(ctx, T, K, block, [&](const float* dtemp) {
    for (int64_t g = 0; g < K && !a.dtemp.empty(); ++g) a.dtemp.as<float>()[g] += dtemp[g];
  });
}

}  // namespace cpu
}  // namespace moraine
#endif  // HWY_ONCE
