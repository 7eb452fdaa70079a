// ExpertDispatch: every choice gets exactly one row or none, and the fast kernels equal the
// reference; fails if a token is lost or doubled, a gate dropped, a skip treated as an expert, or
// `=` stands for `+=`.
#include "kernels/expert_dispatch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/random.h"
#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct Plan {
  Tensor rows, choice_of, row_of, load, expert;
};

Plan make_plan(Rig& rig, int64_t T, int64_t n, int64_t E, uint64_t seed) {
  Plan p = {.rows = rig.zeros({E + 1}, DType::kI64),
            .choice_of = rig.zeros({T * n}, DType::kI32),
            .row_of = rig.zeros({T, n}, DType::kI32),
            .load = rig.zeros({E + 1}, DType::kI64),
            .expert = rig.integers({T, n}, E + 1, seed)};
  dispatch_plan(rig.ctx, {.rows = p.rows,
                          .choice_of = p.choice_of,
                          .row_of = p.row_of,
                          .load = p.load,
                          .expert = p.expert});
  return p;
}

TEST(ExpertDispatch, EveryChoiceHasOneRowOrIsSkipped) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rig rig;
    const int64_t T = static_cast<int64_t>(random_below(70, seed, Stream::kTest, 2, 0));
    const int64_t n = 1 + static_cast<int64_t>(random_below(3, seed, Stream::kTest, 2, 1));
    const int64_t E = 1 + static_cast<int64_t>(random_below(20, seed, Stream::kTest, 2, 2));
    const Plan p = make_plan(rig, T, n, E, seed);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " T " << T << " n " << n << " E " << E);
    const int64_t *rows = p.rows.as<int64_t>(), *load = p.load.as<int64_t>();
    const int32_t *choice_of = p.choice_of.as<int32_t>(), *row_of = p.row_of.as<int32_t>(),
                  *expert = p.expert.as<int32_t>();
    ASSERT_EQ(rows[0], 0);
    for (int64_t e = 0; e < E; ++e) ASSERT_EQ(rows[e + 1] - rows[e], load[e]) << e;
    ASSERT_EQ(rows[E] + load[E], T * n);
    std::set<int32_t> seen;
    for (int64_t i = 0; i < T * n; ++i) {
      if (expert[i] == E) {
        ASSERT_EQ(row_of[i], -1);
        continue;
      }
      ASSERT_GE(row_of[i], rows[expert[i]]) << i;
      ASSERT_LT(row_of[i], rows[expert[i] + 1]) << i;
      ASSERT_EQ(choice_of[row_of[i]], i);
      ASSERT_TRUE(seen.insert(row_of[i]).second) << i;
    }
    for (int64_t e = 0; e < E; ++e) {  // (token, choice) order inside an expert
      for (int64_t row = rows[e] + 1; row < rows[e + 1]; ++row)
        ASSERT_LT(choice_of[row - 1], choice_of[row]);
    }
  }
}

struct DispatchCase {
  int64_t T, n, E, D;
  DType dtype;
};
constexpr DispatchCase kDispatchCases[] = {
    {1, 1, 1, 1, DType::kF32},     {7, 2, 3, 127, DType::kF32},   {65, 3, 8, 33, DType::kBF16},
    {257, 1, 16, 64, DType::kF32}, {31, 2, 8, 256, DType::kBF16}, {3, 1, 16, 2048, DType::kBF16},
    {0, 2, 4, 64, DType::kF32},    {9, 3, 2, 512, DType::kF32},
};

