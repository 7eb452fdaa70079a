// Attention on an emulated GPU: fails if a score, a mask, a weight or a sum is off, if a page or a key head is
// another's, if a row's bits depend on what else is in the batch, or if a generation has more than one result.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention_allowed.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "testing/two_ways.h"

namespace moraine::gpu {
namespace {

using namespace testing;

struct AttentionCase {
  std::vector<int64_t> lengths;
  int64_t H, K, d, window;
  DType dtype = DType::kBF16;
};

struct AttentionData {
  AttentionForward args;
  std::vector<Segment> segments;
  std::vector<int32_t> pages;
};

AttentionForward call(const AttentionData& data) {
  AttentionForward a = data.args;
  a.segments = data.segments;
  a.pages.page = data.pages;
  return a;
}

AttentionData make_attention_data(Rig& rig, const AttentionCase& c) {
  AttentionData data;
  data.segments = documents(c.lengths);
  const int64_t T = data.segments.back().row_begin + data.segments.back().rows;
  data.args = {.o = rig.normal({T, c.H, c.d}, c.dtype, 1),
               .lse = rig.normal({T, c.H}, DType::kF32, 2),
               .q = rig.normal({T, c.H, c.d}, c.dtype, 3, 1.5),
               .k = rig.normal({T, c.K, c.d}, c.dtype, 4, 1.5),
               .v = rig.normal({T, c.K, c.d}, c.dtype, 5),
               .segments = {},
               .window = c.window,
               .scale = 1 / std::sqrt(static_cast<float>(c.d))};
  return data;
}

// On `rig`; its outputs.
AttentionForward run(GpuRig& rig, const AttentionData& data) {
  AttentionForward a = call(data);
  for (Tensor* t : {&a.o, &a.lse, &a.q, &a.k, &a.v}) *t = rig.put(*t);
  attention_forward(*rig.gpu, a);
  return a;
}

const std::vector<AttentionCase>& attention_cases() {
  static const std::vector<AttentionCase> all = {
      {{1}, 1, 1, 8, 0},           // smallest
      {{65}, 2, 1, 64, 0},         // one position past a block, two heads on one
      {{15, 1, 33}, 4, 2, 17, 0},  // around tiles; an odd width; two key heads
      {{40, 40}, 1, 1, 16, 18},    // a window; the second document sees nothing of the first
      {{130}, 1, 1, 16, 7},        // a window below a step of keys: whole steps are not read
      {{20}, 2, 1, 128, 0},        // the wide kernel
      {{66, 3}, 4, 2, 17, 0, DType::kF32},  // without tiles
      {{70}, 1, 1, 5, 9, DType::kF32},
      {{20}, 1, 1, 130, 0},  // wider than tiles
      {{18}, 1, 1, 100, 1},  // a row sees itself
  };
  return all;
}

TEST(GpuAttention, MatchesTheReferenceInEveryWaveAndOrder) {
  for (const AttentionCase& c : attention_cases()) {
    Rig host;
    const AttentionData data = make_attention_data(host, c);
    AttentionForward want = call(data);
    want.o = host.copy_as(want.o, DType::kF32);  // not rounded
    want.lse = host.copy(want.lse);
    ref::attention_forward(want);
    const Tensor zero = host.zeros({want.lse.dims[0], want.lse.dims[1]}, DType::kF32);
    const AttentionAllowed allowed(
        {want.q, want.k, want.v, want.o, want.lse, zero, want.scale}, 1,
        [&](const auto& pair) { for_visible_pairs(data.segments, {}, c.window, pair); });
    for (const Emulation& e : all_emulations()) {
      SCOPED_TRACE(emulation_text(e) + " d=" + std::to_string(c.d));
      GpuRig rig(e);
      const AttentionForward got = run(rig, data);
      expect_allowed(rig.get(host, got.o), want.o, allowed.o, "o");
      EXPECT_CLOSE(rig.get(host, got.lse), want.lse, tolerance(DType::kF32, 4 * c.d));
    }
  }
}

// Of the case below: one for each generation, no two the same.
constexpr StatedHashes kAttentionHashes = {
    "2e22001528f24bb37ab35368156717a4", "ed2cf32558fe5d56cbcc3389fe7c136c",
    "987affb9d57e5190965fc6bf08119d01", "2d66a2c0cf3bd78e96f3080fffbad3f4",
    "e79d4656793f870f76cf8969f1e9c068"};

TEST(GpuAttention, EveryGenerationHasOneResult) {
  Rig host;
  const AttentionData data = make_attention_data(host, {{70}, 1, 1, 64, 0});
  for (const MatrixRule rule : kMatrixRules) {
    expect_one_result(orders_of(rule), [&](GpuRig& r) { return run(r, data).o; });
    GpuRig rig(orders_of(rule).front());
    const Tensor lse = rig.get(host, run(rig, data).lse);
    expect_stated_hash(lse, kAttentionHashes, rule);
  }
}

// The rows of `piece`, computed alone, are those of `whole`.
void expect_rows(const AttentionData& data, MatrixRule rule, const std::vector<Segment>& pieces) {
  Rig host;
  GpuRig rig(orders_of(rule).front());
  const AttentionForward whole = run(rig, data);
  for (const Segment& piece : pieces) {
    AttentionData one = data;
    one.segments = {piece};
    one.segments[0].row_begin = 0;
    const int64_t end = piece.row_begin + piece.rows;
    for (Tensor* t : {&one.args.o, &one.args.lse, &one.args.q}) *t = t->rows(piece.row_begin, end);
    const AttentionForward got = run(rig, one);
    EXPECT_SAME_BITS(rig.get(host, got.o), rig.get(host, whole.o).rows(piece.row_begin, end));
    EXPECT_SAME_BITS(rig.get(host, got.lse), rig.get(host, whole.lse).rows(piece.row_begin, end));
  }
}

TEST(GpuAttention, ARowAloneOrInAChunkIsTheRowInCompany) {
  for (const MatrixRule rule : kMatrixRules) {
    for (const int64_t window : {0, 20}) {
      Rig host;
      const AttentionData data = make_attention_data(host, {{9, 90}, 1, 1, 16, window});
      // A row of the second document, its first, its last; chunks of it.
      expect_rows(data, rule,
                  {{9 + 50, 1, 50, 9}, {9, 1, 0, 9}, {9 + 89, 1, 89, 9}, {9 + 10, 60, 10, 9}});
    }
  }
}

TEST(GpuAttention, KeysInPagesAreTheKeysInARow) {
  Rig host;
  const AttentionData plain = make_attention_data(host, {{70}, 2, 1, 32, 0});
  AttentionData paged = plain;
  constexpr int64_t kRows = 16;
  paged.pages = {6, 2, 0, 4, 1};
  paged.args.pages.rows = kRows;
  paged.args.k = host.zeros({7 * kRows, 1, 32}, DType::kBF16);
  paged.args.v = host.zeros({7 * kRows, 1, 32}, DType::kBF16);
  for (int64_t j = 0; j < 70; ++j) {
    const int64_t row = paged.pages[static_cast<size_t>(j / kRows)] * kRows + j % kRows;
    for (int64_t c = 0; c < 32; ++c) {
      paged.args.k.as<BF16>()[row * 32 + c] = plain.args.k.as<BF16>()[j * 32 + c];
      paged.args.v.as<BF16>()[row * 32 + c] = plain.args.v.as<BF16>()[j * 32 + c];
    }
  }
  GpuRig rig({.wave = 64});
  EXPECT_SAME_BITS(rig.get(host, run(rig, paged).o), rig.get(host, run(rig, plain).o));
}

// Both are the kernel without tiles.
TEST(GpuAttention, F32AndWideHeadsHaveOneResultInAllWaves) {
  for (const AttentionCase& c : {AttentionCase{{33, 2}, 4, 2, 17, 0, DType::kF32},
                                 AttentionCase{{70}, 1, 1, 5, 9, DType::kF32},
                                 AttentionCase{{66}, 1, 1, 130, 0, DType::kBF16}}) {
    Rig host;
    const AttentionData data = make_attention_data(host, c);
    expect_one_result(all_emulations(), [&](GpuRig& r) { return run(r, data).o; });
    expect_rows(data, MatrixRule::kPlain, {data.segments.back()});
  }
}

}  // namespace
}  // namespace moraine::gpu
