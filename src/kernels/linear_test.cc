// Fails if a product drops a term or a tail, if a row's bits depend on its batch, on its position
// or on the threads, or if a gradient is not the derivative of the forward.
#include "kernels/linear.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/random.h"
#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::expect_gradient;
using testing::for_each_isa;
using testing::for_each_read;
using testing::Rig;
using testing::tolerance;

struct LinearShape {
  int64_t rows, n, k;
};

// 1, odd, prime, one past a panel, a tile or a block of the sum, and real widths.
constexpr LinearShape kLinearShapes[] = {
    {0, 8, 8},     {1, 1, 1},     {1, 33, 7},    {2, 31, 1025},  {3, 64, 32},  {5, 37, 41},
    {6, 128, 100}, {7, 32, 513},  {13, 96, 31},  {14, 32, 64},   {15, 65, 2},  {29, 160, 256},
    {64, 257, 65}, {100, 1, 300}, {131, 48, 17}, {33, 40, 2049}, {300, 96, 64}};
constexpr DType kLinearTypes[] = {DType::kF32, DType::kBF16};

PackedMatrix pack(Rig& rig, const Tensor& w, DType dtype, int64_t groups, int64_t n, int64_t k,
                  bool transpose) {
  PackedMatrix packed = {
      .data = rig.zeros({packed_bytes(dtype, groups, n, k) + 64}, DType::kU8).data,
      .dtype = dtype,
      .groups = groups,
      .n = n,
      .k = k};
  pack_matrix(rig.ctx, {.packed = packed, .w = w, .transpose = transpose});
  return packed;
}

// Row bounds of `groups` groups, some of them empty, over at most `total` rows.
std::vector<int64_t> ragged(int64_t groups, int64_t total, uint64_t seed) {
  std::vector<int64_t> rows = {0};
  for (int64_t g = 0; g < groups; ++g) {
    const uint64_t left = static_cast<uint64_t>(total - rows.back());
    const uint64_t most = 1 + 2 * left / static_cast<uint64_t>(groups - g);
    const uint64_t take = random_below(most, seed, Stream::kTest, 2, static_cast<uint64_t>(g));
    rows.push_back(rows.back() + static_cast<int64_t>(g % 5 == 3 ? 0 : std::min(take, left)));
  }
  return rows;
}

// A row-major bf16-rounded copy of w, which is what a pack of that type holds.
Tensor as_packed(Rig& rig, const Tensor& w, DType dtype) {
  return rig.copy_as(rig.copy_as(w, dtype), DType::kF64);
}

Tensor f64(Rig& rig, const Tensor& t) { return rig.copy_as(t, DType::kF64); }

TEST(Linear, ForwardMatchesReference) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kLinearTypes) {
      for (const DType output : {dtype, DType::kF32}) {
        for (const LinearShape& s : kLinearShapes) {
          SCOPED_TRACE(fmt::format("{} {} -> {} rows={} n={} k={}", isa_name(cap),
                                   dtype_name(dtype), dtype_name(output), s.rows, s.n, s.k));
          Rig rig, slow(Backend::kRef);
          const Tensor x = rig.normal({s.rows, s.k}, dtype, 1),
                       w = rig.normal({s.n, s.k}, DType::kF32, 2);
          const Tensor bias = s.n % 2 == 1 ? rig.normal({s.n}, DType::kF32, 3) : Tensor();
          const Tensor y = rig.normal({s.rows, s.n}, output, 4);  // overwritten
          linear_forward(
              rig.ctx,
              {.y = y, .x = x, .w = pack(rig, w, dtype, 1, s.n, s.k, false), .bias = bias});
          const Tensor want = slow.zeros({s.rows, s.n}, DType::kF64);
          const PackedMatrix exact =
              pack(slow, as_packed(slow, w, dtype), DType::kF64, 1, s.n, s.k, false);
          linear_forward(slow.ctx, {.y = want,
                                    .x = f64(slow, x),
                                    .w = exact,
                                    .bias = bias.empty() ? bias : f64(slow, bias)});
          EXPECT_CLOSE(y, want, tolerance(output, s.k));
        }
      }
    }
  });
}

