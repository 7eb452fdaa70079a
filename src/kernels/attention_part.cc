// Argument checks, costs and backend choice for parts of attention. No arithmetic on elements here.
#include "kernels/attention_part.h"

#include <algorithm>

#include "kernels/check_keys.h"
#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/attention_backward.h"
#include "kernels/gpu/attention_part.h"

namespace moraine {
namespace {

struct Sizes {
  int64_t T, H, d, R, K;
};

Sizes check_heads(const Tensor& q, const Tensor& k, const Tensor& v) {
  MR_CHECK(q.rank == 3 && k.rank == 3, "q has rank %d, k has rank %d", q.rank, k.rank);
  check_activation(q, "q");
  const Sizes n = {q.dims[0], q.dims[1], q.dims[2], k.dims[0], k.dims[1]};
  MR_CHECK(n.H > 0 && n.K > 0 && n.d > 0, "q is %s, k is %s", shape_text(q).c_str(),
           shape_text(k).c_str());
  MR_CHECK(n.H % n.K == 0, "%ld heads over %ld key heads", long(n.H), long(n.K));
  check_tensor(k, "k", q.dtype, {n.R, n.K, n.d});
  check_tensor(v, "v", q.dtype, {n.R, n.K, n.d});
  return n;
}

// Ascending rows within [0, T), without overlap.
void check_rows(Segments segments, int64_t T) {
  int64_t row = 0;
  for (const Segment& s : segments) {
    MR_CHECK(s.row_begin >= row && s.rows > 0, "segment of %ld rows at row %ld, wanted %ld or more",
             long(s.rows), long(s.row_begin), long(row));
    row = s.row_begin + s.rows;
  }
  MR_CHECK(row <= T, "segments end at row %ld of %ld", long(row), long(T));
}

void check_parts(Segments segments, std::span<const int64_t> keys, const KeyPages& pages,
                 const Sizes& n) {
  check_rows(segments, n.T);
  MR_CHECK(keys.size() == segments.size(), "%zu parts, %zu segments", keys.size(), segments.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const Segment& s = segments[i];
    MR_CHECK(s.position_begin >= 0, "position %ld", long(s.position_begin));
    MR_CHECK(keys[i] > 0, "%ld keys", long(keys[i]));
    check_keys(s, keys[i], pages, n.R);
  }
}

double products(const Sizes& n, Segments segments, std::span<const int64_t> keys, int64_t window) {
  return static_cast<double>(visible_pairs(segments, keys, window)) * static_cast<double>(n.H) *
         static_cast<double>(n.d);
}

// Bytes of q-sized and k-sized tensors of these segments, elements of `size` bytes.
double row_bytes(const Sizes& n, Segments segments, std::span<const int64_t> keys, int64_t size,
                 int64_t q_tensors, int64_t k_tensors) {
  int64_t rows = 0, key_rows = 0;
  for (const Segment& s : segments) rows += s.rows;
  for (const int64_t k : keys) key_rows += k;
  return static_cast<double>((rows * n.H * q_tensors + key_rows * n.K * k_tensors) * n.d * size);
}

}  // namespace

int64_t visible_pairs(Segments segments, std::span<const int64_t> keys, int64_t window) {
  int64_t pairs = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    for (int64_t t = 0; t < segments[s].rows; ++t) {
      const int64_t i = segments[s].position_begin + t;
      const int64_t lo = window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
      pairs += std::max<int64_t>(0, std::min(i + 1, keys[s]) - lo);
    }
  }
  return pairs;
}

