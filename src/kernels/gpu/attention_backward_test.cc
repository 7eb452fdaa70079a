// Gradients of attention on an emulated GPU: fails if a weight, a slope, a mask or a sum is off, if a key head gets
// another's, if a document's bits depend on what else is in the batch, or if a generation has more than one result.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention.h"
#include "kernels/attention_allowed.h"
#include "kernels/gpu/attention_backward.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "testing/two_ways.h"

namespace moraine::gpu {
namespace {

using namespace testing;

struct AttentionBackwardCase {
  std::vector<int64_t> lengths;
  int64_t H, K, d, window;
  DType dtype = DType::kBF16;
};

struct AttentionBackwardData {
  AttentionBackward args;
  std::vector<Segment> segments;
};

AttentionBackward call(const AttentionBackwardData& data) {
  AttentionBackward a = data.args;
  a.segments = data.segments;
  return a;
}

// o and lse are those of the reference; the gradients hold numbers that must go.
AttentionBackwardData make_data(Rig& rig, const AttentionBackwardCase& c) {
  AttentionBackwardData data;
  data.segments = documents(c.lengths);
  const int64_t T = data.segments.back().row_begin + data.segments.back().rows;
  AttentionBackward& a = data.args;
  a = {.dq = rig.normal({T, c.H, c.d}, c.dtype, 1),
       .dk = rig.normal({T, c.K, c.d}, c.dtype, 2),
       .dv = rig.normal({T, c.K, c.d}, c.dtype, 3),
       .delta = rig.normal({T, c.H}, DType::kF32, 4),
       .do_ = rig.normal({T, c.H, c.d}, c.dtype, 5),
       .o = rig.zeros({T, c.H, c.d}, c.dtype),
       .lse = rig.zeros({T, c.H}, DType::kF32),
       .q = rig.normal({T, c.H, c.d}, c.dtype, 6, 1.5),
       .k = rig.normal({T, c.K, c.d}, c.dtype, 7, 1.5),
       .v = rig.normal({T, c.K, c.d}, c.dtype, 8),
       .segments = {},
       .window = c.window,
       .scale = 1 / std::sqrt(static_cast<float>(c.d))};
  ref::attention_forward({.o = a.o,
                          .lse = a.lse,
                          .q = a.q,
                          .k = a.k,
                          .v = a.v,
                          .segments = data.segments,
                          .window = a.window,
                          .scale = a.scale});
  return data;
}

// On `rig`; its outputs, and dq, dk and dv once more as they lie behind each other.
struct AttentionBackwardRun {
  AttentionBackward out;
  Tensor all;
};
AttentionBackwardRun run(GpuRig& rig, const AttentionBackwardData& data) {
  Rig host;
  AttentionBackwardRun r = {.out = call(data), .all = {}};
  AttentionBackward& a = r.out;
  const int64_t queries = a.dq.count(), keys = a.dk.count(), T = a.q.dims[0], d = a.q.dims[2];
  const int64_t dv = queries + keys;
  r.all = rig.put(host.normal({dv + keys}, a.dq.dtype, 9));
  a.dq = r.all.rows(0, queries).reshaped({T, a.q.dims[1], d});
  a.dk = r.all.rows(queries, dv).reshaped({T, a.k.dims[1], d});
  a.dv = r.all.rows(dv, dv + keys).reshaped({T, a.k.dims[1], d});
  for (Tensor* t : {&a.delta, &a.do_, &a.o, &a.lse, &a.q, &a.k, &a.v}) *t = rig.put(*t);
  moraine::attention_backward(rig.ctx, a);
  return r;
}

const std::vector<AttentionBackwardCase>& attention_backward_cases() {
  static const std::vector<AttentionBackwardCase> all = {
      {{1}, 1, 1, 8, 0},           // smallest
      {{65}, 2, 1, 33, 0},         // one position past a block; an odd width; two heads on one
      {{15, 1, 33}, 4, 2, 17, 0},  // around tiles; two key heads
      {{40, 40}, 1, 1, 16, 18},    // a window; the second document sees nothing of the first
      {{130}, 1, 1, 16, 7},        // a window below a step: whole steps are not met
      {{40}, 2, 1, 128, 0},        // the wide kernel
      {{66, 3}, 4, 2, 5, 0, DType::kF32},  // without tiles
      {{70}, 1, 1, 5, 9, DType::kF32},
      {{20}, 1, 1, 130, 0},  // wider than tiles
      {{18}, 1, 1, 100, 1},  // a row sees itself
  };
  return all;
}

TEST(GpuAttentionBackward, MatchesTheReferenceInEveryWaveAndOrder) {
  for (const AttentionBackwardCase& c : attention_backward_cases()) {
    Rig host;
    const AttentionBackwardData data = make_data(host, c);
    AttentionBackward want = call(data);
    for (Tensor* t : {&want.dq, &want.dk, &want.dv, &want.delta}) {
      *t = host.copy_as(*t, DType::kF64);  // not rounded
    }
    ref::attention_backward(want);
    const AttentionAllowed allowed(
        {want.q, want.k, want.v, want.do_, want.lse, want.delta, want.scale}, 1,
        [&](const auto& pair) { for_visible_pairs(data.segments, {}, c.window, pair); });
    for (const Emulation& e : all_emulations()) {
      SCOPED_TRACE(emulation_text(e) + " d=" + std::to_string(c.d));
      GpuRig rig(e);
      const AttentionBackward got = run(rig, data).out;
      EXPECT_CLOSE(rig.get(host, got.delta), want.delta, tolerance(DType::kF32, c.d));
      expect_allowed(rig.get(host, got.dq), want.dq, allowed.dq, "dq");
      expect_allowed(rig.get(host, got.dk), want.dk, allowed.dk, "dk");
      expect_allowed(rig.get(host, got.dv), want.dv, allowed.dv, "dv");
    }
  }
}

// Of the case below: one for each generation, no two the same.
constexpr StatedHashes kAttentionBackwardHashes = {
    "e171979700cfe86025e1ec769e60684e", "2e03669b60838dd103d751a43d79a8bb",
    "9f5bb240acb3e3698a9b00ba1275c7e7", "f81c339a490dfed1a2f005c4c06bf4e2",
    "44058c1ef66f670c9b39979ae408cd73"};

TEST(GpuAttentionBackward, EveryGenerationHasOneResult) {
  Rig host;
  const AttentionBackwardData data = make_data(host, {{70}, 2, 1, 64, 0});
  for (const MatrixRule rule : kMatrixRules) {
    Tensor all;
    expect_one_result(orders_of(rule), [&](GpuRig& r) {
      const Tensor device = run(r, data).all;
      all = r.get(host, device);
      return device;
    });
    expect_stated_hash(all, kAttentionBackwardHashes, rule);
  }
}

// The second document of a batch, computed alone.
void expect_second_alone(const AttentionBackwardData& data, const Emulation& emulation) {
  Rig host;
  GpuRig rig(emulation);
  const AttentionBackward whole = run(rig, data).out;
  const int64_t begin = data.segments[1].row_begin, end = begin + data.segments[1].rows;
  AttentionBackwardData one = data;
  one.segments = documents({end - begin});
  AttentionBackward& a = one.args;
  for (Tensor* t : {&a.dq, &a.dk, &a.dv, &a.delta, &a.do_, &a.o, &a.lse, &a.q, &a.k, &a.v}) {
    *t = t->rows(begin, end);
  }
  const AttentionBackward alone = run(rig, one).out;
  EXPECT_SAME_BITS(rig.get(host, alone.dq), rig.get(host, whole.dq).rows(begin, end));
  EXPECT_SAME_BITS(rig.get(host, alone.dk), rig.get(host, whole.dk).rows(begin, end));
  EXPECT_SAME_BITS(rig.get(host, alone.dv), rig.get(host, whole.dv).rows(begin, end));
}

TEST(GpuAttentionBackward, ADocumentAloneIsTheDocumentInCompany) {
  for (const MatrixRule rule : kMatrixRules) {
    for (const int64_t window : {0, 20}) {
      Rig host;
      expect_second_alone(make_data(host, {{9, 70, 3}, 1, 1, 16, window}), orders_of(rule).front());
    }
  }
}

TEST(GpuAttentionBackward, AWindowOfTheWholeDocumentIsNone) {
  Rig host;
  AttentionBackwardData data = make_data(host, {{40}, 1, 1, 16, 0});
  GpuRig rig({.wave = 64});
  const Tensor none = rig.get(host, run(rig, data).all);
  data.args.window = 40;
  EXPECT_SAME_BITS(rig.get(host, run(rig, data).all), none);
}

// Both are the kernels without tiles.
TEST(GpuAttentionBackward, F32AndWideHeadsHaveOneResultInAllWaves) {
  for (const AttentionBackwardCase& c :
       {AttentionBackwardCase{{33, 2}, 4, 2, 5, 0, DType::kF32},
        AttentionBackwardCase{{3, 70}, 1, 1, 5, 9, DType::kF32},
        AttentionBackwardCase{{10, 20}, 1, 1, 130, 0, DType::kBF16}}) {
    Rig host;
    const AttentionBackwardData data = make_data(host, c);
    expect_one_result(all_emulations(), [&](GpuRig& r) { return run(r, data).all; });
    expect_second_alone(data, {.wave = 64});
  }
}

}  // namespace
}  // namespace moraine::gpu