// Sums are the same whatever they are written as, by tiles or from scratch: whole panels and a partial one, one block
// of the sum or two, few rows of many panels, a pack that comes from memory.
TEST(Linear, ARoundedResultIsTheF32OneRounded) {
  for_each_isa([](Isa cap) {
    for (const LinearShape& s : {LinearShape{29, 32, 1},
                                 {29, 160, 65},
                                 {29, 296, 1024},
                                 {29, 288, 1025},
                                 {16, 2080, 1024}}) {
      Rig rig;
      const Tensor x = rig.normal({s.rows, s.k}, DType::kBF16, 1);
      const PackedMatrix packed =
          pack(rig, rig.normal({s.n, s.k}, DType::kF32, 2), DType::kBF16, 1, s.n, s.k, false);
      const Tensor exact = rig.zeros({s.rows, s.n}, DType::kF32);
      linear_forward(rig.ctx, {.y = exact, .x = x, .w = packed, .bias = {}});
      const Tensor want = rig.copy_as(exact, DType::kBF16);
      for_each_read([&](bool into_l1) {
        for (int64_t rows = 1; rows <= s.rows; rows += rows < 15 ? 1 : s.rows - 15) {
          SCOPED_TRACE(fmt::format("{} into L1: {} rows={} n={} k={}", isa_name(cap), into_l1, rows,
                                   s.n, s.k));
          const Tensor y = rig.normal({rows, s.n}, DType::kBF16, 3);  // overwritten
          linear_forward(rig.ctx, {.y = y, .x = x.rows(0, rows), .w = packed, .bias = {}});
          EXPECT_SAME_BITS(y, want.rows(0, rows));
        }
      });
    }
  });
}

// Every third panel, and the last; what stands between stays as it was.
TEST(Linear, SomePanelsAreTheBitsOfAll) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kLinearTypes) {
      for (const LinearShape& s : kLinearShapes) {
        SCOPED_TRACE(fmt::format("{} {} rows={} n={} k={}", isa_name(cap), dtype_name(dtype),
                                 s.rows, s.n, s.k));
        Rig rig;
        const Tensor x = rig.normal({s.rows, s.k}, dtype, 1),
                     w = rig.normal({s.n, s.k}, DType::kF32, 2);
        const PackedMatrix packed = pack(rig, w, dtype, 1, s.n, s.k, false);
        const Tensor all = rig.zeros({s.rows, s.n}, DType::kF32),
                     some = rig.normal({s.rows, s.n}, DType::kF32, 3), want = rig.copy(some);
        linear_forward(rig.ctx, {.y = all, .x = x, .w = packed, .bias = {}});
        std::vector<int32_t> panels;
        for (int64_t p = 0; p * kPackPanel < s.n; ++p) {
          if (p % 3 != 0 && (p + 1) * kPackPanel < s.n) continue;
          panels.push_back(static_cast<int32_t>(p));
          const int64_t begin = p * kPackPanel, end = std::min(begin + kPackPanel, s.n);
          for (int64_t t = 0; t < s.rows; ++t)
            std::copy(all.as<float>() + t * s.n + begin, all.as<float>() + t * s.n + end,
                      want.as<float>() + t * s.n + begin);
        }
        linear_forward_panels(rig.ctx, {.y = some, .x = x, .w = packed, .panels = panels});
        EXPECT_SAME_BITS(some, want);
        const Tensor exact = rig.normal({s.rows, s.n}, DType::kF32, 3);
        linear_forward_panels(rig.ctx, {.y = exact, .x = x, .w = packed, .panels = {}});
        EXPECT_SAME_BITS(exact, rig.normal({s.rows, s.n}, DType::kF32, 3));
      }
    }
  });
}

TEST(Linear, SomePanelsOfTheReferenceAreThoseOfAll) {
  Rig slow(Backend::kRef);
  const Tensor x = slow.normal({3, 20}, DType::kF64, 1), w = slow.normal({70, 20}, DType::kF64, 2),
               all = slow.zeros({3, 70}, DType::kF64), some = slow.zeros({3, 70}, DType::kF64);
  const PackedMatrix packed = pack(slow, w, DType::kF64, 1, 70, 20, false);
  linear_forward(slow.ctx, {.y = all, .x = x, .w = packed, .bias = {}});
  const int32_t panels[] = {0, 2};
  linear_forward_panels(slow.ctx, {.y = some, .x = x, .w = packed, .panels = panels});
  for (int64_t i = 0; i < all.count(); ++i) {
    const bool between = i % 70 >= 32 && i % 70 < 64;
    EXPECT_EQ(some.as<double>()[i], between ? 0 : all.as<double>()[i]) << i;
  }
}

