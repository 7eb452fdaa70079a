// QkNormRope with SIMD: one head at a time through a few rows of scratch that stay in L1.
#include "kernels/qk_norm_rope.h"

#include <algorithm>
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

HWY_INLINE float inverse_norm(float square, int64_t d) {
  return std::sqrt(static_cast<float>(d)) / std::max(std::sqrt(square), kTiny);
}

HWY_INLINE float dot(const float* x, const float* y, int64_t d) {
  const DF df;
  VF sum = hn::Zero(df);
  for_lanes(d, [&](int64_t j, auto part)
                   MR_LANES { sum = hn::MulAdd(get(df, x + j, part), get(df, y + j, part), sum); });
  return sum_lanes(df, sum);
}

// da = factor * n * (dn - xhat (xhat . dn)), xhat = a / |a|, into da and, rounded, dz. Products of
// n are ordered so that the largest n (|a| near tiny) does not overflow.
template <class E>
HWY_INLINE void norm_backward(const float* a, const float* dn, float n, float a_dot_dn,
                              float factor, int64_t d, float* da, E* dz) {
  const DF df;
  // Below tiny the length is a constant: no second term. n is then exactly this value.
  const bool constant = n >= inverse_norm(0, d);
  const float along = constant ? 0 : a_dot_dn * n / static_cast<float>(d) * n;
  const VF scale = hn::Set(df, n * factor), share = hn::Set(df, along);
  for_lanes(d, [&](int64_t j, auto part) MR_LANES {
    const VF across = hn::NegMulAdd(get(df, a + j, part), share, get(df, dn + j, part));
    const VF v = hn::Mul(across, scale);
    put(v, df, da + j, part);
    put(v, df, dz + j, part);
  });
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
  const int64_t T = a.q.dims[0], H = a.q.dims[1], K = a.k.dims[1], d = a.q.dims[2];
  const int64_t N = a.qkv.dims[1], half = a.rope.dims[1], repeat = H / K;
  const float weight = 1.0f / static_cast<float>(repeat);
  float *before = scratch, *pq_sum = scratch + d;
  for (int64_t t = row_begin; t < row_end; ++t) {
    const float* rope = at<float>(a.rope, int64_t{at<int32_t>(a.position, t)[0]} * half * 2);
    for (int64_t g = 0; g < K; ++g) {
      const E* pk = at<E>(a.qkv, t * N + (H + g) * d);
      const E* pq = at<E>(a.qkv, t * N + g * repeat * d);
      for (int64_t h = g * repeat; h < (g + 1) * repeat; ++h) {
        const E* z = at<E>(a.z, (h * T + t) * d);
        const float square = add_mean(z, at<E>(a.qkv, t * N + h * d), 1.0f, pk, d, before);
        const float n = inverse_norm(square, d);
        out_at<float>(a.nq, t * H + h)[0] = n;
        rotate(before, n, rope, 2 * half, d, out_at<E>(a.q, (t * H + h) * d));
      }
      sum_heads(pq, repeat, d, pq_sum);
      const E* z = at<E>(a.z, ((H + g) * T + t) * d);
      const float n = inverse_norm(add_mean(z, pq_sum, weight, pk, d, before), d);
      out_at<float>(a.nk, t * K + g)[0] = n;
      const float temp = at<float>(a.temp, g)[0];
      rotate(before, n * temp, rope, 2 * half, d, out_at<E>(a.k, (t * K + g) * d));
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

// Rows of scratch of the backward pass, [d] each.
struct Rows {
  float *before, *dn, *da, *da_key, *sum;
};

// One row and key head: the gradient of a_k into da_key and dz; adds to the sum of dtemp.
template <class E>
HWY_INLINE void backward_key(const QkNormRopeBackward& a, const Rows& rows, const float* rope,
                             int64_t t, int64_t g, float* dtemp) {
  const int64_t T = a.dq.dims[0], H = a.dq.dims[1], K = a.dk.dims[1], d = a.dq.dims[2];
  const int64_t N = a.qkv.dims[1], half = a.rope.dims[1], repeat = H / K;
  sum_heads(at<E>(a.qkv, t * N + g * repeat * d), repeat, d, rows.sum);
  const int64_t z_row = ((H + g) * T + t) * d;
  add_mean(at<E>(a.z, z_row), rows.sum, 1.0f / static_cast<float>(repeat),
           at<E>(a.qkv, t * N + (H + g) * d), d, rows.before);
  rotate_back(at<E>(a.dk, (t * K + g) * d), rope, 2 * half, d, rows.dn);
  const float a_dot_dn = dot(rows.before, rows.dn, d), n = at<float>(a.nk, t * K + g)[0];
  dtemp[g] += a_dot_dn * n;
  norm_backward(rows.before, rows.dn, n, a_dot_dn, at<float>(a.temp, g)[0], d, rows.da_key,
                out_at<E>(a.dz, z_row));
}

// One row and group: the gradients of its query heads, then the mean's share of dqkv.
template <class E>
HWY_INLINE void backward_queries(const QkNormRopeBackward& a, const Rows& rows, const float* rope,
                                 int64_t t, int64_t g) {
  const DF df;
  const int64_t T = a.dq.dims[0], H = a.dq.dims[1], d = a.dq.dims[2];
  const int64_t N = a.qkv.dims[1], half = a.rope.dims[1], repeat = H / a.dk.dims[1];
  const E* pk = at<E>(a.qkv, t * N + (H + g) * d);
  const VF half_of = hn::Set(df, 0.5f);
  const VF share = hn::Set(df, 1.0f / static_cast<float>(repeat));
  float* const dpk = rows.sum;  // twice the gradient: the sum of da over the group, a_k among it
  for_lanes(d, [&](int64_t j, auto part)
                   MR_LANES { put(get(df, rows.da_key + j, part), df, dpk + j, part); });
  for (int64_t h = g * repeat; h < (g + 1) * repeat; ++h) {
    const int64_t z_row = (h * T + t) * d;
    add_mean(at<E>(a.z, z_row), at<E>(a.qkv, t * N + h * d), 1.0f, pk, d, rows.before);
    rotate_back(at<E>(a.dq, (t * H + h) * d), rope, 2 * half, d, rows.dn);
    norm_backward(rows.before, rows.dn, at<float>(a.nq, t * H + h)[0], dot(rows.before, rows.dn, d),
                  1.0f, d, rows.da, out_at<E>(a.dz, z_row));
    E* dpq = out_at<E>(a.dqkv, t * N + h * d);
    for_lanes(d, [&](int64_t j, auto part) MR_LANES {
      const VF da = get(df, rows.da + j, part);
      const VF dmq = hn::MulAdd(get(df, rows.da_key + j, part), share, da);
      put(hn::Mul(dmq, half_of), df, dpq + j, part);
      put(hn::Add(get(df, dpk + j, part), da), df, dpk + j, part);
    });
  }
  E* const to = out_at<E>(a.dqkv, t * N + (H + g) * d);
  for_lanes(d, [&](int64_t j, auto part)
                   MR_LANES { put(hn::Mul(get(df, dpk + j, part), half_of), df, to + j, part); });
}

template <class E>
void backward_normed(const QkNormRopeBackward& a, int64_t row_begin, int64_t row_end, float* dtemp,
                     float* scratch) {
  const int64_t K = a.dk.dims[1], d = a.dq.dims[2], half = a.rope.dims[1];
  const Rows rows = {scratch, scratch + d, scratch + 2 * d, scratch + 3 * d, scratch + 4 * d};
  for (int64_t t = row_begin; t < row_end; ++t) {
    const float* rope = at<float>(a.rope, int64_t{at<int32_t>(a.position, t)[0]} * half * 2);
    for (int64_t g = 0; g < K; ++g) {
      backward_key<E>(a, rows, rope, t, g, dtemp);
      backward_queries<E>(a, rows, rope, t, g);
    }
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

constexpr int64_t kScratchRows = 5;  // struct Rows

void check_head(int64_t d) {
  MR_CHECK(kScratchRows * d * 4 <= kWorkerScratchBytes - cpu::kSumsBytes, "d=%ld", long(d));
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
  check_head(d);
  for_row_tasks(ctx, T, rows_per_task(heads * d), [&](int64_t begin, int64_t end, int worker) {
    HWY_DYNAMIC_DISPATCH(qk_norm_rope_forward_rows)(a, begin, end, spare_scratch(ctx, worker));
  });
}

void qk_norm_rope_backward(Context& ctx, const QkNormRopeBackward& a) {
  MR_CHECK(a.dq.dtype != DType::kF64);
  const int64_t T = a.dq.dims[0], K = a.dk.dims[1], d = a.dq.dims[2];
  check_head(d);
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