void expect_matches(const DispatchCase& c, bool identity) {
  Rig rig;
  SCOPED_TRACE(::testing::Message()
               << "T " << c.T << " n " << c.n << " D " << c.D << " identity " << identity);
  const Plan p = make_plan(rig, c.T, c.n, c.E, 5);
  const int64_t Te = c.T * c.n;
  const Tensor x = rig.normal({c.T, c.D}, c.dtype, 1),
               gate = rig.normal({c.T, c.n}, DType::kF32, 2);
  const Tensor xe = rig.normal({Te, c.D}, c.dtype, 3), want_xe = rig.copy(xe);
  dispatch_forward(rig.ctx, {.xe = xe, .x = x, .choice_of = p.choice_of, .rows = p.rows});
  if (Te > 0)
    ref::dispatch_forward({.xe = want_xe, .x = x, .choice_of = p.choice_of, .rows = p.rows});
  EXPECT_SAME_BITS(xe, want_xe);

  const Tensor dxe = rig.normal({Te, c.D}, c.dtype, 4), dx = rig.normal({c.T, c.D}, DType::kF32, 5),
               want_dx = rig.copy(dx);
  dispatch_backward(rig.ctx, {.dx = dx, .dxe = dxe, .row_of = p.row_of});
  ref::dispatch_backward({.dx = want_dx, .dxe = dxe, .row_of = p.row_of});
  EXPECT_CLOSE(dx, want_dx, tolerance(DType::kF32, c.n));

  const Tensor ye = rig.normal({Te, c.D}, c.dtype, 6), h = rig.normal({c.T, c.D}, c.dtype, 7),
               want_h = rig.copy(h);
  combine_forward(
      rig.ctx,
      {.h = h, .ye = ye, .gate = gate, .x = x, .row_of = p.row_of, .skip_identity = identity});
  ref::combine_forward(
      {.h = want_h, .ye = ye, .gate = gate, .x = x, .row_of = p.row_of, .skip_identity = identity});
  EXPECT_CLOSE(h, want_h, tolerance(c.dtype, c.n));

  const Tensor dh = rig.normal({c.T, c.D}, c.dtype, 8);
  const Tensor dye = rig.normal({Te, c.D}, c.dtype, 9), want_dye = rig.copy(dye);
  const Tensor dgate = rig.normal({c.T, c.n}, DType::kF32, 10), want_dgate = rig.copy(dgate),
               dx2 = rig.copy(dx), want_dx2 = rig.copy(dx);
  combine_backward(rig.ctx, {.dye = dye,
                             .dgate = dgate,
                             .dx = dx2,
                             .dh = dh,
                             .ye = ye,
                             .gate = gate,
                             .x = x,
                             .row_of = p.row_of,
                             .skip_identity = identity});
  ref::combine_backward({.dye = want_dye,
                         .dgate = want_dgate,
                         .dx = want_dx2,
                         .dh = dh,
                         .ye = ye,
                         .gate = gate,
                         .x = x,
                         .row_of = p.row_of,
                         .skip_identity = identity});
  EXPECT_CLOSE(dye, want_dye, tolerance(c.dtype, 1));
  // The terms are products of size 1 each: rms(dgate) is sqrt(D).
  EXPECT_CLOSE(dgate, want_dgate, tolerance(DType::kF32, c.D));
  EXPECT_CLOSE(dx2, want_dx2, tolerance(DType::kF32, c.n));
  if (!identity) {
    EXPECT_SAME_BITS(dx2, dx);
  }
}

TEST(ExpertDispatch, MatchesReference) {
  for_each_isa([](Isa) {
    for (const DispatchCase& c : kDispatchCases) {
      expect_matches(c, false);
      expect_matches(c, true);
    }
  });
}

TEST(ExpertDispatch, ZeroSkipNeedsNoInput) {
  Rig rig;
  const Plan p = make_plan(rig, 6, 2, 1, 5);
  const Tensor ye = rig.normal({12, 8}, DType::kF32, 1), dh = rig.normal({6, 8}, DType::kF32, 2);
  const Tensor gate = rig.normal({6, 2}, DType::kF32, 3), h = rig.zeros({6, 8}, DType::kF32);
  const Tensor dye = rig.zeros({12, 8}, DType::kF32), dgate = rig.normal({6, 2}, DType::kF32, 4);
  combine_forward(
      rig.ctx,
      {.h = h, .ye = ye, .gate = gate, .x = {}, .row_of = p.row_of, .skip_identity = false});
  combine_backward(rig.ctx, {.dye = dye,
                             .dgate = dgate,
                             .dx = {},
                             .dh = dh,
                             .ye = ye,
                             .gate = gate,
                             .x = {},
                             .row_of = p.row_of,
                             .skip_identity = false});
  ASSERT_GT(p.load.as<int64_t>()[1], 0);
  for (int64_t i = 0; i < 12; ++i) {
    if (p.row_of.as<int32_t>()[i] >= 0) continue;
    EXPECT_EQ(dgate.as<float>()[i], 0) << i;
  }
}