TEST(Linear, BackwardInputIsAForwardWithTheTransposedPack) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kLinearTypes) {
      for (const LinearShape& s : kLinearShapes) {
        SCOPED_TRACE(fmt::format("{} {} rows={} n={} k={}", isa_name(cap), dtype_name(dtype),
                                 s.rows, s.n, s.k));
        Rig rig, slow(Backend::kRef);
        const Tensor dy = rig.normal({s.rows, s.n}, dtype, 1),
                     w = rig.normal({s.n, s.k}, DType::kF32, 2);
        const Tensor dx = rig.normal({s.rows, s.k}, DType::kF32, 4);
        linear_backward_input(rig.ctx,
                              {.dx = dx, .dy = dy, .w = pack(rig, w, dtype, 1, s.k, s.n, true)});
        const Tensor want = slow.zeros({s.rows, s.k}, DType::kF64);
        linear_backward_input(
            slow.ctx, {.dx = want,
                       .dy = f64(slow, dy),
                       .w = pack(slow, as_packed(slow, w, dtype), DType::kF64, 1, s.k, s.n, true)});
        EXPECT_CLOSE(dx, want, tolerance(DType::kF32, s.n));
      }
    }
  });
}

TEST(Linear, BackwardWeightAddsToTheGradient) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kLinearTypes) {
      for (const LinearShape& s : kLinearShapes) {
        SCOPED_TRACE(fmt::format("{} {} rows={} n={} k={}", isa_name(cap), dtype_name(dtype), s.k,
                                 s.n, s.rows));
        const int64_t T = s.k, n = s.n, k = s.rows;  // the long extent of the table is the sum here
        Rig rig, slow(Backend::kRef);
        const Tensor dy = rig.normal({T, n}, dtype, 1), x = rig.normal({T, k}, dtype, 2);
        const Tensor dw = rig.normal({n, k}, DType::kF32, 3),
                     dbias = rig.normal({n}, DType::kF32, 4);
        const Tensor want = f64(slow, dw), want_bias = f64(slow, dbias);
        linear_backward_weight(rig.ctx, {.dw = dw, .dbias = dbias, .dy = dy, .x = x});
        linear_backward_weight(
            slow.ctx, {.dw = want, .dbias = want_bias, .dy = f64(slow, dy), .x = f64(slow, x)});
        EXPECT_CLOSE(dw, want, tolerance(DType::kF32, T));
        EXPECT_CLOSE(dbias, want_bias, tolerance(DType::kF32, T));
      }
    }
  });
}

TEST(Linear, GroupedMatchesReference) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kLinearTypes) {
      const int64_t G = 9, n = 65, k = 50, T = 400;
      const std::vector<int64_t> rows = ragged(G, T - 5, 7);
      SCOPED_TRACE(
          fmt::format("{} {} rows end at {}", isa_name(cap), dtype_name(dtype), rows.back()));
      Rig rig, slow(Backend::kRef);
      const Tensor x = rig.normal({T, k}, dtype, 1), dy = rig.normal({T, n}, dtype, 2);
      const Tensor w = rig.normal({G * n, k}, DType::kF32, 3),
                   bias = rig.normal({G, n}, DType::kF32, 4);
      const Tensor y = rig.normal({T, n}, dtype, 5), dx = rig.normal({T, k}, dtype, 6);
      const Tensor dw = rig.normal({G, n, k}, DType::kF32, 7),
                   dbias = rig.normal({G, n}, DType::kF32, 8);
      const Tensor want_y = f64(slow, y), want_dx = f64(slow, dx), want_dw = f64(slow, dw);
      const Tensor want_dbias = f64(slow, dbias), exact = as_packed(slow, w, dtype);
      const Tensor before = rig.copy(y);

      grouped_linear_forward(
          rig.ctx,
          {.y = y, .x = x, .w = pack(rig, w, dtype, G, n, k, false), .bias = bias, .rows = rows});
      grouped_linear_backward_input(
          rig.ctx, {.dx = dx, .dy = dy, .w = pack(rig, w, dtype, G, k, n, true), .rows = rows});
      grouped_linear_backward_weight(rig.ctx,
                                     {.dw = dw, .dbias = dbias, .dy = dy, .x = x, .rows = rows});
      grouped_linear_forward(slow.ctx, {.y = want_y,
                                        .x = f64(slow, x),
                                        .w = pack(slow, exact, DType::kF64, G, n, k, false),
                                        .bias = f64(slow, bias),
                                        .rows = rows});
      grouped_linear_backward_input(slow.ctx, {.dx = want_dx,
                                               .dy = f64(slow, dy),
                                               .w = pack(slow, exact, DType::kF64, G, k, n, true),
                                               .rows = rows});
      grouped_linear_backward_weight(slow.ctx, {.dw = want_dw,
                                                .dbias = want_dbias,
                                                .dy = f64(slow, dy),
                                                .x = f64(slow, x),
                                                .rows = rows});
      EXPECT_CLOSE(y, want_y, tolerance(dtype, k));
      EXPECT_CLOSE(dx, want_dx, tolerance(dtype, n));
      EXPECT_CLOSE(dw, want_dw, tolerance(DType::kF32, T));
      EXPECT_CLOSE(dbias, want_dbias, tolerance(DType::kF32, T));
      EXPECT_SAME_BITS(y.rows(rows.back(), T), before.rows(rows.back(), T));  // untouched
    }
  });
}

