// Attention: the reference against finite differences, the cpu kernels against the reference, and
// one row's bits in every batch: alone, chunked, cached, packed, on one thread or two.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/attention_allowed.h"
#include "kernels/cpu/attention_tasks.h"
#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

constexpr int64_t kBlockKeys = 128;  // of the cpu kernels: cases stand one beside it

// Documents one after the other, whole: training and prefill.
std::vector<Segment> laid_documents(const std::vector<int64_t>& lengths) {
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
    const std::vector<Segment> segments = laid_documents({5, 1, 7});
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

struct AttentionCase {
  std::vector<int64_t> lengths;  // laid_documents of the batch
  int64_t H, K, d, window;
};

const std::vector<AttentionCase>& cases() {
  static const std::vector<AttentionCase> all = {
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
      {{100}, 2, 1, 16, 18},                 // only one row of a group sees the first key group
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

void expect_matches_reference(const AttentionCase& test, DType dtype, uint64_t seed) {
  Rig rig;
  const std::vector<Segment> segments = laid_documents(test.lengths);
  const int64_t T = rows_of(segments), d = test.d;
  const int64_t longest = *std::max_element(test.lengths.begin(), test.lengths.end());
  Problem want(rig, segments, T, test.H, test.K, d, dtype, seed);
  want.window = test.window;
  for (Tensor* t : {&want.o, &want.lse, &want.delta, &want.dq, &want.dk, &want.dv}) {
    *t = rig.copy_as(*t, DType::kF64);
  }
  ref::attention_forward(want.forward());
  const Tensor want_o = want.o, want_lse = want.lse;
  want.o = rig.copy_as(want_o, dtype);  // the backward is compared on equal inputs
  want.lse = rig.copy_as(want_lse, DType::kF32);
  ref::attention_backward(want.backward());
  const AttentionBackward b = want.backward();
  const AttentionAllowed allowed(
      {.q = b.q,
       .k = b.k,
       .v = b.v,
       .do_ = b.do_,
       .lse = b.lse,
       .delta = b.delta,
       .scale = b.scale},
      1, [&](const auto& pair) { for_visible_pairs(segments, {}, test.window, pair); });

  for_each_isa([&](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Problem p(rig, segments, T, test.H, test.K, d, dtype, seed);
    p.window = test.window;
    attention_forward(rig.ctx, p.forward());
    expect_allowed(p.o, want_o, allowed.o, "o");
    EXPECT_CLOSE(p.lse, want_lse, tolerance(DType::kF32, longest + d));
    p.o = want.o;
    p.lse = want.lse;
    attention_backward(rig.ctx, p.backward());
    EXPECT_CLOSE(p.delta, want.delta, tolerance(DType::kF32, d));
    expect_allowed(p.dq, want.dq, allowed.dq, "dq");
    expect_allowed(p.dk, want.dk, allowed.dk, "dk");
    expect_allowed(p.dv, want.dv, allowed.dv, "dv");
  });
}

TEST(Attention, CpuMatchesReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (size_t c = 0; c < cases().size(); ++c) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " case " + std::to_string(c));
      expect_matches_reference(cases()[c], dtype, 100 * c);
    }
  }
}

TEST(Attention, NoRowsIsNoWork) {
  Rig rig;
  const Problem p(rig, {}, 0, 2, 1, 16, DType::kBF16, 1);
  attention_forward(rig.ctx, p.forward());
  attention_backward(rig.ctx, p.backward());
  const Problem cached(rig, {}, 5, 2, 1, 16, DType::kF32, 1);  // keys, but no rows
  attention_forward(rig.ctx, cached.forward());
}

// A cache that holds garbage where the laid_documents have no keys (yet).
TEST(Attention, UnwrittenKeysAreNotRead) {
  for_each_isa([](Isa isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(isa_name(isa));
      Rig rig;
      const std::vector<Segment> segments = {{0, 1, 20, 3}, {1, 5, 64, 30}};
      Problem p(rig, segments, 110, 4, 2, 24, dtype, 7);
      for (const int64_t row : {0, 1, 2, 24, 25, 29, 99, 100, 109}) {
        for (int64_t e = row * 48; e < (row + 1) * 48; ++e) {
          ref::set(p.k, e, NAN);
          ref::set(p.v, e, INFINITY);
        }
      }
      attention_forward(rig.ctx, p.forward());
      for (int64_t e = 0; e < p.o.count(); ++e) ASSERT_TRUE(std::isfinite(ref::get(p.o, e))) << e;
      for (int64_t e = 0; e < p.lse.count(); ++e) ASSERT_TRUE(std::isfinite(ref::get(p.lse, e)));
    }
  });
}

