// ValueShift: fails if a half is taken from the wrong row or column, if a value crosses a document
// border, or if columns outside the values are written.
#include "kernels/value_shift.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/ref/element.h"
#include "testing/two_ways.h"

namespace moraine {
namespace {

using namespace testing;

struct ShiftCase {
  std::vector<int64_t> rows;  // of each document
  int64_t K, d, C;
  DType dtype;
  bool delayed, halo;
};

const std::vector<ShiftCase> kShiftCases = {
    {{1}, 1, 2, 3, DType::kF32, true, false},  // smallest
    {{1, 1, 7, 1}, 2, 3, 5, DType::kF32, true, true},
    {{70, 1, 300, 29}, 2, 64, 640, DType::kBF16, true, true},  // more than one task
    {{130}, 2, 128, 1280, DType::kBF16, true, false},          // the width of the model
    {{5, 12}, 3, 5, 7, DType::kBF16, false, false},            // plain; K*d is odd
    {{}, 2, 8, 4, DType::kF32, true, true},                    // no rows
};

int64_t sum(const std::vector<int64_t>& rows) {
  int64_t T = 0;
  for (const int64_t n : rows) T += n;
  return T;
}

TEST(ValueShift, EveryIsaMatchesTheReference) {
  for (const ShiftCase& c : kShiftCases) {
    const int64_t T = sum(c.rows), width = c.K * c.d, N = c.C + width;
    const std::vector<Segment> segments = documents(c.rows);
    const int64_t S = static_cast<int64_t>(segments.size());
    Rig rig;
    const Tensor qkv = rig.normal({T, N}, c.dtype, 1), dv = rig.normal({T, c.K, c.d}, c.dtype, 2);
    const Tensor halo = c.halo ? rig.normal({S, width / 2}, c.dtype, 3) : Tensor();
    const Tensor before = rig.normal({T, N}, c.dtype, 4);
    const Tensor want_v = rig.normal({T, c.K, c.d}, c.dtype, 5), want_dqkv = rig.copy(before);
    ref::value_shift_forward({want_v, qkv, halo, segments, c.delayed, {}});
    ref::value_shift_backward({want_dqkv, dv, segments, c.delayed, {}, {}});
    for (int64_t t = 0; t < T; ++t) {  // the columns of q and k stay
      for (int64_t i = 0; i < c.C; ++i) {
        ASSERT_EQ(ref::get(want_dqkv, t * N + i), ref::get(before, t * N + i));
      }
    }
    for_each_isa([&](Isa isa) {
      SCOPED_TRACE(isa_name(isa));
      const Tensor v = rig.normal({T, c.K, c.d}, c.dtype, 6), dqkv = rig.copy(before);
      value_shift_forward(rig.ctx, {v, qkv, halo, segments, c.delayed, {}});
      value_shift_backward(rig.ctx, {dqkv, dv, segments, c.delayed, {}, {}});
      EXPECT_SAME_BITS(v, want_v);
      EXPECT_SAME_BITS(dqkv, want_dqkv);
    });
  }
}

// Written out by hand: two documents, K*d = 4, two columns before the values.
TEST(ValueShift, TheLayoutIsThatOfTheContract) {
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    Rig rig(backend);
    const Tensor qkv = rig.zeros({3, 6}, DType::kF32), v = rig.normal({3, 2, 2}, DType::kF32, 1);
    for (int64_t i = 0; i < 18; ++i) qkv.as<float>()[i] = static_cast<float>(i);
    const std::vector<Segment> segments = documents({2, 1});
    value_shift_forward(rig.ctx, {v, qkv, {}, segments, true, {}});
    const std::vector<float> want = {2, 3, 0, 0, 8, 9, 4, 5, 14, 15, 0, 0};
    EXPECT_EQ(std::vector<float>(v.as<float>(), v.as<float>() + 12), want);
    const Tensor dqkv = rig.zeros({3, 6}, DType::kF32);
    value_shift_backward(rig.ctx, {dqkv, v, segments, true, {}, {}});
    const std::vector<float> back = {0, 0, 2, 3, 4, 5, 0, 0, 8, 9, 0, 0, 0, 0, 14, 15, 0, 0};
    EXPECT_EQ(std::vector<float>(dqkv.as<float>(), dqkv.as<float>() + 18), back);
  }
}

TEST(ValueShift, ADocumentMayBeSplitAnywhere) {
  const int64_t T = 9, K = 2, d = 6, C = 5, M = K * d / 2, N = C + 2 * M;
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    Rig rig(backend);
    const Tensor qkv = rig.normal({T, N}, DType::kBF16, 1),
                 whole = rig.zeros({T, K, d}, DType::kBF16);
    const std::vector<Segment> document = documents({T});
    value_shift_forward(rig.ctx, {whole, qkv, {}, document, true, {}});
    for (int64_t cut = 1; cut < T; ++cut) {
      std::vector<Segment> parts = documents({cut, T - cut});
      parts[1].position_begin = cut;
      const Tensor halo = rig.zeros({2, M}, DType::kBF16), v = rig.zeros({T, K, d}, DType::kBF16);
      std::memcpy(halo.as<BF16>() + M, qkv.as<BF16>() + (cut - 1) * N + C + M, size_t(M) * 2);
      value_shift_forward(rig.ctx, {v, qkv, halo, parts, true, {}});
      EXPECT_SAME_BITS(v, whole);
    }
  }
}