void attention_part_forward(Context& ctx, const AttentionPartForward& a) {
  const Sizes n = check_heads(a.q, a.k, a.v);
  const DType wide = wide_dtype(a.q.dtype);
  MR_CHECK(a.scale > 0 && a.window >= 0, "scale=%g window=%ld", double(a.scale), long(a.window));
  check_tensor(a.o, "o", wide, {n.T, n.H, n.d});
  check_tensor(a.lse, "lse", wide, {n.T, n.H});
  check_parts(a.segments, a.keys, a.pages, n);
  if (a.segments.empty()) return;
  const double bytes = row_bytes(n, a.segments, a.keys, dtype_bytes(a.q.dtype), 1, 2) +
                       row_bytes(n, a.segments, a.keys, dtype_bytes(wide), 1, 0);
  OpTimer timer(ctx.profile, "attention_part_forward",
                4 * products(n, a.segments, a.keys, a.window), bytes);
  dispatch(ctx, "attention_part_forward", a,
           {ref::attention_part_forward, cpu::attention_part_forward, gpu::attention_part_forward});
}

void attention_merge(Context& ctx, const AttentionMerge& a) {
  MR_CHECK(a.o.rank == 3, "o has rank %d", a.o.rank);
  const int64_t T = a.o.dims[0], H = a.o.dims[1], d = a.o.dims[2];
  check_tensor(a.o_part, "o_part", a.o.dtype, {T, H, d});
  check_tensor(a.lse, "lse", a.o.dtype, {T, H});
  check_tensor(a.lse_part, "lse_part", a.o.dtype, {T, H});
  check_rows(a.segments, T);
  if (a.segments.empty()) return;
  int64_t rows = 0;
  for (const Segment& s : a.segments) rows += s.rows;
  const double elements = static_cast<double>(rows * H * d);
  OpTimer timer(ctx.profile, "attention_merge", 3 * elements,
                3 * elements * static_cast<double>(dtype_bytes(a.o.dtype)));
  dispatch(ctx, "attention_merge", a,
           {ref::attention_merge, cpu::attention_merge, gpu::attention_merge});
}

void attention_delta(Context& ctx, const AttentionDelta& a) {
  MR_CHECK(a.o.rank == 3, "o has rank %d", a.o.rank);
  check_activation(a.o, "o");
  const int64_t T = a.o.dims[0], H = a.o.dims[1], d = a.o.dims[2];
  check_tensor(a.do_, "do", a.o.dtype, {T, H, d});
  check_tensor(a.delta, "delta", wide_dtype(a.o.dtype), {T, H});
  if (T == 0) return;
  OpTimer timer(ctx.profile, "attention_delta", 2.0 * static_cast<double>(a.o.count()),
                2.0 * static_cast<double>(a.o.bytes()));
  dispatch(ctx, "attention_delta", a,
           {ref::attention_delta, cpu::attention_delta, gpu::attention_delta});
}

void attention_part_backward(Context& ctx, const AttentionPartBackward& a) {
  const Sizes n = check_heads(a.q, a.k, a.v);
  const DType wide = wide_dtype(a.q.dtype);
  MR_CHECK(a.scale > 0 && a.window >= 0, "scale=%g window=%ld", double(a.scale), long(a.window));
  check_tensor(a.dq, "dq", wide, {n.T, n.H, n.d});
  check_tensor(a.dk, "dk", wide, {n.R, n.K, n.d});
  check_tensor(a.dv, "dv", wide, {n.R, n.K, n.d});
  check_tensor(a.do_, "do", a.q.dtype, {n.T, n.H, n.d});
  check_tensor(a.lse, "lse", wide, {n.T, n.H});
  check_tensor(a.delta, "delta", wide, {n.T, n.H});
  check_parts(a.segments, a.keys, {}, n);
  if (a.segments.empty()) return;
  const double bytes = row_bytes(n, a.segments, a.keys, dtype_bytes(a.q.dtype), 2, 2) +
                       row_bytes(n, a.segments, a.keys, dtype_bytes(wide), 2, 4);
  OpTimer timer(ctx.profile, "attention_part_backward",
                10 * products(n, a.segments, a.keys, a.window), bytes);
  dispatch(
      ctx, "attention_part_backward", a,
      {ref::attention_part_backward, cpu::attention_part_backward, gpu::attention_part_backward});
}

}  // namespace moraine
