// AttentionAllowed: what a correct attention kernel may be off by, element by element (tests).
//
// A bf16 product rounds its left factor, P or dS: a relative error uniform in +-2^-9, independent
// from term to term, so variances add. In f32, a score is off by about 2^-24 |q| |k|, which is a
// relative error of P; dP - delta by 2^-24 (|do| |v| + |delta|); a sum of terms by one rounding
// each; each merge of parts by a few. These may be shared by all terms of a row, so they add
// linearly.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "kernels/ref/element.h"
#include "kernels/segment.h"

namespace moraine::testing {

// Calls f(row, key row) for all that segments see; keys: of parts (attention_part.h), or empty.
template <class F>
void for_visible_pairs(Segments segments, std::span<const int64_t> keys, int64_t window,
                       const F& f) {
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    for (int64_t t = 0; t < segment.rows; ++t) {
      const int64_t i = segment.position_begin + t;
      const int64_t lo = window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
      const int64_t end = keys.empty() ? i + 1 : std::min(i + 1, keys[s]);
      for (int64_t j = lo; j < end; ++j) f(segment.row_begin + t, segment.key_begin + j);
    }
  }
}

class AttentionAllowed {
 public:
  struct Inputs {
    Tensor q, k, v, do_, lse, delta;  // lse, delta of the whole
    float scale;
  };
  struct Error {
    double variance = 0, linear = 0;
    void add(double term, double random, double shared) {
      variance += term * random * term * random;
      linear += std::abs(term) * shared;
    }
  };

  // parts: how many are merged. for_pairs(f) calls f(row, key row).
  template <class ForPairs>
  AttentionAllowed(const Inputs& a, int64_t parts, const ForPairs& for_pairs)
      : H_(a.q.dims[1]),
        K_(a.k.dims[1]),
        d_(a.q.dims[2]),
        parts_(parts),
        rounding_(a.q.dtype == DType::kBF16 ? 0x1.0p-9 / std::sqrt(3.0) : 0),
        o(static_cast<size_t>(a.q.count())),
        dq(o.size()),
        dk(static_cast<size_t>(a.k.count())),
        dv(dk.size()) {
    for_pairs([&](int64_t t, int64_t j) {
      for (int64_t h = 0; h < H_; ++h) add_pair(a, t, j, h);
    });
  }

 private:
  static double norm(const Tensor& x, int64_t begin, int64_t d) {
    return std::sqrt(dot(x, begin, x, begin, d));
  }
  static double dot(const Tensor& x, int64_t x_begin, const Tensor& y, int64_t y_begin, int64_t d) {
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += ref::get(x, x_begin + c) * ref::get(y, y_begin + c);
    return sum;
  }

  void add_pair(const Inputs& a, int64_t t, int64_t j, int64_t h) {
    const int64_t row = (t * H_ + h) * d_, key = (j * K_ + h / (H_ / K_)) * d_;
    const double lse = ref::get(a.lse, t * H_ + h), delta = ref::get(a.delta, t * H_ + h);
    const double score = a.scale * dot(a.q, row, a.k, key, d_);
    const double p = std::exp(score - lse), slope = dot(a.do_, row, a.v, key, d_) - delta;
    constexpr double kStep = 4 * 0x1.0p-24;  // a few roundings: of the dot, the scale, exp, the sum
    const double p_error = kStep * (1 + static_cast<double>(parts_) + std::abs(lse) +
                                    a.scale * norm(a.q, row, d_) * norm(a.k, key, d_));
    const double slope_error =
        kStep * (norm(a.do_, row, d_) * norm(a.v, key, d_) + std::abs(delta));
    for (int64_t c = 0; c < d_; ++c) {
      o[static_cast<size_t>(row + c)].add(p * ref::get(a.v, key + c), rounding_, p_error);
      dv[static_cast<size_t>(key + c)].add(p * ref::get(a.do_, row + c), rounding_, p_error);
      add_slope(dq[static_cast<size_t>(row + c)], a.scale * p * ref::get(a.k, key + c), slope,
                slope_error, p_error);
      add_slope(dk[static_cast<size_t>(key + c)], a.scale * p * ref::get(a.q, row + c), slope,
                slope_error, p_error);
    }
  }
  void add_slope(Error& error, double term, double slope, double slope_error,
                 double p_error) const {
    error.add(term * slope, rounding_, p_error);
    error.add(term * slope_error, rounding_, 1);
  }

  const int64_t H_, K_, d_, parts_;
  const double rounding_;

 public:
  std::vector<Error> o, dq, dk, dv;
};

// |got - want| within the error and one rounding of the output. Reports the first.
inline void expect_allowed(const Tensor& got, const Tensor& want,
                           const std::vector<AttentionAllowed::Error>& errors, const char* what) {
  const double step = got.dtype == DType::kBF16 ? 0x1.0p-8 : 0x1.0p-23;
  for (int64_t e = 0; e < got.count(); ++e) {
    const AttentionAllowed::Error& error = errors[static_cast<size_t>(e)];
    const double w = ref::get(want, e), g = ref::get(got, e);
    const double allowed = step * std::abs(w) + 6 * std::sqrt(error.variance) + error.linear;
    if (std::abs(g - w) <= allowed * (1 + step)) continue;
    ADD_FAILURE() << what << " " << shape_text(got) << " at " << e << ": got " << g << ", want "
                  << w << ", allowed " << allowed;
    return;
  }
}

}  // namespace moraine::testing