// What comes back through the halo of the second part is the gradient of the row before it.
TEST(ValueShift, TheGradientOfADocumentMayBeSplitAnywhere) {
  const int64_t T = 9, K = 2, d = 6, C = 5, M = K * d / 2, N = C + 2 * M;
  for (const Backend backend : {Backend::kRef, Backend::kCpu}) {
    Rig rig(backend);
    const Tensor dv = rig.normal({T, K, d}, DType::kBF16, 1),
                 whole = rig.zeros({T, N}, DType::kBF16);
    const std::vector<Segment> document = documents({T});
    value_shift_backward(rig.ctx, {whole, dv, document, true, {}, {}});
    for (int64_t cut = 1; cut < T; ++cut) {
      std::vector<Segment> parts = documents({cut, T - cut});
      parts[1].position_begin = cut;
      const std::vector<int64_t> halo_row = {-1, 1};  // row 0 of the halo is nobody's
      const Tensor dhalo = rig.normal({2, M}, DType::kBF16, 2), before = rig.copy(dhalo);
      const Tensor dqkv = rig.zeros({T, N}, DType::kBF16);
      value_shift_backward(rig.ctx, {dqkv, dv, parts, true, dhalo, halo_row});
      EXPECT_SAME_BITS(dhalo.rows(0, 1), before.rows(0, 1));
      for (int64_t j = 0; j < M; ++j) {
        const int64_t at = (cut - 1) * N + C + M + j;
        ASSERT_EQ(ref::get(dqkv, at), 0);
        ref::set(dqkv, at, ref::get(dhalo, M + j));
      }
      EXPECT_SAME_BITS(dqkv, whole);
    }
  }
}

TEST(ValueShift, ReferenceGradientMatchesFiniteDifferences) {
  for (const bool delayed : {true, false}) {
    const int64_t T = 6, K = 2, d = 3, C = 2, N = C + K * d;
    Rig rig(Backend::kRef);
    const std::vector<Segment> segments = documents({1, 3, 2});
    const Tensor qkv = rig.normal({T, N}, DType::kF64, 1),
                 dv = rig.normal({T, K, d}, DType::kF64, 2);
    const Tensor v = rig.copy(dv), dqkv = rig.zeros({T, N}, DType::kF64);
    value_shift_backward(rig.ctx, {dqkv, dv, segments, delayed, {}, {}});
    expect_gradient(
        qkv, dqkv,
        [&] {
          value_shift_forward(rig.ctx, {v, qkv, {}, segments, delayed, {}});
          double loss = 0;
          for (int64_t i = 0; i < v.count(); ++i) loss += ref::get(dv, i) * ref::get(v, i);
          return loss;
        },
        "qkv", 48);
  }
}

}  // namespace
}  // namespace moraine
