// Attention: the reference against finite differences, the cpu kernels against the reference, and
// one row's bits in every company: alone, chunked, cached, packed, on one thread or two.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

constexpr int64_t kBlockKeys = 64;  // of the cpu kernels: cases stand one beside it

// Documents one after the other, whole: training and prefill.
std::vector<Segment> documents(const std::vector<int64_t>& lengths) {
  std::vector<Segment> segments;
  int64_t row = 0;
  for (const int64_t n : lengths) {
    segments.push_back({.row_begin = row, .rows = n, .position_begin = 0, .key_begin = row});
    row += n;
  }
  return segments;
}

int64_t rows_of(const std::vector<Segment>& segments) {
  int64_t rows = 0;
  for (const Segment& s : segments) rows += s.rows;
  return rows;
}

double scale_of(int64_t d) { return 1 / std::sqrt(static_cast<double>(d)); }

// A bf16 product rounds its left factor P (or dS): a relative error uniform in 2^-9, independent
// from key to key, so that a sum of them is off by 2^-9 / sqrt(3) of its own rms at one sigma; six
// sigmas, as in tolerance(). Scores are f32 sums of d terms, and their error is the weight's
// relative error.
Tolerance attention_tolerance(DType dtype, int64_t keys, int64_t d) {
  const double products = dtype == DType::kBF16 ? 6 * 0x1.0p-9 / std::sqrt(3.0) : 0;
  return {tolerance(dtype, keys + d).relative + products};
}

TEST(Attention, VisiblePairs) {
  const std::vector<Segment> cached = {{0, 3, 4, 0},
                                       {3, 2, 0, 9}};  // rows see 5, 6, 7 and 1, 2 keys
  EXPECT_EQ(visible_pairs(cached, 0), 21);
  EXPECT_EQ(visible_pairs(cached, 6), 20);
  EXPECT_EQ(visible_pairs(cached, 1), 5);
  EXPECT_EQ(visible_pairs({}, 0), 0);
}

TEST(Attention, ReferenceBackwardIsTheGradient) {
  for (const int64_t window : {0, 3}) {
    Rig rig(Backend::kRef);
    const std::vector<Segment> segments = documents({5, 1, 7});
    const int64_t T = rows_of(segments), H = 4, K = 2, d = 3;
    const DType f64 = DType::kF64;
    const Tensor q = rig.normal({T, H, d}, f64, 1), k = rig.normal({T, K, d}, f64, 2),
                 v = rig.normal({T, K, d}, f64, 3), do_ = rig.normal({T, H, d}, f64, 4);
    const Tensor o = rig.zeros({T, H, d}, f64), lse = rig.zeros({T, H}, f64),
                 delta = rig.zeros({T, H}, f64), dq = rig.normal({T, H, d}, f64, 5),
                 dk = rig.normal({T, K, d}, f64, 6), dv = rig.normal({T, K, d}, f64, 7);
    const auto loss = [&] {
      attention_forward(rig.ctx, {.o = o,
                                  .lse = lse,
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .segments = segments,
                                  .window = window,
                                  .scale = 0.5f});
      double sum = 0;
      for (int64_t e = 0; e < o.count(); ++e) sum += ref::get(o, e) * ref::get(do_, e);
      return sum;
    };
    loss();
    attention_backward(rig.ctx, {.dq = dq,
                                 .dk = dk,
                                 .dv = dv,
                                 .delta = delta,
                                 .do_ = do_,
                                 .o = o,
                                 .lse = lse,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .segments = segments,
                                 .window = window,
                                 .scale = 0.5f});
    expect_gradient(q, dq, loss, "dq");
    expect_gradient(k, dk, loss, "dk");
    expect_gradient(v, dv, loss, "dv");
  }
}

