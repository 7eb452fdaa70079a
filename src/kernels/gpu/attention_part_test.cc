// Parts of attention on an emulated GPU: fails if a part is not the reference's, if a part that is the whole has other
// bits than the whole, if parts do not merge to it, if a key or a row outside is read or written, or if a row's bits
// depend on the segments beside it.
#include "kernels/attention_part.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/test_attention_parts.h"
#include "testing/two_ways.h"

namespace moraine::gpu {
namespace {

using namespace testing;

// In the host's memory.
PartOutputs run(Rig& host, GpuRig& rig, const PartProblem& problem) {
  PartProblem p = problem;
  for (Tensor* t :
       {&p.q, &p.k, &p.v, &p.do_, &p.o, &p.lse, &p.dq, &p.dk, &p.dv, &p.delta, &p.whole_lse})
    *t = rig.put(*t);
  attention_part_forward(rig.ctx, p.forward());
  attention_part_backward(rig.ctx, p.backward());
  const auto got = [&](const Tensor& t) { return rig.get(host, t); };
  return {got(p.o), got(p.lse), got(p.dq), got(p.dk), got(p.dv)};
}

void expect_reference(const PartCase& c, DType dtype, const Emulation& e) {
  Rig host;
  PartProblem want(host, c, dtype, DType::kF32, 7);
  const PartProblem given = want;
  const Tensor before[] = {want.dq, want.dk, want.dv};
  for (Tensor* t : {&want.o, &want.lse, &want.dq, &want.dk, &want.dv})
    *t = host.copy_as(*t, DType::kF64);
  ref::attention_part_forward(want.forward());
  for (int64_t i = 0; i < want.lse.count(); ++i) {  // this part's weight, and that of others
    const double others = ref::get(want.whole_lse, i), own = ref::get(want.lse, i);
    ref::set(want.whole_lse, i, others + std::log1p(std::exp(own - others)));
  }
  GpuRig rig(e);
  const PartOutputs got = run(host, rig, given);
  ref::attention_part_backward(want.backward());
  PartAllowed(host, want, before).expect(got);
}

TEST(GpuAttentionPart, MatchesTheReference) {
  for (size_t i = 0; i < part_cases().size(); ++i) {
    const PartCase& c = part_cases()[i];
    SCOPED_TRACE(i);
    if (c.T > 200) continue;  // the others have every border
    const Emulation narrow{
        .wave = 32, .order = ThreadOrder::kRandom, .seed = i, .rule = MatrixRule::kSm80},
        wide{.wave = 64, .order = ThreadOrder::kDescending, .rule = MatrixRule::kCdna3};
    expect_reference(c, DType::kBF16, i % 2 == 0 ? narrow : wide);
    if (c.T < 100) expect_reference(c, DType::kF32, i % 2 == 0 ? wide : narrow);
  }
  expect_reference({9, 20, 2, 1, 130, 0, {{0, 9, 30, 0}}, {20}}, DType::kBF16, {.wave = 64});
}

// To the bit, on tiles and without.
TEST(GpuAttentionPart, APartThatIsTheWholeHasItsBits) {
  struct Kind {
    DType dtype;
    MatrixRule rule;
  };
  for (const Kind& kind :
       {Kind{DType::kBF16, MatrixRule::kCdna3}, Kind{DType::kBF16, MatrixRule::kSm90},
        Kind{DType::kF32, MatrixRule::kPlain}}) {
    const DType dtype = kind.dtype;
    const PartCase c = {70, 70, 4, 2, 24, 50, {{0, 70, 0, 0}}, {70}};
    Rig host;
    PartProblem p(host, c, dtype, DType::kF32, 3);
    for (Tensor* t : {&p.dq, &p.dk, &p.dv})
      *t = host.zeros({t->dims[0], t->dims[1], t->dims[2]}, DType::kF32);
    GpuRig rig(orders_of(kind.rule).front());
    // Its own lse and delta.
    const auto same_shape = [&](const Tensor& t) { return rig.put(host.copy_as(t, dtype)); };
    AttentionForward whole = {.o = same_shape(p.o),
                              .lse = rig.put(p.lse),
                              .q = rig.put(p.q),
                              .k = rig.put(p.k),
                              .v = rig.put(p.v),
                              .segments = c.segments,
                              .window = c.window,
                              .scale = p.scale()};
    attention_forward(rig.ctx, whole);
    const AttentionBackward back = {.dq = same_shape(p.dq),
                                    .dk = same_shape(p.dk),
                                    .dv = same_shape(p.dv),
                                    .delta = rig.put(p.delta),
                                    .do_ = rig.put(p.do_),
                                    .o = whole.o,
                                    .lse = whole.lse,
                                    .q = whole.q,
                                    .k = whole.k,
                                    .v = whole.v,
                                    .segments = c.segments,
                                    .window = c.window,
                                    .scale = p.scale()};
    moraine::attention_backward(rig.ctx, back);
    p.whole_lse = rig.get(host, whole.lse);
    p.delta = rig.get(host, back.delta);
    const PartOutputs part = run(host, rig, p);
    EXPECT_SAME_BITS(part.lse, p.whole_lse);
    EXPECT_SAME_BITS(host.copy_as(part.o, dtype), rig.get(host, whole.o));
    EXPECT_SAME_BITS(host.copy_as(part.dq, dtype), rig.get(host, back.dq));
    EXPECT_SAME_BITS(host.copy_as(part.dk, dtype), rig.get(host, back.dk));
    EXPECT_SAME_BITS(host.copy_as(part.dv, dtype), rig.get(host, back.dv));
  }
}

// Keys in three parts, in any order, against the whole; what saw nothing changes nothing.
TEST(GpuAttentionPart, PartsMergeToTheWholeInAllWaves) {
  Rig host;
  const int64_t T = 40, H = 2, d = 9;
  const Tensor q = host.normal({T, H, d}, DType::kF32, 1),
               k = host.normal({T, 1, d}, DType::kF32, 2),
               v = host.normal({T, 1, d}, DType::kF32, 3),
               want = host.zeros({T, H, d}, DType::kF32),
               want_lse = host.zeros({T, H}, DType::kF32), none = host.zeros({T, H}, DType::kF32);
  for (int64_t i = 0; i < none.count(); ++i) ref::set(none, i, -INFINITY);
  const std::vector<Segment> document = {{0, T, 0, 0}};
  moraine::attention_forward(host.ctx, {.o = want,
                                        .lse = want_lse,
                                        .q = q,
                                        .k = k,
                                        .v = v,
                                        .segments = document,
                                        .window = 20,
                                        .scale = 0.4f});
  expect_one_result(all_emulations(), [&](GpuRig& rig) {
    const Tensor o = rig.put(host.zeros({T, H, d}, DType::kF32)), lse = rig.put(none),
                 part = rig.put(want), part_lse = rig.put(want_lse), q_there = rig.put(q),
                 k_there = rig.put(k), v_there = rig.put(v);
    for (const auto& [begin, end] : {std::pair{17, 33}, std::pair{0, 17}, std::pair{33, 40}}) {
      // Rows from the part's first key on, those too that a window has led past it.
      const std::vector<Segment> rows = {{begin, T - begin, 0, begin}};
      const std::vector<int64_t> keys = {end - begin};
      moraine::attention_part_forward(rig.ctx, {.o = part,
                                                .lse = part_lse,
                                                .q = q_there,
                                                .k = k_there,
                                                .v = v_there,
                                                .segments = rows,
                                                .keys = keys,
                                                .window = 20,
                                                .scale = 0.4f});
      moraine::attention_merge(
          rig.ctx, {.o = o, .lse = lse, .o_part = part, .lse_part = part_lse, .segments = rows});
    }
    expect_close(rig.get(host, o), want, {2e-6}, "o");
    expect_close(rig.get(host, lse), want_lse, {2e-6}, "lse");
    return o;
  });
}

TEST(GpuAttentionPart, WhatIsOutsideIsNeitherReadNorWritten) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig host;
    const PartCase c = {60, 80, 4, 2, 24, 0, {{3, 20, 29, 7}, {30, 18, 4, 50}}, {29, 18}};
    const PartProblem p(host, c, dtype, DType::kF32, 7);
    const auto is_row = [](int64_t r) { return (r >= 3 && r < 23) || (r >= 30 && r < 48); };
    const auto is_key = [](int64_t r) { return (r >= 7 && r < 36) || (r >= 50 && r < 68); };
    const auto each = [](const Tensor& t, const auto& f) {
      const int64_t width = t.count() / t.dims[0];
      for (int64_t e = 0; e < t.count(); ++e) f(e, e / width);
    };
    const auto spoil = [&](const Tensor& t, const auto& in) {
      each(t, [&](int64_t e, int64_t row) {
        if (!in(row)) ref::set(t, e, NAN);
      });
    };
    for (const Tensor& t : {p.q, p.do_, p.o, p.lse, p.dq, p.whole_lse, p.delta}) spoil(t, is_row);
    for (const Tensor& t : {p.k, p.v, p.dk, p.dv}) spoil(t, is_key);
    GpuRig rig({.wave = 32});
    const PartOutputs got = run(host, rig, p);
    const auto check = [&](const Tensor& t, const auto& in) {
      each(t,
           [&](int64_t e, int64_t row) { ASSERT_EQ(std::isnan(ref::get(t, e)), !in(row)) << e; });
    };
    for (const Tensor& t : {got.o, got.lse, got.dq}) check(t, is_row);
    for (const Tensor& t : {got.dk, got.dv}) check(t, is_key);
  }
}