// x -> dispatch -> expert e multiplies by e + 1 -> combine; the chain's backward against
// differences.
TEST(ExpertDispatch, ReferenceMatchesFiniteDifferences) {
  for (const bool identity : {false, true}) {
    Rig rig(Backend::kRef);
    const int64_t T = 5, n = 2, E = 3, D = 4;
    const Plan p = make_plan(rig, T, n, E, 7);
    const Tensor x = rig.normal({T, D}, DType::kF64, 1), gate = rig.normal({T, n}, DType::kF64, 2);
    const Tensor dh = rig.normal({T, D}, DType::kF64, 3), xe = rig.zeros({T * n, D}, DType::kF64);
    const Tensor ye = rig.zeros({T * n, D}, DType::kF64), h = rig.zeros({T, D}, DType::kF64);
    const auto experts = [&](const Tensor& to, const Tensor& from) {
      for (int64_t i = 0; i < T * n; ++i) {
        const int32_t row = p.row_of.as<int32_t>()[i];
        if (row < 0) continue;
        const double slope = p.expert.as<int32_t>()[i] + 1;
        for (int64_t d = 0; d < D; ++d)
          ref::set(to, row * D + d, slope * ref::get(from, row * D + d));
      }
    };
    const auto loss = [&] {
      dispatch_forward(rig.ctx, {.xe = xe, .x = x, .choice_of = p.choice_of, .rows = p.rows});
      experts(ye, xe);
      combine_forward(
          rig.ctx,
          {.h = h, .ye = ye, .gate = gate, .x = x, .row_of = p.row_of, .skip_identity = identity});
      double sum = 0;
      for (int64_t i = 0; i < h.count(); ++i) sum += ref::get(h, i) * ref::get(dh, i);
      return sum;
    };
    loss();
    ASSERT_GT(p.load.as<int64_t>()[E], 0);
    const Tensor dye = rig.zeros({T * n, D}, DType::kF64), dxe = rig.zeros({T * n, D}, DType::kF64);
    const Tensor dgate = rig.zeros({T, n}, DType::kF64), dx = rig.zeros({T, D}, DType::kF64);
    combine_backward(rig.ctx, {.dye = dye,
                               .dgate = dgate,
                               .dx = dx,
                               .dh = dh,
                               .ye = ye,
                               .gate = gate,
                               .x = x,
                               .row_of = p.row_of,
                               .skip_identity = identity});
    experts(dxe, dye);
    dispatch_backward(rig.ctx, {.dx = dx, .dxe = dxe, .row_of = p.row_of});
    expect_gradient(x, dx, loss, "dx");
    expect_gradient(gate, dgate, loss, "dgate");
  }
}

