// Attention over a part of the keys, the formulas: one row and one key at a time, in double.
#include "kernels/attention_part.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/dot.h"
#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

// Calls f(segment, row, head, first position, number of keys) for every row and head of the segments.
template <class F>
void for_rows(Segments segments, std::span<const int64_t> keys, int64_t heads, int64_t window,
              const F& f) {
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    for (int64_t t = 0; t < segment.rows; ++t) {
      const int64_t i = segment.position_begin + t;
      const int64_t lo = window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
      const int64_t n = std::max<int64_t>(0, std::min(i + 1, keys[s]) - lo);
      for (int64_t h = 0; h < heads; ++h) f(segment, segment.row_begin + t, h, lo, n);
    }
  }
}

}  // namespace

void attention_part_forward(const AttentionPartForward& a) {
  const int64_t H = a.q.dims[1], d = a.q.dims[2], K = a.k.dims[1];
  std::vector<double> p;
  for_rows(a.segments, a.keys, H, a.window,
           [&](const Segment& s, int64_t t, int64_t h, int64_t lo, int64_t n) {
             const int64_t g = h / (H / K), row = (t * H + h) * d;
             const auto key = [&](int64_t j) { return (a.pages.row(s, lo + j) * K + g) * d; };
             double largest = -std::numeric_limits<double>::infinity(), total = 0;
             p.clear();
             for (int64_t j = 0; j < n; ++j) {
               p.push_back(a.scale * dot(a.q, row, a.k, key(j), d));
               largest = std::max(largest, p.back());
             }
             for (const double score : p) total += std::exp(score - largest);
             const double lse = n > 0 ? largest + std::log(total) : largest;
             for (int64_t c = 0; c < d; ++c) {
               double sum = 0;
               for (int64_t j = 0; j < n; ++j) {
                 sum += std::exp(p[static_cast<size_t>(j)] - lse) * get(a.v, key(j) + c);
               }
               set(a.o, row + c, sum);
             }
             set(a.lse, t * H + h, lse);
           });
}

void attention_merge(const AttentionMerge& a) {
  const int64_t H = a.o.dims[1], d = a.o.dims[2];
  for (const Segment& s : a.segments) {
    for (int64_t i = s.row_begin * H; i < (s.row_begin + s.rows) * H; ++i) {
      const double lse = get(a.lse, i), part = get(a.lse_part, i), most = std::max(lse, part);
      if (std::isinf(most)) continue;  // neither has seen a key
      const double sum = std::exp(lse - most) + std::exp(part - most);
      const double keep = std::exp(lse - most) / sum, take = std::exp(part - most) / sum;
      for (int64_t e = i * d; e < (i + 1) * d; ++e) {
        set(a.o, e, keep * get(a.o, e) + take * get(a.o_part, e));
      }
      set(a.lse, i, most + std::log(sum));
    }
  }
}

void attention_delta(const AttentionDelta& a) {
  const int64_t d = a.o.dims[2];
  for (int64_t i = 0; i < a.delta.count(); ++i) set(a.delta, i, dot(a.do_, i * d, a.o, i * d, d));
}

void attention_part_backward(const AttentionPartBackward& a) {
  const int64_t H = a.q.dims[1], d = a.q.dims[2], K = a.k.dims[1];
  std::vector<double> dq(static_cast<size_t>(a.dq.count())), dk(static_cast<size_t>(a.k.count())),
      dv(dk.size());
  for_rows(a.segments, a.keys, H, a.window,
           [&](const Segment& s, int64_t t, int64_t h, int64_t lo, int64_t n) {
             const int64_t first = s.key_begin + lo, row = (t * H + h) * d;
             const double lse = get(a.lse, t * H + h), delta = get(a.delta, t * H + h);
             for (int64_t j = first; j < first + n; ++j) {
               const int64_t key = (j * K + h / (H / K)) * d;
               const double p = std::exp(a.scale * dot(a.q, row, a.k, key, d) - lse);
               const double ds = p * (dot(a.do_, row, a.v, key, d) - delta);
               for (int64_t c = 0; c < d; ++c) {
                 dq[static_cast<size_t>(row + c)] += a.scale * ds * get(a.k, key + c);
                 dk[static_cast<size_t>(key + c)] += a.scale * ds * get(a.q, row + c);
                 dv[static_cast<size_t>(key + c)] += p * get(a.do_, row + c);
               }
             }
           });
  for (size_t e = 0; e < dq.size(); ++e) add(a.dq, static_cast<int64_t>(e), dq[e]);
  for (size_t e = 0; e < dk.size(); ++e) {
    add(a.dk, static_cast<int64_t>(e), dk[e]);
    add(a.dv, static_cast<int64_t>(e), dv[e]);
  }
}

}  // namespace moraine::ref