// One row's output must be the same bits in every batch: all batch sizes 1..33, all positions in
// them.
TEST(Linear, ARowHasTheSameBitsInAnyBatch) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kLinearTypes) {
      for (const LinearShape& s : {LinearShape{33, 70, 37}, LinearShape{33, 193, 1300}}) {
        Rig rig;
        const Tensor x = rig.normal({s.rows, s.k}, dtype, 1),
                     w = rig.normal({s.n, s.k}, DType::kF32, 2);
        const Tensor bias = rig.normal({s.n}, DType::kF32, 3);
        const PackedMatrix packed = pack(rig, w, dtype, 1, s.n, s.k, false);
        for (const DType output : {dtype, DType::kF32}) {
          for (const Tensor& b : {Tensor(), bias}) {
            const Tensor whole = rig.zeros({s.rows, s.n}, output),
                         y = rig.zeros({s.rows, s.n}, output);
            linear_forward(rig.ctx, {.y = whole, .x = x, .w = packed, .bias = b});
            for (int64_t size = 1; size <= s.rows; ++size) {
              for (int64_t begin = 0; begin < s.rows; begin += size) {
                const int64_t end = std::min(begin + size, s.rows);
                linear_forward(
                    rig.ctx,
                    {.y = y.rows(begin, end), .x = x.rows(begin, end), .w = packed, .bias = b});
              }
              SCOPED_TRACE(fmt::format("{} {} n={} k={} size={}", isa_name(cap), dtype_name(dtype),
                                       s.n, s.k, size));
              EXPECT_SAME_BITS(y, whole);
              if (::testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  });
}

// A group's rows must have the bits that they have alone; so must its weight gradient.
TEST(Linear, AGroupHasTheSameBitsAsAlone) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kLinearTypes) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
        const int64_t G = 1 + static_cast<int64_t>(seed) * 3, T = 350,
                      n = 45 + 7 * static_cast<int64_t>(seed), k = 129;
        const std::vector<int64_t> rows = ragged(G, T, 40 + seed);
        SCOPED_TRACE(fmt::format("{} {} seed={}", isa_name(cap), dtype_name(dtype), seed));
        Rig rig(Backend::kCpu, 3);
        const Tensor x = rig.normal({T, k}, dtype, 1), dy = rig.normal({T, n}, dtype, 2);
        const Tensor w = rig.normal({G * n, k}, DType::kF32, 3);
        const Tensor y = rig.zeros({T, n}, dtype), alone = rig.zeros({T, n}, dtype);
        const Tensor dw = rig.zeros({G, n, k}, DType::kF32),
                     dw_alone = rig.zeros({G, n, k}, DType::kF32);
        const Tensor db = rig.zeros({G, n}, DType::kF32), db_alone = rig.zeros({G, n}, DType::kF32);
        grouped_linear_forward(rig.ctx, {.y = y,
                                         .x = x,
                                         .w = pack(rig, w, dtype, G, n, k, false),
                                         .bias = Tensor(),
                                         .rows = rows});
        grouped_linear_backward_weight(rig.ctx,
                                       {.dw = dw, .dbias = db, .dy = dy, .x = x, .rows = rows});
        for (int64_t g = 0; g < G; ++g) {
          const int64_t r0 = rows[static_cast<size_t>(g)], r1 = rows[static_cast<size_t>(g) + 1];
          linear_forward(rig.ctx,
                         {.y = alone.rows(r0, r1),
                          .x = x.rows(r0, r1),
                          .w = pack(rig, w.rows(g * n, (g + 1) * n), dtype, 1, n, k, false),
                          .bias = Tensor()});
          linear_backward_weight(rig.ctx, {.dw = dw_alone.rows(g, g + 1).reshaped({n, k}),
                                           .dbias = db_alone.rows(g, g + 1).reshaped({n}),
                                           .dy = dy.rows(r0, r1),
                                           .x = x.rows(r0, r1)});
        }
        EXPECT_SAME_BITS(y, alone);
        EXPECT_SAME_BITS(dw, dw_alone);
        EXPECT_SAME_BITS(db, db_alone);
      }
    }
  });
}

