// AttentionPart: fails if parts do not merge to the whole, if a gradient through parts is not that
// of the whole, if a row outside the segments is touched, if a key outside a part is read, or if a
// row's bits depend on its batch or the threads.
#include "kernels/attention_part.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/check_tensor.h"
#include "kernels/ref/element.h"
#include "kernels/test_attention_parts.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

void expect_matches_reference(const PartCase& c, DType dtype, uint64_t seed) {
  Rig rig;
  PartProblem want(rig, c, dtype, DType::kF32, seed);
  const Tensor noise[] = {want.dq, want.dk, want.dv};
  for (Tensor* t : {&want.o, &want.lse, &want.dq, &want.dk, &want.dv}) {
    *t = rig.copy_as(*t, DType::kF64);
  }
  ref::attention_part_forward(want.forward());
  ref::attention_part_backward(want.backward());
  const PartAllowed allowed(rig, want, noise);
  for_each_isa([&](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    PartProblem p(rig, c, dtype, DType::kF32, seed);
    attention_part_forward(rig.ctx, p.forward());
    attention_part_backward(rig.ctx, p.backward());
    allowed.expect({p.o, p.lse, p.dq, p.dk, p.dv});
  });
}

TEST(AttentionPart, EveryIsaMatchesTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (size_t c = 0; c < part_cases().size(); ++c) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " case " + std::to_string(c));
      expect_matches_reference(part_cases()[c], dtype, 100 * c);
    }
  }
}

// Two documents of 40 and 23 rows, and how their keys are cut: document, first and last position.
struct PartCut {
  int64_t document, begin, end;
};
constexpr int64_t kPartLengths[] = {40, 23};
const std::vector<std::vector<PartCut>> kPartCuts = {
    {{0, 0, 40}, {1, 0, 23}},
    {{0, 0, 17}, {0, 17, 40}, {1, 0, 1}, {1, 1, 23}},
    {{0, 33, 40}, {1, 9, 23}, {0, 0, 9}, {0, 9, 33}, {1, 0, 9}}};

// The rows that see a part, as its segment; none if a window ends before.
std::vector<Segment> seen_by(const PartCut& cut, int64_t window) {
  const int64_t first = cut.document == 0 ? 0 : kPartLengths[0], n = kPartLengths[cut.document];
  const int64_t end = window > 0 ? std::min(n, cut.end - 1 + window) : n;
  return {{first + cut.begin, end - cut.begin, 0, first + cut.begin}};
}

struct PartWhole {
  explicit PartWhole(Rig& rig, DType dtype, int64_t window) : window(window) {
    const DType wide = wide_dtype(dtype);
    q = rig.normal({T, H, d}, dtype, 1), k = rig.normal({T, K, d}, dtype, 2);
    v = rig.normal({T, K, d}, dtype, 3), do_ = rig.normal({T, H, d}, dtype, 4);
    o = rig.zeros({T, H, d}, dtype), lse = rig.zeros({T, H}, wide);
    delta = rig.zeros({T, H}, wide);
  }
  void forward(Context& ctx) const {
    attention_forward(ctx, {.o = o,
                            .lse = lse,
                            .q = q,
                            .k = k,
                            .v = v,
                            .segments = segments,
                            .window = window,
                            .scale = 0.4f});
  }
  static constexpr int64_t T = 63, H = 4, K = 2, d = 9;
  std::vector<Segment> segments = {{0, 40, 0, 0}, {40, 23, 0, 40}};
  int64_t window;
  Tensor q, k, v, do_, o, lse, delta;
};