// Scores far beyond what exp can hold, of both signs.
TEST(Attention, LargeScoresStayFinite) {
  for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Rig rig;
    Problem p(rig, laid_documents({90}), 90, 2, 1, 32, DType::kF32, 3);
    p.scale = 60;
    Problem want = p;
    want.o = rig.zeros({90, 2, 32}, DType::kF64);
    want.lse = rig.zeros({90, 2}, DType::kF64);
    attention_forward(rig.ctx, p.forward());
    ref::attention_forward(want.forward());
    // Scores of 60 * 32 * 2.25 have f32 steps of 2^-11, which are relative errors of the weights.
    expect_close(p.o, want.o, {0x1.0p-7}, "o");
    EXPECT_CLOSE(p.lse, want.lse, tolerance(DType::kF32, 32));
    attention_backward(rig.ctx, p.backward());
    for (const Tensor& t : {p.dq, p.dk, p.dv}) {
      for (int64_t e = 0; e < t.count(); ++e) ASSERT_TRUE(std::isfinite(ref::get(t, e)));
    }
  });
}

// ---------------------------------------------------------------------------------- same bits

struct BitCase {
  int64_t rows, H, K, d, window;
};

constexpr BitCase kBitCases[] = {
    {150, 4, 2, 64, 0}, {97, 3, 1, 20, 0}, {200, 2, 2, 33, 50},
    {130, 8, 2, 16, 5}, {70, 20, 1, 8, 0},
};

void for_bit_cases(const std::function<void(const BitCase&, DType)>& f) {
  for_each_isa([&](Isa isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const BitCase& c : kBitCases) {
        SCOPED_TRACE(std::string(isa_name(isa)) + " " + dtype_name(dtype) + " rows " +
                     std::to_string(c.rows) + " window " + std::to_string(c.window));
        f(c, dtype);
      }
    }
  });
}

void copy_rows(const Tensor& from, int64_t begin, int64_t end, const Tensor& to, int64_t at) {
  const Tensor source = from.rows(begin, end), target = to.rows(at, at + end - begin);
  std::memcpy(target.data, source.data, static_cast<size_t>(source.bytes()));
}