// Nor does a cut of the work that differs with them: of the last shape one thread takes parts of panels on AVX2, a tile
// of several threads whole ones.
TEST(Linear, ThreadsDoNotChangeBits) {
  for_each_isa([](Isa cap) {
    for (const DType dtype : kLinearTypes) {
      for (const LinearShape& s : {LinearShape{200, 300, 70}, LinearShape{1, 1000, 600},
                                   LinearShape{1100, 70, 45}, LinearShape{100, 193, 1300}}) {
        SCOPED_TRACE(fmt::format("{} {} rows={}", isa_name(cap), dtype_name(dtype), s.rows));
        Rig one(Backend::kCpu, 1);
        const Tensor x = one.normal({s.rows, s.k}, dtype, 1),
                     w = one.normal({s.n, s.k}, DType::kF32, 2);
        const Tensor dy = one.normal({s.rows, s.n}, dtype, 3);
        const Tensor y1 = one.zeros({s.rows, s.n}, dtype),
                     dw1 = one.normal({s.n, s.k}, DType::kF32, 4);
        const Tensor dw0 = one.copy(dw1), db1 = one.zeros({s.n}, DType::kF32);
        linear_forward(
            one.ctx,
            {.y = y1, .x = x, .w = pack(one, w, dtype, 1, s.n, s.k, false), .bias = Tensor()});
        linear_backward_weight(one.ctx, {.dw = dw1, .dbias = db1, .dy = dy, .x = x});
        for (const int threads : {2, 3}) {
          Rig many(Backend::kCpu, threads);
          const Tensor y = many.zeros({s.rows, s.n}, dtype), dw = many.copy(dw0),
                       db = many.zeros({s.n}, DType::kF32);
          linear_forward(
              many.ctx,
              {.y = y, .x = x, .w = pack(many, w, dtype, 1, s.n, s.k, false), .bias = Tensor()});
          linear_backward_weight(many.ctx, {.dw = dw, .dbias = db, .dy = dy, .x = x});
          EXPECT_SAME_BITS(y, y1);
          EXPECT_SAME_BITS(dw, dw1);
          EXPECT_SAME_BITS(db, db1);
        }
      }
    }
  });
}

// As above: sums of several blocks above a diagonal that begin with a matrix of their own; sums that wait for a bias.
TEST(Linear, ThreadsDoNotChangeBitsOfSymmetricAndBiasedProducts) {
  for (const DType compute : kLinearTypes) {
    std::vector<Tensor> c, y;
    Rig rigs[] = {Rig(Backend::kCpu, 1), Rig(Backend::kCpu, 3)};
    for (Rig& rig : rigs) {
      const int64_t m = 200, k = 1300;
      const Tensor a = rig.normal({m, k}, DType::kF32, 1), c0 = rig.zeros({m, m}, DType::kF32);
      std::fill_n(c0.as<float>(), m * m, 0.75f);
      c.push_back(rig.zeros({m, m}, DType::kF32));
      matmul_nt(rig.ctx, {.c = c.back(),
                          .c0 = c0,
                          .a = a,
                          .b = a,
                          .alpha = 1.5f,
                          .beta = -0.5f,
                          .symmetric = true,
                          .compute = compute,
                          .scratch = rig.zeros({matmul_scratch_bytes(m, k, compute)}, DType::kU8)});
      const int64_t n = 600, sum = 300;
      y.push_back(rig.zeros({40, n}, compute));
      linear_forward(
          rig.ctx, {.y = y.back(),
                    .x = rig.normal({40, sum}, compute, 2),
                    .w = pack(rig, rig.normal({n, sum}, DType::kF32, 3), compute, 1, n, sum, false),
                    .bias = rig.normal({n}, DType::kF32, 4)});
    }
    EXPECT_SAME_BITS(c[1], c[0]);
    EXPECT_SAME_BITS(y[1], y[0]);
  }
}