TEST(AttentionPart, PartsMergeToTheWhole) {
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    const DType dtype = backend == Backend::kRef ? DType::kF64 : DType::kF32;
    for (const int64_t window : {0, 6, 20}) {
      Rig rig(backend);
      const PartWhole w(rig, dtype, window);
      w.forward(rig.ctx);
      for (const std::vector<PartCut>& cuts : kPartCuts) {
        const Tensor o = rig.zeros({w.T, w.H, w.d}, dtype), lse = rig.zeros({w.T, w.H}, dtype),
                     o_part = rig.zeros({w.T, w.H, w.d}, dtype),
                     lse_part = rig.zeros({w.T, w.H}, dtype);
        for (int64_t i = 0; i < lse.count(); ++i) ref::set(lse, i, -INFINITY);
        for (const PartCut& cut : cuts) {
          const std::vector<Segment> segments = seen_by(cut, window);
          const std::vector<int64_t> keys = {cut.end - cut.begin};
          attention_part_forward(rig.ctx, {.o = o_part,
                                           .lse = lse_part,
                                           .q = w.q,
                                           .k = w.k,
                                           .v = w.v,
                                           .segments = segments,
                                           .keys = keys,
                                           .window = window,
                                           .scale = 0.4f});
          attention_merge(
              rig.ctx,
              {.o = o, .lse = lse, .o_part = o_part, .lse_part = lse_part, .segments = segments});
        }
        const double tol = dtype == DType::kF64 ? 1e-12 : 2e-6;
        expect_close(o, w.o, {tol}, "o");
        expect_close(lse, w.lse, {tol}, "lse");
      }
    }
  }
}

TEST(AttentionPart, MergingABlindPartChangesNothing) {
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    Rig rig(backend);
    const Tensor o = rig.normal({3, 2, 5}, DType::kF32, 1),
                 lse = rig.normal({3, 2}, DType::kF32, 2),
                 o_part = rig.normal({3, 2, 5}, DType::kF32, 3),
                 lse_part = rig.normal({3, 2}, DType::kF32, 4);
    const float none = -std::numeric_limits<float>::infinity();
    lse_part.as<float>()[2] = none;                       // saw nothing
    lse.as<float>()[3] = none;                            // has seen nothing yet
    lse.as<float>()[5] = lse_part.as<float>()[5] = none;  // neither
    for (int64_t e = 15; e < 20; ++e) o.as<float>()[e] = 0;
    const Tensor before = rig.copy(o), lse_before = rig.copy(lse);
    const std::vector<Segment> segments = {{1, 2, 0, 0}};
    attention_merge(
        rig.ctx,
        {.o = o, .lse = lse, .o_part = o_part, .lse_part = lse_part, .segments = segments});
    const auto same = [&](int64_t i, const Tensor& o_want, const Tensor& lse_want) {
      EXPECT_EQ(lse.as<float>()[i], lse_want.as<float>()[i]) << i;
      for (int64_t e = i * 5; e < i * 5 + 5; ++e) {
        EXPECT_EQ(o.as<float>()[e], o_want.as<float>()[e]) << i;
      }
    };
    same(0, before, lse_before);  // row 0 is in no segment
    same(1, before, lse_before);
    same(2, before, lse_before);
    same(3, o_part, lse_part);
    EXPECT_NE(o.as<float>()[20], before.as<float>()[20]);
    same(5, before, lse_before);
  }
}

TEST(AttentionPart, ReferenceBackwardThroughPartsIsTheGradientOfTheWhole) {
  for (const int64_t window : {0, 6}) {
    Rig rig(Backend::kRef);
    const PartWhole w(rig, DType::kF64, window);
    const auto loss = [&] {
      w.forward(rig.ctx);
      double sum = 0;
      for (int64_t e = 0; e < w.o.count(); ++e) sum += ref::get(w.o, e) * ref::get(w.do_, e);
      return sum;
    };
    loss();
    attention_delta(rig.ctx, {.delta = w.delta, .do_ = w.do_, .o = w.o});
    const Tensor lse = rig.copy(w.lse);
    for (const std::vector<PartCut>& cuts : kPartCuts) {
      const Tensor dq = rig.zeros({w.T, w.H, w.d}, DType::kF64),
                   dk = rig.zeros({w.T, w.K, w.d}, DType::kF64), dv = rig.copy(dk);
      for (const PartCut& cut : cuts) {
        const std::vector<Segment> segments = seen_by(cut, window);
        const std::vector<int64_t> keys = {cut.end - cut.begin};
        attention_part_backward(rig.ctx, {.dq = dq,
                                          .dk = dk,
                                          .dv = dv,
                                          .do_ = w.do_,
                                          .q = w.q,
                                          .k = w.k,
                                          .v = w.v,
                                          .lse = lse,
                                          .delta = w.delta,
                                          .segments = segments,
                                          .keys = keys,
                                          .window = window,
                                          .scale = 0.4f});
      }
      expect_gradient(w.q, dq, loss, "dq");
      expect_gradient(w.k, dk, loss, "dk");
      expect_gradient(w.v, dv, loss, "dv");
    }
  }
}

