// Attention, the formulas: scores of one row at a time, in double.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ref/dot.h"
#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

// First position that position i sees.
int64_t first_key(int64_t i, int64_t window) {
  return window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
}

}  // namespace

void attention_forward(const AttentionForward& a) {
  const int64_t H = a.q.dims[1], d = a.q.dims[2], K = a.k.dims[1];
  std::vector<double> p, sum(static_cast<size_t>(d));
  for (const Segment& s : a.segments) {
    for (int64_t t = s.row_begin; t < s.row_begin + s.rows; ++t) {
      const int64_t i = s.position_begin + (t - s.row_begin), lo = first_key(i, a.window);
      for (int64_t h = 0; h < H; ++h) {
        const int64_t g = h / (H / K), row = (t * H + h) * d;
        p.clear();
        for (int64_t j = lo; j <= i; ++j) {
          p.push_back(a.scale * dot(a.q, row, a.k, (a.pages.row(s, j) * K + g) * d, d));
        }
        const double largest = *std::max_element(p.begin(), p.end());
        double total = 0;
        for (const double score : p) total += std::exp(score - largest);
        const double lse = largest + std::log(total);
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int64_t j = lo; j <= i; ++j) {
          const double weight = std::exp(p[static_cast<size_t>(j - lo)] - lse);
          const int64_t key = (a.pages.row(s, j) * K + g) * d;
          for (int64_t c = 0; c < d; ++c) sum[static_cast<size_t>(c)] += weight * get(a.v, key + c);
        }
        for (int64_t c = 0; c < d; ++c) set(a.o, row + c, sum[static_cast<size_t>(c)]);
        set(a.lse, t * H + h, lse);
      }
    }
  }
}

void attention_backward(const AttentionBackward& a) {
  const int64_t T = a.q.dims[0], H = a.q.dims[1], d = a.q.dims[2], K = a.k.dims[1];
  const auto size = static_cast<size_t>(T * K * d);
  std::vector<double> dk(size), dv(size), dq(static_cast<size_t>(d));
  for (const Segment& s : a.segments) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t t = s.row_begin; t < s.row_begin + s.rows; ++t) {
        const int64_t i = t - s.row_begin, g = h / (H / K), row = (t * H + h) * d;
        const double lse = get(a.lse, t * H + h), delta = dot(a.do_, row, a.o, row, d);
        set(a.delta, t * H + h, delta);
        std::fill(dq.begin(), dq.end(), 0.0);
        for (int64_t j = first_key(i, a.window); j <= i; ++j) {
          const int64_t key = ((s.row_begin + j) * K + g) * d;
          const double p = std::exp(a.scale * dot(a.q, row, a.k, key, d) - lse);
          const double ds = p * (dot(a.do_, row, a.v, key, d) - delta);
          for (int64_t c = 0; c < d; ++c) {
            dq[static_cast<size_t>(c)] += a.scale * ds * get(a.k, key + c);
            dk[static_cast<size_t>(key + c)] += a.scale * ds * get(a.q, row + c);
            dv[static_cast<size_t>(key + c)] += p * get(a.do_, row + c);
          }
        }
        for (int64_t c = 0; c < d; ++c) set(a.dq, row + c, dq[static_cast<size_t>(c)]);
      }
    }
  }
  for (int64_t e = 0; e < T * K * d; ++e) {
    set(a.dk, e, dk[static_cast<size_t>(e)]);
    set(a.dv, e, dv[static_cast<size_t>(e)]);
  }
}

}  // namespace moraine::ref