// The gradient of a group with many rows is cut into more parts than that of one with few.
TEST(Linear, ThreadsDoNotChangeBitsOfUnevenGroups) {
  const int64_t n = 260, k = 70;
  const std::vector<int64_t> rows = {0, 3, 3, 150, 157};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig rigs[] = {Rig(Backend::kCpu, 1), Rig(Backend::kCpu, 3)};
    Tensor dw[2];
    for (size_t i = 0; i < 2; ++i) {
      dw[i] = rigs[i].normal({4, n, k}, DType::kF32, 3);
      grouped_linear_backward_weight(rigs[i].ctx, {.dw = dw[i],
                                                   .dbias = {},
                                                   .dy = rigs[i].normal({160, n}, dtype, 1),
                                                   .x = rigs[i].normal({160, k}, dtype, 2),
                                                   .rows = rows});
    }
    EXPECT_SAME_BITS(dw[1], dw[0]);
  }
}

TEST(Linear, GradientsAreDerivatives) {
  Rig rig(Backend::kRef);
  const int64_t G = 3, n = 5, k = 4, T = 11;
  const std::vector<int64_t> rows = {0, 4, 4, 10};
  const Tensor x = rig.normal({T, k}, DType::kF64, 1), w = rig.normal({G * n, k}, DType::kF64, 2);
  const Tensor bias = rig.normal({G, n}, DType::kF64, 3), dy = rig.normal({T, n}, DType::kF64, 4);
  const auto loss = [&] {
    const Tensor y = rig.zeros({T, n}, DType::kF64);
    grouped_linear_forward(rig.ctx, {.y = y,
                                     .x = x,
                                     .w = pack(rig, w, DType::kF64, G, n, k, false),
                                     .bias = bias,
                                     .rows = rows});
    double sum = 0;
    for (int64_t i = 0; i < y.count(); ++i) sum += ref::get(y, i) * ref::get(dy, i);
    return sum;
  };
  const Tensor dx = rig.zeros({T, k}, DType::kF64), dw = rig.zeros({G, n, k}, DType::kF64),
               dbias = rig.zeros({G, n}, DType::kF64);
  grouped_linear_backward_input(
      rig.ctx, {.dx = dx, .dy = dy, .w = pack(rig, w, DType::kF64, G, k, n, true), .rows = rows});
  grouped_linear_backward_weight(rig.ctx,
                                 {.dw = dw, .dbias = dbias, .dy = dy, .x = x, .rows = rows});
  expect_gradient(x, dx, loss, "dx");
  expect_gradient(w, dw, loss, "dw");
  expect_gradient(bias, dbias, loss, "dbias");
}

// An infinity or NaN stays in its own row and column: padding multiplies nothing into others.
TEST(Linear, NotANumberStaysInItsRow) {
  for_each_isa([](Isa) {
    for (const DType dtype : kLinearTypes) {
      Rig rig;
      const int64_t T = 17, n = 35, k = 9;
      const Tensor x = rig.normal({T, k}, dtype, 1), w = rig.normal({n, k}, DType::kF32, 2);
      ref::set(x, 4 * k + 8, std::numeric_limits<double>::infinity());
      ref::set(x, 6 * k, std::numeric_limits<double>::quiet_NaN());  // right behind row 5
      const Tensor y = rig.zeros({T, n}, dtype);
      linear_forward(rig.ctx,
                     {.y = y, .x = x, .w = pack(rig, w, dtype, 1, n, k, false), .bias = Tensor()});
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t j = 0; j < n; ++j) {
          const double v = ref::get(y, t * n + j);
          EXPECT_EQ(std::isinf(v), t == 4) << t;
          EXPECT_EQ(std::isnan(v), t == 6) << t;
        }
      }
    }
  });
}