// Rows of no segment, and keys of no part, may hold anything and stay what they were.
TEST(AttentionPart, WhatIsOutsideIsNeitherReadNorWritten) {
  for_each_isa([](Isa isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(isa_name(isa));
      Rig rig;
      const PartCase c = {60, 80, 4, 2, 24, 0, {{3, 20, 29, 7}, {30, 18, 4, 50}}, {29, 18}};
      const PartProblem p(rig, c, dtype, DType::kF32, 7);
      const auto outside = [&](const Tensor& t, auto in) {
        const int64_t width = t.count() / t.dims[0];
        for (int64_t row = 0; row < t.dims[0]; ++row) {
          for (int64_t e = row * width; !in(row) && e < (row + 1) * width; ++e) ref::set(t, e, NAN);
        }
      };
      const auto is_row = [](int64_t r) { return (r >= 3 && r < 23) || (r >= 30 && r < 48); };
      const auto is_key = [](int64_t r) { return (r >= 7 && r < 36) || (r >= 50 && r < 68); };
      for (const Tensor& t : {p.q, p.do_, p.o, p.lse, p.dq, p.whole_lse, p.delta}) {
        outside(t, is_row);
      }
      for (const Tensor& t : {p.k, p.v, p.dk, p.dv}) outside(t, is_key);
      attention_part_forward(rig.ctx, p.forward());
      attention_part_backward(rig.ctx, p.backward());
      const auto check = [&](const Tensor& t, auto in) {
        const int64_t width = t.count() / t.dims[0];
        for (int64_t e = 0; e < t.count(); ++e) {
          ASSERT_EQ(std::isnan(ref::get(t, e)), !in(e / width)) << e;
        }
      };
      for (const Tensor& t : {p.o, p.lse, p.dq}) check(t, is_row);
      for (const Tensor& t : {p.dk, p.dv}) check(t, is_key);
    }
  });
}

// Scores far below zero: a lane behind the last key would count as exp(0 - lse), which overflows.
TEST(AttentionPart, LanesBehindThePartDoNotOverflow) {
  for_each_isa([](Isa isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(isa_name(isa));
      Rig rig;
      const PartCase c = {20, 30, 2, 1, 16, 0, {{0, 20, 21, 2}}, {21}};
      PartProblem p(rig, c, dtype, DType::kF32, 3), want = p;
      for (int64_t e = 0; e < p.q.count(); ++e) ref::set(p.q, e, 8);
      for (int64_t e = 0; e < p.k.count(); ++e) ref::set(p.k, e, -10 - 0.125 * double(e % 3));
      want.o = rig.zeros({20, 2, 16}, DType::kF64), want.lse = rig.zeros({20, 2}, DType::kF64);
      ref::attention_part_forward(want.forward());
      attention_part_forward(rig.ctx, p.forward());
      ASSERT_LT(ref::get(p.lse, 0), -300);
      EXPECT_CLOSE(p.lse, want.lse, tolerance(DType::kF32, 16));
      p.whole_lse = p.lse;
      attention_part_backward(rig.ctx, p.backward());
      for (const Tensor& t : {p.o, p.dq, p.dk, p.dv}) {
        for (int64_t e = 0; e < t.count(); ++e) ASSERT_TRUE(std::isfinite(ref::get(t, e))) << e;
      }
    }
  });
}