struct Case {
  std::vector<int64_t> lengths;  // documents of the batch
  int64_t H, K, d, window;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{1}, 1, 1, 8, 0},                     // smallest
      {{3}, 2, 1, 1, 0},                     // one column
      {{15, 1, 17, 16}, 2, 2, 16, 0},        // around a group of 16 rows
      {{7, 33}, 3, 1, 5, 0},                 // odd width, three heads on one
      {{kBlockKeys + 1}, 2, 1, 64, 0},       // one past a block
      {{kBlockKeys - 1, 130}, 4, 2, 64, 0},  // two heads on one
      {{101}, 4, 1, 48, 0},                  // prime length, four heads on one
      {{200, 3}, 2, 1, 128, 0},              // real width
      {{37}, 1, 1, 130, 0},                  // past real width, even
      {{29}, 1, 1, 255, 0},                  // widest odd
      {{150, 20}, 2, 1, 16, 1},              // a row sees itself
      {{150, 20}, 2, 1, 16, 7},              // window below a group
      {{150, 100}, 2, 2, 32, 64},            // window of a block
      {{300}, 2, 1, 64, 100},                // window of no round number
      {{40}, 2, 1, 24, 1000},                // window beyond the document
  };
  return all;
}

// Tensors of one case; gradients start as noise, which the kernels must overwrite.
struct Problem {
  Problem(Rig& rig, const std::vector<Segment>& segments, int64_t rows, int64_t H, int64_t K,
          int64_t d, DType dtype, uint64_t seed)
      : segments(segments), dtype(dtype), scale(static_cast<float>(scale_of(d))) {
    const int64_t T = rows_of(segments);
    q = rig.normal({T, H, d}, dtype, seed + 1, 1.5);
    k = rig.normal({rows, K, d}, dtype, seed + 2, 1.5);
    v = rig.normal({rows, K, d}, dtype, seed + 3);
    do_ = rig.normal({T, H, d}, dtype, seed + 4);
    o = rig.normal({T, H, d}, dtype, seed + 5);
    lse = rig.normal({T, H}, DType::kF32, seed + 6);
    delta = rig.normal({T, H}, DType::kF32, seed + 7);
    dq = rig.normal({T, H, d}, dtype, seed + 8);
    dk = rig.normal({rows, K, d}, dtype, seed + 9);
    dv = rig.normal({rows, K, d}, dtype, seed + 10);
  }

  AttentionForward forward() const {
    return {.o = o,
            .lse = lse,
            .q = q,
            .k = k,
            .v = v,
            .segments = segments,
            .window = window,
            .scale = scale};
  }
  AttentionBackward backward() const {
    return {.dq = dq,
            .dk = dk,
            .dv = dv,
            .delta = delta,
            .do_ = do_,
            .o = o,
            .lse = lse,
            .q = q,
            .k = k,
            .v = v,
            .segments = segments,
            .window = window,
            .scale = scale};
  }

  std::vector<Segment> segments;
  DType dtype;
  float scale;
  int64_t window = 0;
  Tensor q, k, v, do_, o, lse, delta, dq, dk, dv;
};

TEST(Attention, CpuMatchesReference) {
  for_each_isa([](Isa isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (size_t c = 0; c < cases().size(); ++c) {
        SCOPED_TRACE(std::string(isa_name(isa)) + " " + dtype_name(dtype) + " case " +
                     std::to_string(c));
        const Case& test = cases()[c];
        Rig rig;
        const std::vector<Segment> segments = documents(test.lengths);
        const int64_t T = rows_of(segments), d = test.d;
        const int64_t longest = *std::max_element(test.lengths.begin(), test.lengths.end());
        Problem p(rig, segments, T, test.H, test.K, d, dtype, 100 * c);
        p.window = test.window;
        Problem want = p;
        for (Tensor* t : {&want.o, &want.lse, &want.delta, &want.dq, &want.dk, &want.dv}) {
          *t = rig.copy(*t);
        }
        attention_forward(rig.ctx, p.forward());
        ref::attention_forward(want.forward());
        EXPECT_CLOSE(p.o, want.o, attention_tolerance(dtype, longest, d));
        EXPECT_CLOSE(p.lse, want.lse, tolerance(DType::kF32, longest + d));

        p.o = want.o;  // backward is compared on equal inputs
        p.lse = want.lse;
        attention_backward(rig.ctx, p.backward());
        ref::attention_backward(want.backward());
        const int64_t terms = longest * test.H / test.K;
        EXPECT_CLOSE(p.delta, want.delta, tolerance(DType::kF32, d));
        EXPECT_CLOSE(p.dq, want.dq, attention_tolerance(dtype, longest, d));
        EXPECT_CLOSE(p.dk, want.dk, attention_tolerance(dtype, terms, d));
        EXPECT_CLOSE(p.dv, want.dv, attention_tolerance(dtype, terms, d));
      }
    }
  });
}

}  // namespace
}  // namespace moraine
