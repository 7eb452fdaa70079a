// Argument checks, costs and backend choice for attention. No arithmetic on elements here.
#include "kernels/attention.h"

#include <algorithm>

#include "kernels/check_keys.h"
#include "kernels/check_tensor.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/attention_backward.h"
#include "kernels/segment_rows.h"

namespace moraine {
namespace {

// 1 + 2 + ... + n, each term at most `window` (0: no limit).
int64_t pairs_from_start(int64_t n, int64_t window) {
  const int64_t growing = window > 0 ? std::min(n, window) : n;
  return growing * (growing + 1) / 2 + (n - growing) * window;
}

void check_heads(const Tensor& q, const Tensor& k) {
  MR_CHECK(q.rank == 3 && k.rank == 3, "q has rank %d, k has rank %d", q.rank, k.rank);
  check_activation(q, "q");
  MR_CHECK(q.dims[1] > 0 && k.dims[1] > 0 && q.dims[2] > 0, "q is %s, k is %s",
           shape_text(q).c_str(), shape_text(k).c_str());
  MR_CHECK(q.dims[1] % k.dims[1] == 0, "%ld heads over %ld key heads", long(q.dims[1]),
           long(k.dims[1]));
}

void check_options(float scale, int64_t window) {
  MR_CHECK(scale > 0, "scale=%g", double(scale));
  MR_CHECK(window >= 0, "window=%ld", long(window));
}

// (row, head, key) triples times d.
double products(const Tensor& q, Segments segments, int64_t window) {
  return static_cast<double>(visible_pairs(segments, window)) * static_cast<double>(q.dims[1]) *
         static_cast<double>(q.dims[2]);
}

// Bytes of the rows of k (or v) that the segments see at all.
double key_bytes(const Tensor& k, Segments segments, int64_t window) {
  double rows = 0;
  for (const Segment& s : segments) {
    const int64_t end = s.position_begin + s.rows;
    rows += static_cast<double>(window > 0 ? std::min(end, s.rows + window - 1) : end);
  }
  return rows * static_cast<double>(k.dims[1] * k.dims[2] * dtype_bytes(k.dtype));
}

}  // namespace

int64_t visible_pairs(Segments segments, int64_t window) {
  int64_t pairs = 0;
  for (const Segment& s : segments) {
    pairs += pairs_from_start(s.position_begin + s.rows, window) -
             pairs_from_start(s.position_begin, window);
  }
  return pairs;
}

void attention_forward(Context& ctx, const AttentionForward& a) {
  check_heads(a.q, a.k);
  check_options(a.scale, a.window);
  const int64_t T = a.q.dims[0], H = a.q.dims[1], d = a.q.dims[2], R = a.k.dims[0], K = a.k.dims[1];
  const DType activation = a.q.dtype;
  check_tensor(a.o, "o", activation, {T, H, d});
  check_tensor(a.lse, "lse", wide_dtype(activation), {T, H});
  check_tensor(a.k, "k", activation, {R, K, d});
  check_tensor(a.v, "v", activation, {R, K, d});
  check_segments(a.segments, T);
  for (const Segment& s : a.segments) check_keys(s, s.position_begin + s.rows, a.pages, R);
  if (T == 0) return;
  const double bytes = static_cast<double>(a.q.bytes() + a.o.bytes() + a.lse.bytes()) +
                       2 * key_bytes(a.k, a.segments, a.window);
  OpTimer timer(ctx.profile, "attention_forward", 4 * products(a.q, a.segments, a.window), bytes);
  dispatch(ctx, "attention_forward", a,
           {ref::attention_forward, cpu::attention_forward, gpu::attention_forward});
}

void attention_backward(Context& ctx, const AttentionBackward& a) {
  check_heads(a.q, a.k);
  check_options(a.scale, a.window);
  const int64_t T = a.q.dims[0], H = a.q.dims[1], d = a.q.dims[2], K = a.k.dims[1];
  const DType activation = a.q.dtype, wide = wide_dtype(activation);
  check_tensor(a.dq, "dq", activation, {T, H, d});
  check_tensor(a.dk, "dk", activation, {T, K, d});
  check_tensor(a.dv, "dv", activation, {T, K, d});
  check_tensor(a.delta, "delta", wide, {T, H});
  check_tensor(a.do_, "do", activation, {T, H, d});
  check_tensor(a.o, "o", activation, {T, H, d});
  check_tensor(a.lse, "lse", wide, {T, H});
  check_tensor(a.k, "k", activation, {T, K, d});
  check_tensor(a.v, "v", activation, {T, K, d});
  check_segments(a.segments, T);
  for (const Segment& s : a.segments) {
    MR_CHECK(s.position_begin == 0 && s.key_begin == s.row_begin,
             "segment at row %ld begins at position %ld, key row %ld", long(s.row_begin),
             long(s.position_begin), long(s.key_begin));
  }
  if (T == 0) return;
  const double bytes = static_cast<double>(4 * a.q.bytes() + 4 * a.k.bytes() + 2 * a.lse.bytes());
  OpTimer timer(ctx.profile, "attention_backward", 10 * products(a.q, a.segments, a.window), bytes);
  dispatch(ctx, "attention_backward", a,
           {ref::attention_backward, cpu::attention_backward, gpu::attention_backward});
}

}  // namespace moraine
