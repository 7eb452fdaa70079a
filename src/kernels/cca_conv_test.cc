// CcaConv: fails if a tap, the bias or the padding differs from two plain convolutions over a
// document padded once, if rows cross a document border, if a split document differs in one bit
// from the whole, or if a gradient is not that of the forward pass.
#include "kernels/cca_conv.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/check_tensor.h"
#include "kernels/ref/element.h"
#include "testing/two_ways.h"

namespace moraine {
namespace {

using namespace testing;

struct ConvCase {
  std::vector<int64_t> rows;  // of each document
  int64_t G, d, others;       // others: columns after q and k
  DType dtype;
  bool halo;
};

const std::vector<ConvCase> kConvCases = {
    {{1}, 1, 1, 0, DType::kF32, false},                 // smallest
    {{1, 2, 3, 1, 1, 5}, 3, 5, 4, DType::kF32, false},  // documents of few rows
    {{1, 2, 3, 1, 1, 5}, 3, 17, 4, DType::kBF16, true},
    {{63, 1, 1, 64, 30, 70}, 3, 33, 7, DType::kBF16, false},  // borders at the block's edge
    {{64, 65, 2}, 2, 16, 8, DType::kF32, true},
    {{100, 156}, 10, 64, 128, DType::kBF16, false},  // a small model
    {{67}, 10, 128, 256, DType::kBF16, true},        // the widths of the model
    {{}, 2, 8, 4, DType::kF32, false},               // no rows
};

struct ConvData {
  std::vector<Segment> segments;
  CcaConvForward forward;
  CcaConvBackward backward;
};

ConvData make_conv_data(Rig& rig, const ConvCase& c, DType dtype) {
  ConvData data;
  data.segments = documents(c.rows);
  const int64_t S = static_cast<int64_t>(data.segments.size()), C = c.G * c.d, N = C + c.others;
  int64_t T = 0;
  for (const int64_t n : c.rows) T += n;
  const DType wide = wide_dtype(dtype);
  const Tensor qkv = rig.normal({T, N}, dtype, 1), w = rig.normal({C, 2}, wide, 2);
  data.forward = {.pair = rig.normal({c.G, T, 2 * c.d}, dtype, 3),
                  .qkv = qkv,
                  .halo = c.halo ? rig.normal({S, 2, C}, dtype, 4) : Tensor(),
                  .w = w,
                  .b = rig.normal({C}, wide, 5),
                  .segments = data.segments,
                  .halo_row = {}};
  data.backward = {.dqkv = rig.normal({T, N}, dtype, 6),
                   .dw = rig.normal({C, 2}, wide, 7),
                   .db = rig.normal({C}, wide, 8),
                   .dpair = rig.normal({c.G, T, 2 * c.d}, dtype, 9),
                   .qkv = qkv,
                   .w = w,
                   .segments = data.segments,
                   .dhalo = c.halo ? rig.normal({S, 2, C}, wide, 10) : Tensor(),
                   .halo = data.forward.halo,
                   .halo_row = {}};
  return data;
}

struct Outputs {
  Tensor pair, dqkv, dw, db, dhalo;
};

Outputs run_copy(Rig& rig, const ConvData& data, Context& ctx) {
  CcaConvForward f = data.forward;
  CcaConvBackward b = data.backward;
  f.segments = b.segments = data.segments;  // `data` may be a copy
  f.pair = rig.copy(f.pair);
  b.dqkv = rig.copy(b.dqkv);
  b.dw = rig.copy(b.dw);
  b.db = rig.copy(b.db);
  if (!b.dhalo.empty()) b.dhalo = rig.copy(b.dhalo);
  cca_conv_forward(ctx, f);
  cca_conv_backward(ctx, b);
  return {f.pair, b.dqkv, b.dw, b.db, b.dhalo};
}

TEST(CcaConv, EveryIsaMatchesTheReference) {
  for (const ConvCase& c : kConvCases) {
    Rig rig, slow(Backend::kRef);
    const ConvData data = make_conv_data(rig, c, c.dtype);
    const Outputs want = run_copy(rig, data, slow.ctx);
    const int64_t T = data.forward.qkv.dims[0], C = c.G * c.d, N = C + c.others;
    for_each_isa([&](Isa isa) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " d=" + std::to_string(c.d));
      const Outputs got = run_copy(rig, data, rig.ctx);
      EXPECT_CLOSE(got.pair, want.pair, tolerance(c.dtype, 3));
      EXPECT_CLOSE(got.dqkv, want.dqkv, tolerance(c.dtype, 5));
      EXPECT_CLOSE(got.dw, want.dw, tolerance(DType::kF32, T));
      EXPECT_CLOSE(got.db, want.db, tolerance(DType::kF32, T));
      if (c.halo) EXPECT_CLOSE(got.dhalo, want.dhalo, tolerance(DType::kF32, 3));
      for (int64_t t = 0; t < T; ++t) {  // the columns of the values stay
        for (int64_t i = t * N + C; i < (t + 1) * N; ++i) {
          ASSERT_EQ(ref::get(got.dqkv, i), ref::get(data.backward.dqkv, i));
        }
      }
    });
  }
}