TEST(ExpertDispatch, TokensDoNotDependOnThreadsOrPlace) {
  for_each_isa([](Isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const int64_t T = 300, n = 2, E = 5, D = 130;
      Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2);
      const Plan p = make_plan(one, T, n, E, 3);
      const Tensor x = one.normal({T, D}, dtype, 1), ye = one.normal({T * n, D}, dtype, 2),
                   dh = one.normal({T, D}, dtype, 3);
      const Tensor gate = one.normal({T, n}, DType::kF32, 4);
      struct Out {
        Tensor xe, h, dye, dgate, dx;
      };
      const auto run = [&](Rig& rig) {
        const Out o = {.xe = one.zeros({T * n, D}, dtype),
                       .h = one.zeros({T, D}, dtype),
                       .dye = one.zeros({T * n, D}, dtype),
                       .dgate = one.zeros({T, n}, DType::kF32),
                       .dx = one.normal({T, D}, DType::kF32, 5)};
        dispatch_forward(rig.ctx, {.xe = o.xe, .x = x, .choice_of = p.choice_of, .rows = p.rows});
        combine_forward(
            rig.ctx,
            {.h = o.h, .ye = ye, .gate = gate, .x = x, .row_of = p.row_of, .skip_identity = true});
        combine_backward(rig.ctx, {.dye = o.dye,
                                   .dgate = o.dgate,
                                   .dx = o.dx,
                                   .dh = dh,
                                   .ye = ye,
                                   .gate = gate,
                                   .x = x,
                                   .row_of = p.row_of,
                                   .skip_identity = true});
        dispatch_backward(rig.ctx, {.dx = o.dx, .dxe = ye, .row_of = p.row_of});
        return o;
      };
      const Out a = run(one), b = run(two);
      EXPECT_SAME_BITS(a.xe, b.xe);
      EXPECT_SAME_BITS(a.h, b.h);
      EXPECT_SAME_BITS(a.dye, b.dye);
      EXPECT_SAME_BITS(a.dgate, b.dgate);
      EXPECT_SAME_BITS(a.dx, b.dx);
      // One token alone, with the same rows of ye: the same bits.
      const Tensor h = one.zeros({1, D}, dtype), dgate = one.zeros({1, n}, DType::kF32);
      const Tensor dye = one.zeros({n, D}, dtype), dx = one.zeros({1, D}, DType::kF32),
                   own = one.zeros({n, D}, dtype);
      const int64_t t = 123, bytes = D * dtype_bytes(dtype);
      std::vector<int32_t> rows;
      for (int64_t j = 0; j < n; ++j) {
        const int32_t row = p.row_of.as<int32_t>()[t * n + j];
        rows.push_back(row < 0 ? -1 : static_cast<int32_t>(j));
        if (row >= 0)
          std::memcpy(static_cast<char*>(own.data) + j * bytes,
                      static_cast<char*>(ye.data) + row * bytes, static_cast<size_t>(bytes));
      }
      const Tensor row_of = one.int32s(rows).reshaped({1, n});
      combine_forward(two.ctx, {.h = h,
                                .ye = own,
                                .gate = gate.rows(t, t + 1),
                                .x = x.rows(t, t + 1),
                                .row_of = row_of,
                                .skip_identity = true});
      combine_backward(two.ctx, {.dye = dye,
                                 .dgate = dgate,
                                 .dx = dx,
                                 .dh = dh.rows(t, t + 1),
                                 .ye = own,
                                 .gate = gate.rows(t, t + 1),
                                 .x = x.rows(t, t + 1),
                                 .row_of = row_of,
                                 .skip_identity = true});
      EXPECT_SAME_BITS(h, a.h.rows(t, t + 1));
      EXPECT_SAME_BITS(dgate, a.dgate.rows(t, t + 1));
    }
  });
}

TEST(ExpertDispatchDeathTest, ExpertOutOfRangeStops) {
  Rig rig(Backend::kCpu, 1);
  const Tensor rows = rig.zeros({5}, DType::kI64), load = rig.zeros({5}, DType::kI64);
  const Tensor choice_of = rig.zeros({2}, DType::kI32), row_of = rig.zeros({2, 1}, DType::kI32);
  for (const int32_t bad : {-1, 5}) {
    const Tensor expert = rig.int32s({0, bad}).reshaped({2, 1});
    EXPECT_DEATH(dispatch_plan(rig.ctx, {.rows = rows,
                                         .choice_of = choice_of,
                                         .row_of = row_of,
                                         .load = load,
                                         .expert = expert}),
                 "expert");
  }
}

}  // namespace
}  // namespace moraine