TEST(Linear, MatmulMatchesReference) {
  for (const DType compute : kLinearTypes) {
    for (const LinearShape& s :
         {LinearShape{1, 1, 1}, LinearShape{30, 47, 33}, LinearShape{65, 65, 1100},
          LinearShape{128, 96, 64}, LinearShape{0, 5, 5}}) {
      for (const bool symmetric : {false, true}) {
        for (const float beta : {0.0f, -0.5f}) {
          for (const bool in_place : {false, true}) {
            SCOPED_TRACE(fmt::format("{} m={} n={} k={} symmetric={} beta={} in_place={}",
                                     dtype_name(compute), s.rows, s.n, s.k, symmetric, beta,
                                     in_place));
            const int64_t m = s.rows, n = symmetric ? m : s.n, k = s.k;
            Rig rig, slow(Backend::kRef);
            const Tensor a = rig.normal({m, k}, DType::kF32, 1),
                         b = symmetric ? a : rig.normal({n, k}, DType::kF32, 2);
            const Tensor c0 = rig.normal({m, n}, DType::kF32, 3);
            for (int64_t i = 0; symmetric && i < m * m; ++i) {
              if (i % m < i / m) ref::set(c0, i, ref::get(c0, i % m * m + i / m));
            }
            const Tensor want = slow.zeros({m, n}, DType::kF64);
            matmul_nt(slow.ctx, {.c = want,
                                 .c0 = f64(slow, c0),
                                 .a = f64(slow, a),
                                 .b = f64(slow, b),
                                 .alpha = 1.5f,
                                 .beta = beta,
                                 .symmetric = symmetric,
                                 .compute = compute,
                                 .scratch = Tensor()});
            for_each_isa([&](Isa cap) {
              SCOPED_TRACE(isa_name(cap));
              const auto product = [&](const Tensor& right, bool b_is_kn) {
                const Tensor c = in_place ? rig.copy(c0) : rig.normal({m, n}, DType::kF32, 4);
                const Tensor scratch = rig.zeros({matmul_scratch_bytes(n, k, compute)}, DType::kU8);
                matmul_nt(rig.ctx, {.c = c,
                                    .c0 = beta == 0  ? Tensor()
                                          : in_place ? c
                                                     : c0,
                                    .a = a,
                                    .b = right,
                                    .alpha = 1.5f,
                                    .beta = beta,
                                    .symmetric = symmetric,
                                    .compute = compute,
                                    .b_is_kn = b_is_kn,
                                    .scratch = scratch});
                return c;
              };
              const Tensor c = product(b, false), turned = rig.zeros({k, n}, DType::kF32);
              EXPECT_CLOSE(c, want, tolerance(DType::kF32, k));
              for (int64_t i = 0; i < n * k; ++i)
                ref::set(turned, i % k * n + i / k, ref::get(b, i));
              EXPECT_SAME_BITS(product(turned, true), c);
              for (int64_t i = 0; symmetric && i < m * m; ++i) {
                ASSERT_EQ(ref::get(c, i), ref::get(c, i % m * m + i / m));
              }
            });
          }
        }
      }
    }
  }
}

TEST(Linear, WorkIsCounted) {
  Rig rig;
  Profile profile;
  rig.ctx.profile = &profile;
  const Tensor x = rig.zeros({3, 4}, DType::kF32), w = rig.zeros({5, 4}, DType::kF32),
               y = rig.zeros({3, 5}, DType::kF32);
  linear_forward(
      rig.ctx, {.y = y, .x = x, .w = pack(rig, w, DType::kF32, 1, 5, 4, false), .bias = Tensor()});
  EXPECT_EQ(profile.flops(), 2.0 * 3 * 4 * 5);
}

// Fails if a floor of bytes counts experts that no row asked for.
TEST(Linear, BytesAreThoseOfGroupsWithRows) {
  Rig rig;
  Profile profile;
  const Tensor x = rig.zeros({3, 4}, DType::kF32), w = rig.zeros({4 * 5, 4}, DType::kF32),
               y = rig.zeros({3, 5}, DType::kF32);
  const PackedMatrix packed = pack(rig, w, DType::kF32, 4, 5, 4, false);
  const int64_t rows[] = {0, 2, 2, 3, 3};
  rig.ctx.profile = &profile;
  grouped_linear_forward(rig.ctx, {.y = y, .x = x, .w = packed, .bias = Tensor(), .rows = rows});
  rig.ctx.profile = nullptr;
  EXPECT_EQ(profile.rows().front().bytes,
            4.0 * (3 * 4 + 3 * 5) + 2.0 * double(packed_group_bytes(packed)));
}

}  // namespace
}  // namespace moraine