// The two convolutions as the source writes them: pad p once with two zero columns, convolve each
// channel with w and b, then each group with W1 [C, d, 2]. Compared with pair W1^T.
TEST(CcaConv, PairsMakeTheTwoConvolutions) {
  const int64_t G = 2, d = 3, C = G * d;
  Rig rig(Backend::kRef);
  const ConvData data = make_conv_data(rig, {{1, 4, 2}, G, d, 2, DType::kF64, false}, DType::kF64);
  const int64_t T = 7, N = C + 2;
  const Tensor w1 = rig.normal({C, d, 2}, DType::kF64, 20);
  cca_conv_forward(rig.ctx, data.forward);
  for (const Segment& s : data.segments) {
    std::vector<double> p(static_cast<size_t>((s.rows + 2) * C));  // row 0 is position -2
    for (int64_t i = 0; i < s.rows * C; ++i) {
      p[size_t(2 * C + i)] = ref::get(data.forward.qkv, (s.row_begin + i / C) * N + i % C);
    }
    std::vector<double> u(static_cast<size_t>((s.rows + 1) * C));  // row 0 is position -1
    for (int64_t i = 0; i < (s.rows + 1) * C; ++i) {
      u[size_t(i)] = ref::get(data.forward.w, 2 * (i % C)) * p[size_t(i)] +
                     ref::get(data.forward.w, 2 * (i % C) + 1) * p[size_t(i + C)] +
                     ref::get(data.forward.b, i % C);
    }
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t c = 0; c < C; ++c) {
        double want = 0, got = 0;
        for (int64_t j = 0; j < d; ++j) {
          const int64_t channel = c / d * d + j, row = (c / d) * T + s.row_begin + t;
          for (int64_t tap = 0; tap < 2; ++tap) {
            const double weight = ref::get(w1, (c * d + j) * 2 + tap);
            want += weight * u[size_t((t + tap) * C + channel)];
            got += weight * ref::get(data.forward.pair, row * 2 * d + 2 * j + tap);
          }
        }
        EXPECT_NEAR(got, want, 1e-12);
      }
    }
  }
}

// Cuts a document of T rows into parts with halos taken from the rows before, as a cache or the
// neighbour in context parallelism hands them over.
void expect_split_is_whole(Backend backend, DType dtype, const std::vector<int64_t>& parts) {
  const int64_t G = 3, d = 19, C = G * d, others = 5, N = C + others;
  int64_t T = 0;
  for (const int64_t n : parts) T += n;
  Rig rig(backend);
  ConvData data = make_conv_data(rig, {{T}, G, d, others, dtype, false}, dtype);
  cca_conv_forward(rig.ctx, data.forward);
  std::vector<Segment> segments = documents(parts);
  CcaConvForward split = data.forward;
  split.pair = rig.normal({G, T, 2 * d}, dtype, 30);
  split.halo = rig.zeros({static_cast<int64_t>(parts.size()), 2, C}, dtype);
  for (size_t s = 0; s < parts.size(); ++s) {
    segments[s].position_begin = segments[s].row_begin;
    for (int64_t back = 1; back <= 2; ++back) {
      const int64_t row = segments[s].row_begin - back;
      for (int64_t c = 0; c < C && row >= 0; ++c) {
        const int64_t at = (static_cast<int64_t>(s) * 2 + 2 - back) * C + c;
        ref::set(split.halo, at, ref::get(data.forward.qkv, row * N + c));
      }
    }
  }
  split.segments = segments;
  cca_conv_forward(rig.ctx, split);
  EXPECT_SAME_BITS(split.pair, data.forward.pair);
}