// Rows of a document computed in chunks against a cache equal those computed at once; the cache
// lies anywhere, and other laid_documents' chunks are in the same batch.
TEST(Attention, ChunksHaveTheBitsOfTheWhole) {
  for_bit_cases([](const BitCase& c, DType dtype) {
    Rig rig;
    Problem whole(rig, laid_documents({c.rows}), c.rows, c.H, c.K, c.d, dtype, 11);
    whole.window = c.window;
    attention_forward(rig.ctx, whole.forward());
    const int64_t R = c.rows + 60, key_begin = 37;
    const Problem noise(rig, laid_documents({68}), R, c.H, c.K, c.d, dtype, 12);
    for (const int64_t chunk : {1, 3, 16, 29, 64}) {
      const Tensor k = rig.copy(noise.k), v = rig.copy(noise.v);  // later keys are noise
      for (int64_t begin = 0; begin < c.rows; begin += chunk) {
        const int64_t rows = std::min(chunk, c.rows - begin), end = begin + rows;
        copy_rows(whole.k, begin, end, k, key_begin + begin);
        copy_rows(whole.v, begin, end, v, key_begin + begin);
        if (chunk < 16 && begin % 7 != 0 && end + 9 < c.rows) continue;  // a sample is enough
        const int64_t other = 1 + begin % 4;  // rows of another document before it
        const Problem part = [&] {
          Problem p = noise;
          p.segments = {{0, other, 13, 2}, {other, rows, begin, key_begin}};
          p.window = c.window;
          p.k = k;
          p.v = v;
          for (Tensor* t : {&p.q, &p.o, &p.lse}) *t = t->rows(0, other + rows);
          return p;
        }();
        copy_rows(whole.q, begin, end, part.q, other);
        attention_forward(rig.ctx, part.forward());
        EXPECT_SAME_BITS(part.o.rows(other, other + rows), whole.o.rows(begin, end));
        EXPECT_SAME_BITS(part.lse.rows(other, other + rows), whole.lse.rows(begin, end));
        if (::testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST(Attention, TheReferenceKnowsPages) {
  Rig rig;
  const Problem rows(rig, laid_documents({70}), 70, 4, 2, 8, DType::kF32, 11),
      pages(rig, laid_documents({70}), 96, 4, 2, 8, DType::kF32, 12);
  const int32_t table[] = {4, 0, 5, 2, 1};
  for (int64_t i = 0; i < 5; ++i) {
    copy_rows(rows.k, i * 16, std::min<int64_t>(70, i * 16 + 16), pages.k, table[i] * 16);
    copy_rows(rows.v, i * 16, std::min<int64_t>(70, i * 16 + 16), pages.v, table[i] * 16);
  }
  AttentionForward forward = rows.forward();
  ref::attention_forward(forward);
  const Tensor want = rig.copy(rows.o);
  forward.k = pages.k, forward.v = pages.v, forward.pages = {table, 16};
  ref::attention_forward(forward);
  EXPECT_SAME_BITS(rows.o, want);
}

// Keys in pages, scattered over the cache, give the bits of keys in a row.
TEST(Attention, PagesHaveTheBitsOfRows) {
  for_bit_cases([](const BitCase& c, DType dtype) {
    Rig rig;
    Problem whole(rig, laid_documents({c.rows}), c.rows, c.H, c.K, c.d, dtype, 11);
    whole.window = c.window;
    attention_forward(rig.ctx, whole.forward());
    for (const int64_t page : {16, 64, 128}) {
      const int64_t pages = (c.rows + page - 1) / page, R = (2 * pages + 1) * page;
      const Problem noise(rig, laid_documents({R}), R, c.H, c.K, c.d, dtype, 12);
      const Tensor k = rig.copy(noise.k), v = rig.copy(noise.v);
      std::vector<int32_t> table = {0, 0, 0};  // of a document before it
      for (int64_t i = 0; i < pages; ++i) {
        table.push_back(static_cast<int32_t>(1 + 2 * ((i * 5 + 3) % pages)));  // no neighbours
        if (pages % 5 == 0) table.back() = static_cast<int32_t>(1 + 2 * (pages - 1 - i));
        const int64_t begin = i * page, end = std::min(c.rows, begin + page);
        copy_rows(whole.k, begin, end, k, table.back() * page);
        copy_rows(whole.v, begin, end, v, table.back() * page);
      }
      const int64_t rows = std::min<int64_t>(c.rows, 35), begin = c.rows - rows, other = 3;
      Problem p = noise;
      p.segments = {{0, other, 13, 0}, {other, rows, begin, 3}};
      p.window = c.window;
      p.k = k;
      p.v = v;
      for (Tensor* t : {&p.q, &p.o, &p.lse}) *t = t->rows(0, other + rows);
      copy_rows(whole.q, begin, c.rows, p.q, other);
      AttentionForward forward = p.forward();
      forward.pages = {table, page};
      attention_forward(rig.ctx, forward);
      EXPECT_SAME_BITS(p.o.rows(other, other + rows), whole.o.rows(begin, c.rows));
      EXPECT_SAME_BITS(p.lse.rows(other, other + rows), whole.lse.rows(begin, c.rows));
      if (::testing::Test::HasFailure()) return;
    }
  });
}

// Decoding: many documents of one to three rows each, which all key heads of a task take in turns, have the bits of
// those rows in a document that is computed whole. Here they are beginnings of one document.
TEST(Attention, ManyDocumentsOfFewRowsHaveTheBitsOfTheWhole) {
  const BitCase cases[] = {{300, 6, 3, 48, 0},
                           {300, 8, 2, 64, 0},
                           {260, 6, 3, 32, 50},
                           {140, 4, 2, 33, 0},
                           {140, 24, 2, 16, 0}};
  for_each_isa([&](Isa isa) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const BitCase& c : cases) {
        SCOPED_TRACE(std::string(isa_name(isa)) + " " + dtype_name(dtype) + " width " +
                     std::to_string(c.d));
        Rig rig(Backend::kCpu, 2);
        Problem whole(rig, laid_documents({c.rows}), c.rows, c.H, c.K, c.d, dtype, 11);
        whole.window = c.window;
        attention_forward(rig.ctx, whole.forward());
        std::vector<Segment> segments;
        for (int64_t i = 0; i < 40; ++i) {
          const int64_t rows = 1 + i % 3, begin = i * 37 % (c.rows - rows);
          segments.push_back({rows_of(segments), rows, begin, 0});
        }
        Problem few(rig, laid_documents({c.rows}), c.rows, c.H, c.K, c.d, dtype, 12);
        few.segments = segments, few.window = c.window, few.k = whole.k, few.v = whole.v;
        for (Tensor* t : {&few.q, &few.o, &few.lse}) *t = t->rows(0, rows_of(segments));
        for (const Segment& s : segments)
          copy_rows(whole.q, s.position_begin, s.position_begin + s.rows, few.q, s.row_begin);
        attention_forward(rig.ctx, few.forward());
        for (const Segment& s : segments) {
          const int64_t begin = s.position_begin, end = begin + s.rows;
          EXPECT_SAME_BITS(few.o.rows(s.row_begin, s.row_begin + s.rows), whole.o.rows(begin, end));
          EXPECT_SAME_BITS(few.lse.rows(s.row_begin, s.row_begin + s.rows),
                           whole.lse.rows(begin, end));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

// A document's forward and backward among others equal those alone.
TEST(Attention, PackedHasTheBitsOfAlone) {
  for_bit_cases([](const BitCase& c, DType dtype) {
    Rig rig;
    for (const int64_t before : {21, 128}) {
      const std::vector<Segment> segments = laid_documents({before, c.rows, 40});
      const int64_t begin = before, end = begin + c.rows;
      Problem packed(rig, segments, end + 40, c.H, c.K, c.d, dtype, 21);
      Problem alone(rig, laid_documents({c.rows}), c.rows, c.H, c.K, c.d, dtype, 22);
      packed.window = alone.window = c.window;
      copy_rows(packed.q, begin, end, alone.q, 0);
      copy_rows(packed.k, begin, end, alone.k, 0);
      copy_rows(packed.v, begin, end, alone.v, 0);
      copy_rows(packed.do_, begin, end, alone.do_, 0);
      for (const Problem* p : {&packed, &alone}) {
        attention_forward(rig.ctx, p->forward());
        attention_backward(rig.ctx, p->backward());
      }
      EXPECT_SAME_BITS(alone.o, packed.o.rows(begin, end));
      EXPECT_SAME_BITS(alone.lse, packed.lse.rows(begin, end));
      EXPECT_SAME_BITS(alone.delta, packed.delta.rows(begin, end));
      EXPECT_SAME_BITS(alone.dq, packed.dq.rows(begin, end));
      EXPECT_SAME_BITS(alone.dk, packed.dk.rows(begin, end));
      EXPECT_SAME_BITS(alone.dv, packed.dv.rows(begin, end));
      if (::testing::Test::HasFailure()) return;
    }
  });
}

// More threads make other tasks: finer rows, heads apart, laid_documents cut instead of whole.
TEST(Attention, ThreadsDoNotChangeBits) {
  for_bit_cases([](const BitCase& c, DType dtype) {
    const std::vector<Segment> segments = laid_documents({c.rows, 30, 64, 3});
    const int64_t T = rows_of(segments);
    Rig one(Backend::kCpu, 1);
    Problem want(one, segments, T, c.H, c.K, c.d, dtype, 31);
    want.window = c.window;
    attention_forward(one.ctx, want.forward());
    attention_backward(one.ctx, want.backward());
    for (const int threads : {2, 9}) {
      Rig rig(Backend::kCpu, threads);
      Problem got(rig, segments, T, c.H, c.K, c.d, dtype, 31);
      got.window = c.window;
      attention_forward(rig.ctx, got.forward());
      attention_backward(rig.ctx, got.backward());
      EXPECT_SAME_BITS(got.o, want.o);
      EXPECT_SAME_BITS(got.lse, want.lse);
      EXPECT_SAME_BITS(got.dq, want.dq);
      EXPECT_SAME_BITS(got.dk, want.dk);
      EXPECT_SAME_BITS(got.dv, want.dv);
    }
  });
}

// One problem on two rigs.
struct RigAndProblem {
  Rig& rig;
  Problem& problem;
};
void expect_same_gradients(const RigAndProblem& want, const RigAndProblem& got) {
  for (const RigAndProblem* of : {&want, &got}) {
    attention_forward(of->rig.ctx, of->problem.forward());
    attention_backward(of->rig.ctx, of->problem.backward());
  }
  EXPECT_SAME_BITS(got.problem.dq, want.problem.dq);
  EXPECT_SAME_BITS(got.problem.dk, want.problem.dk);
  EXPECT_SAME_BITS(got.problem.dv, want.problem.dv);
}

attention::BackwardSizes sizes_on(Isa isa, int64_t d, DType dtype) {
  const bool pairs = dtype == DType::kBF16 && isa >= Isa::kAvx512Bf16;
  return {d, pairs ? 2 : 1, pairs && isa == Isa::kAmx};
}

// One more row, and its packs would not fit a worker's scratch. With more threads such a document is cut.
TEST(Attention, TheLongestDocumentThatIsTakenWholeHasTheBitsOfParts) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t d : {240, 1024}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " width " + std::to_string(d));
      for_each_isa([&](Isa isa) {
        const int64_t rows = attention::most_rows(sizes_on(isa, d, dtype), kWorkerScratchBytes);
        ASSERT_GT(rows, 0);
        const std::vector<Segment> segments = laid_documents({rows});
        Rig one(Backend::kCpu, 1), many(Backend::kCpu, 9);
        Problem want(one, segments, rows, 1, 1, d, dtype, 41);
        Problem got(many, segments, rows, 1, 1, d, dtype, 41);
        expect_same_gradients({one, want}, {many, got});
      });
    }
  }
}

// What a trainer takes for long documents: no more than they need, and none where threads would have no work.
TEST(Attention, WorkersWithMoreScratchTakeLongerDocumentsWhole) {
  const auto extents = [](int64_t rows, int64_t threads) {
    return cpu::AttentionExtents{.rows = rows,
                                 .documents = 1,
                                 .kv_heads = 2,
                                 .head_dim = 256,
                                 .dtype = DType::kBF16,
                                 .threads = threads};
  };
  for_each_isa([&](Isa isa) {
    const attention::BackwardSizes sizes = sizes_on(isa, 256, DType::kBF16);
    EXPECT_EQ(cpu::attention_worker_bytes(extents(128, 2)), kWorkerScratchBytes);
    EXPECT_EQ(cpu::attention_worker_bytes(extents(1400, 3)), kWorkerScratchBytes);
    EXPECT_EQ(cpu::attention_worker_bytes(extents(1 << 20, 2)), int64_t{32} << 20);
    const int64_t bytes = cpu::attention_worker_bytes(extents(1400, 2));
    EXPECT_LT(attention::most_rows(sizes, kWorkerScratchBytes), 1400);
    EXPECT_GE(attention::most_rows(sizes, bytes), 1400);
    EXPECT_LT(attention::most_rows(sizes, bytes - 64), 1400);
  });
}

TEST(Attention, ADocumentTakenWholeForItsScratchHasTheBitsOfParts) {
  constexpr int64_t kRows = 1400, kHeads = 2, kWidth = 240;
  const std::vector<Segment> segments = laid_documents({kRows});
  for_each_isa([&](Isa) {
    Rig rig(Backend::kCpu, 2), whole(Backend::kCpu, 2);
    whole.ctx.scratch = whole.zeros({2, int64_t{16} << 20}, DType::kU8);
    Problem want(rig, segments, kRows, 4, kHeads, kWidth, DType::kBF16, 43),
        got(whole, segments, kRows, 4, kHeads, kWidth, DType::kBF16, 43);
    expect_same_gradients({rig, want}, {whole, got});
  });
}

}  // namespace
}  // namespace moraine