// The second of two segments that share keys; of dk and dv, the sum of both in their order.
TEST(GpuAttentionPart, ASegmentAloneIsTheSegmentInCompany) {
  for (const MatrixRule rule : {MatrixRule::kCdna2, MatrixRule::kSm80}) {
    Rig host;
    PartCase both = {90, 100, 2, 1, 32, 90, {{5, 20, 70, 10}, {40, 31, 120, 10}}, {60, 47}};
    PartProblem p(host, both, DType::kBF16, DType::kF32, 5);
    GpuRig rig(orders_of(rule).front());
    const PartOutputs together = run(host, rig, p);
    PartProblem after = p;
    for (const size_t i : {0, 1}) {
      PartCase one = both;
      one.segments = {both.segments[i]};
      one.keys = {both.keys[i]};
      after.c = &one;
      const PartOutputs alone = run(host, rig, after);
      const Segment& s = both.segments[i];
      const auto rows = [&](const Tensor& t) { return t.rows(s.row_begin, s.row_begin + s.rows); };
      EXPECT_SAME_BITS(rows(alone.o), rows(together.o));
      EXPECT_SAME_BITS(rows(alone.lse), rows(together.lse));
      EXPECT_SAME_BITS(rows(alone.dq), rows(together.dq));
      after.dk = alone.dk, after.dv = alone.dv;
    }
    EXPECT_SAME_BITS(after.dk, together.dk);
    EXPECT_SAME_BITS(after.dv, together.dv);
  }
}

}  // namespace
}  // namespace moraine::gpu