TEST(CcaConv, ADocumentMayBeSplitAnywhere) {
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    for (int64_t cut = 1; cut < 9; ++cut) {
      expect_split_is_whole(backend, DType::kBF16, {cut, 9 - cut});
      expect_split_is_whole(backend, DType::kF32, {cut, 9 - cut});
    }
    expect_split_is_whole(backend, DType::kBF16, {1, 1, 1, 1, 1});  // token by token
    expect_split_is_whole(backend, DType::kBF16, {63, 2, 64, 1});
  }
}

// The gradients of a document cut into parts, each with the halo of the rows before: what comes
// back through the halos, added to those rows, and the sums of all parts, are those of the whole.
void expect_split_gradients_are_whole(Backend backend, DType dtype,
                                      const std::vector<int64_t>& parts) {
  const int64_t G = 3, d = 19, C = G * d, N = C + 5;
  int64_t T = 0;
  for (const int64_t n : parts) T += n;
  Rig rig(backend);
  const ConvData data = make_conv_data(rig, {{T}, G, d, 5, dtype, false}, dtype);
  const Outputs want = run_copy(rig, data, rig.ctx);
  ConvData split = data;
  split.segments = documents(parts);
  std::vector<int64_t> halo_row = {-1};  // the first part has no halo, the others in turn
  const int64_t h = static_cast<int64_t>(parts.size()) - 1;
  const Tensor halo = rig.zeros({h, 2, C}, dtype);
  for (size_t s = 1; s < parts.size(); ++s) {
    Segment& segment = split.segments[s];
    segment.position_begin = segment.row_begin;
    halo_row.push_back(h - static_cast<int64_t>(s));
    for (int64_t back = 1; back <= 2 && back <= segment.row_begin; ++back) {
      for (int64_t c = 0; c < C; ++c) {
        ref::set(halo, (halo_row[s] * 2 + 2 - back) * C + c,
                 ref::get(data.forward.qkv, (segment.row_begin - back) * N + c));
      }
    }
  }
  split.forward.halo = split.backward.halo = halo;
  split.forward.halo_row = split.backward.halo_row = halo_row;
  split.backward.dhalo = rig.normal({h, 2, C}, wide_dtype(dtype), 31);
  const Outputs got = run_copy(rig, split, rig.ctx);
  EXPECT_SAME_BITS(got.pair, want.pair);
  for (size_t s = 1; s < parts.size(); ++s) {
    const int64_t row = split.segments[s].row_begin;
    for (int64_t back = 1; back <= 2 && back <= row; ++back) {
      for (int64_t c = 0; c < C; ++c) {
        ref::add(got.dqkv, (row - back) * N + c,
                 ref::get(got.dhalo, (halo_row[s] * 2 + 2 - back) * C + c));
      }
    }
  }
  // A row before a cut is rounded once more by the sum with what came back.
  EXPECT_CLOSE(got.dqkv, want.dqkv, Tolerance{2 * tolerance(dtype, 8).relative});
  EXPECT_CLOSE(got.dw, want.dw, tolerance(DType::kF32, T));
  EXPECT_CLOSE(got.db, want.db, tolerance(DType::kF32, T));
}

TEST(CcaConv, TheGradientsOfADocumentMayBeSplitAnywhere) {
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    for (int64_t cut = 1; cut < 9; ++cut) {
      expect_split_gradients_are_whole(backend, DType::kF32, {cut, 9 - cut});
    }
    expect_split_gradients_are_whole(backend, DType::kF32, {2, 2, 3, 2});
    expect_split_gradients_are_whole(backend, DType::kF32, {63, 2, 64, 66});
    expect_split_gradients_are_whole(backend, DType::kBF16, {65, 30, 3});
  }
}