TEST(AttentionPart, ThreadsAndBatchDoNotChangeTheBits) {
  for_each_isa([](Isa isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(isa_name(isa));
      for (const PartCase& c : part_cases()) {
        Rig one(Backend::kCpu, 1), many(Backend::kCpu, 7);
        const PartProblem a(one, c, dtype, DType::kF32, 5), b(many, c, dtype, DType::kF32, 5);
        attention_part_forward(one.ctx, a.forward());
        attention_part_forward(many.ctx, b.forward());
        attention_part_backward(one.ctx, a.backward());
        attention_part_backward(many.ctx, b.backward());
        EXPECT_SAME_BITS(b.o, a.o);
        EXPECT_SAME_BITS(b.lse, a.lse);
        EXPECT_SAME_BITS(b.dq, a.dq);
        EXPECT_SAME_BITS(b.dk, a.dk);
        EXPECT_SAME_BITS(b.dv, a.dv);
        for (const Segment& s : c.segments) {  // each segment alone, and its last row alone
          for (const int64_t skip : {int64_t{0}, s.rows - 1}) {
            PartCase alone = c;
            alone.segments = {
                {s.row_begin + skip, s.rows - skip, s.position_begin + skip, s.key_begin}};
            alone.keys = {c.keys[size_t(&s - c.segments.data())]};
            PartProblem p(one, alone, dtype, DType::kF32, 5);
            attention_part_forward(one.ctx, p.forward());
            attention_part_backward(one.ctx, p.backward());
            const int64_t from = s.row_begin + skip, to = s.row_begin + s.rows;
            EXPECT_SAME_BITS(p.o.rows(from, to), a.o.rows(from, to));
            EXPECT_SAME_BITS(p.lse.rows(from, to), a.lse.rows(from, to));
            EXPECT_SAME_BITS(p.dq.rows(from, to), a.dq.rows(from, to));
          }
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

// The part that is a whole document: forward and backward of attention.h, before the last rounding.
TEST(AttentionPart, APartThatIsTheWholeHasItsBits) {
  for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Rig rig;
    const PartCase c = {200, 200, 4, 2, 40, 70, {{0, 130, 0, 0}, {130, 70, 0, 130}}, {130, 70}};
    PartProblem p(rig, c, DType::kF32, DType::kF32, 3);
    for (const Tensor& t : {p.dq, p.dk, p.dv}) {
      for (int64_t e = 0; e < t.count(); ++e) ref::set(t, e, 0);
    }
    const PartProblem w(rig, c, DType::kF32, DType::kF32, 3);
    attention_forward(rig.ctx, {.o = w.o,
                                .lse = w.lse,
                                .q = w.q,
                                .k = w.k,
                                .v = w.v,
                                .segments = c.segments,
                                .window = c.window,
                                .scale = w.scale()});
    attention_backward(rig.ctx, {.dq = w.dq,
                                 .dk = w.dk,
                                 .dv = w.dv,
                                 .delta = w.delta,
                                 .do_ = w.do_,
                                 .o = w.o,
                                 .lse = w.lse,
                                 .q = w.q,
                                 .k = w.k,
                                 .v = w.v,
                                 .segments = c.segments,
                                 .window = c.window,
                                 .scale = w.scale()});
    attention_part_forward(rig.ctx, p.forward());
    EXPECT_SAME_BITS(p.o, w.o);
    EXPECT_SAME_BITS(p.lse, w.lse);
    p.whole_lse = p.lse;
    attention_delta(rig.ctx, {.delta = p.delta, .do_ = p.do_, .o = p.o});
    EXPECT_SAME_BITS(p.delta, w.delta);
    attention_part_backward(rig.ctx, p.backward());
    EXPECT_SAME_BITS(p.dq, w.dq);
    EXPECT_SAME_BITS(p.dk, w.dk);
    EXPECT_SAME_BITS(p.dv, w.dv);
  });
}

TEST(AttentionPart, CountsThePairsItSees) {
  const std::vector<Segment> segments = {{0, 4, 3, 0}, {4, 2, 9, 0}};
  const std::vector<int64_t> keys = {5, 5};
  EXPECT_EQ(visible_pairs(segments, keys, 0), 4 + 5 + 5 + 5 + 5 + 5);
  EXPECT_EQ(visible_pairs(segments, keys, 3), 3 + 3 + 2 + 1 + 0 + 0);
}

}  // namespace
}  // namespace moraine