TEST(CcaConv, ReferenceHaloGradientsMatchFiniteDifferences) {
  const ConvCase c = {{3, 5, 1}, 2, 3, 2, DType::kF64, true};
  Rig rig(Backend::kRef);
  ConvData data = make_conv_data(rig, c, DType::kF64);
  CcaConvBackward& b = data.backward;
  b.dqkv = rig.zeros({9, 8}, DType::kF64);
  b.dw = rig.zeros({6, 2}, DType::kF64);
  b.db = rig.zeros({6}, DType::kF64);
  for (Segment& s : data.segments) s.position_begin = 7;
  b.segments = data.forward.segments = data.segments;
  cca_conv_backward(rig.ctx, b);
  const auto loss = [&] {
    cca_conv_forward(rig.ctx, data.forward);
    double sum = 0;
    for (int64_t i = 0; i < b.dpair.count(); ++i) {
      sum += ref::get(b.dpair, i) * ref::get(data.forward.pair, i);
    }
    return sum;
  };
  expect_gradient(data.forward.qkv, b.dqkv, loss, "qkv", 72);
  expect_gradient(data.forward.halo, b.dhalo, loss, "halo", 36);
  expect_gradient(data.forward.w, b.dw, loss, "w");
  expect_gradient(data.forward.b, b.db, loss, "b");
}

TEST(CcaConv, ThreadsDoNotChangeTheBits) {
  Rig one(Backend::kCpu, 1), three(Backend::kCpu, 3);
  const ConvData data =
      make_conv_data(one, {{63, 1, 100, 36}, 3, 24, 5, DType::kBF16, true}, DType::kBF16);
  const Outputs a = run_copy(one, data, one.ctx), b = run_copy(one, data, three.ctx);
  EXPECT_SAME_BITS(b.pair, a.pair);
  EXPECT_SAME_BITS(b.dqkv, a.dqkv);
  EXPECT_SAME_BITS(b.dw, a.dw);
  EXPECT_SAME_BITS(b.db, a.db);
  EXPECT_SAME_BITS(b.dhalo, a.dhalo);
}

// A document alone, at row 0, has the bits it has at row 41 of a batch, across a block's edge.
TEST(CcaConv, RowsDoNotDependOnTheBatch) {
  const int64_t G = 3, d = 24, begin = 41, rows = 50;
  Rig rig;
  const ConvData data =
      make_conv_data(rig, {{begin, rows, 9}, G, d, 5, DType::kBF16, false}, DType::kBF16);
  const Outputs all = run_copy(rig, data, rig.ctx);
  const auto heads = [&](const Tensor& t) {  // this document's rows of [G, T, 2*d]
    const Tensor part = rig.zeros({G, rows, 2 * d}, t.dtype);
    for (int64_t g = 0; g < G; ++g) {
      for (int64_t i = 0; i < rows * 2 * d; ++i) {
        ref::set(part, g * rows * 2 * d + i, ref::get(t, (g * t.dims[1] + begin) * 2 * d + i));
      }
    }
    return part;
  };
  ConvData alone = data;
  alone.segments = documents({rows});
  alone.forward.segments = alone.backward.segments = alone.segments;
  alone.forward.qkv = alone.backward.qkv = data.forward.qkv.rows(begin, begin + rows);
  alone.forward.pair = heads(data.forward.pair);
  alone.backward.dpair = heads(data.backward.dpair);
  alone.backward.dqkv = data.backward.dqkv.rows(begin, begin + rows);
  const Outputs got = run_copy(rig, alone, rig.ctx);
  EXPECT_SAME_BITS(got.pair, heads(all.pair));
  EXPECT_SAME_BITS(got.dqkv, all.dqkv.rows(begin, begin + rows));
}

TEST(CcaConv, ReferenceGradientsMatchFiniteDifferences) {
  const ConvCase c = {{1, 5, 2, 1, 3}, 2, 3, 2, DType::kF64, false};
  Rig rig(Backend::kRef);
  ConvData data = make_conv_data(rig, c, DType::kF64);
  CcaConvBackward& b = data.backward;
  b.dqkv = rig.zeros({12, 8}, DType::kF64);
  b.dw = rig.zeros({6, 2}, DType::kF64);
  b.db = rig.zeros({6}, DType::kF64);
  b.segments = data.forward.segments = data.segments;
  cca_conv_backward(rig.ctx, b);
  const auto loss = [&] {
    cca_conv_forward(rig.ctx, data.forward);
    double sum = 0;
    for (int64_t i = 0; i < b.dpair.count(); ++i) {
      sum += ref::get(b.dpair, i) * ref::get(data.forward.pair, i);
    }
    return sum;
  };
  expect_gradient(data.forward.qkv, b.dqkv, loss, "qkv", 96);
  expect_gradient(data.forward.w, b.dw, loss, "w");
  expect_gradient(data.forward.b, b.db, loss, "b");
}

}  // namespace
}  // namespace moraine
