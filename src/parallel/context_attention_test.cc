// ContextAttention: fails if rows on several ranks do not get the attention, or keys the gradients,
// that one rank gives them; if the all-gather's forward differs from one rank's in one bit; if a
// repetition differs at all; or if a device, whose copies happen late, is sent or given something old.
#include "parallel/context_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "comm/thread_ranks.h"
#include "kernels/attention.h"
#include "kernels/attention_allowed.h"
#include "kernels/check_tensor.h"
#include "kernels/gpu/gpu_arena_memory.h"
#include "kernels/host_copy.h"
#include "kernels/ref/element.h"
#include "parallel/test_late_gpu.h"
#include "parallel/test_packed.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct Case {
  int64_t ranks, sequences, length, H, K, d, window;
  uint64_t documents;  // seed; 0: one document per sequence
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {1, 2, 41, 2, 1, 16, 0, 1},    // one rank takes the same path
      {2, 1, 64, 4, 2, 24, 0, 0},    // one document
      {2, 3, 37, 4, 2, 17, 0, 2},    // odd length, packed
      {2, 2, 90, 2, 2, 32, 13, 3},   // window below a chunk
      {4, 1, 257, 4, 1, 32, 0, 0},   // prime length
      {4, 2, 99, 2, 1, 40, 0, 4},    // packed
      {4, 2, 131, 4, 2, 16, 40, 5},  // window over chunks
      {4, 1, 160, 2, 1, 64, 20, 0},  // window of a chunk: hops that nobody sees
      {4, 2, 16, 2, 1, 8, 0, 6},     // chunks of two rows
  };
  return all;
}

// What one layer has, on one rank or in the batch's rows.
struct Tensors {
  Tensors(Rig& rig, int64_t T, const Case& c, DType dtype, uint64_t seed) {
    const DType wide = wide_dtype(dtype);
    q = rig.normal({T, c.H, c.d}, dtype, seed + 1, 1.5);
    k = rig.normal({T, c.K, c.d}, dtype, seed + 2, 1.5);
    v = rig.normal({T, c.K, c.d}, dtype, seed + 3);
    do_ = rig.normal({T, c.H, c.d}, dtype, seed + 4);
    o = rig.normal({T, c.H, c.d}, dtype, seed + 5);
    lse = rig.normal({T, c.H}, wide, seed + 6);
    delta = rig.normal({T, c.H}, wide, seed + 7);
    dq = rig.normal({T, c.H, c.d}, dtype, seed + 8);
    dk = rig.normal({T, c.K, c.d}, dtype, seed + 9);
    dv = rig.normal({T, c.K, c.d}, dtype, seed + 10);
  }
  Tensor q, k, v, do_, o, lse, delta, dq, dk, dv;
};

// An emulated GPU, and twins there of the host's tensors.
struct TestDevice {
  Tensors twins(const Tensors& host) {
    Tensors there = host;
    for (Tensor* t : {&there.q, &there.k, &there.v, &there.do_, &there.o, &there.lse, &there.delta,
                      &there.dq, &there.dk, &there.dv}) {
      const Tensor here = *t;
      t->data = arena.take_bytes("twin", "activations", here.bytes());
      all.push_back({*t, here});
    }
    copy(true);
    return there;
  }
  void copy(bool in) {
    for (const auto& [there, here] : all)
      in ? copy_in(ctx, there, here) : copy_out(ctx, here, there);
  }

  LateGpu gpu;
  gpu::GpuArenaMemory memory{gpu};
  Arena arena{Arena::Mode::kReal, &memory};
  Pool pool{1};
  Context ctx = make_context(gpu, pool);
  std::vector<std::pair<Tensor, Tensor>> all;  // there, here
};

float scale_of(const Case& c) { return static_cast<float>(1 / std::sqrt(double(c.d))); }

Packed packed_of(const Case& c) {
  if (c.documents > 0) return random_packed(c.ranks, c.sequences, c.length, c.documents);
  Packed p = {{c.ranks, c.sequences, c.length}, {}};
  for (int64_t b = 0; b < c.sequences; ++b) p.segment_begin.push_back(b * c.length);
  return p;
}

void one_rank_forward(Context& ctx, const Tensors& t, const Case& c,
                      const std::vector<Segment>& segments) {
  attention_forward(ctx, {.o = t.o,
                          .lse = t.lse,
                          .q = t.q,
                          .k = t.k,
                          .v = t.v,
                          .segments = segments,
                          .window = c.window,
                          .scale = scale_of(c)});
}

void one_rank_backward(Context& ctx, const Tensors& t, const Case& c,
                       const std::vector<Segment>& segments) {
  attention_backward(ctx, {.dq = t.dq,
                           .dk = t.dk,
                           .dv = t.dv,
                           .delta = t.delta,
                           .do_ = t.do_,
                           .o = t.o,
                           .lse = t.lse,
                           .q = t.q,
                           .k = t.k,
                           .v = t.v,
                           .segments = segments,
                           .window = c.window,
                           .scale = scale_of(c)});
}

struct Way {
  ContextVariant variant;
  Backend backend = Backend::kCpu;
};

// The ranks' rows of `in`, through ContextAttention, into the rows of `out`. The backward starts
// from in.o and in.lse, so that it is compared on equal inputs.
void run_ranks(const Case& c, const Packed& p, const Way& way, const Tensors& in,
               const Tensors& out) {
  const DType dtype = in.q.dtype;
  run_thread_ranks(static_cast<int>(c.ranks), [&](Transport& transport) {
    Communicator comm = world_of(transport);
    std::optional<TestDevice> device;
    if (way.backend == Backend::kGpu) device.emplace();
    Rig rig(device ? Backend::kCpu : way.backend, 1);
    Context& ctx = device ? device->ctx : rig.ctx;
    Arena host(Arena::Mode::kReal);
    ContextAttention attention(device ? device->arena : host, {.variant = way.variant,
                                                               .tokens = p.layout.most_rows() + 3,
                                                               .rows = p.layout.rows() + 5,
                                                               .ranks = p.layout.ranks,
                                                               .heads = c.H,
                                                               .kv_heads = c.K,
                                                               .head_dim = c.d,
                                                               .dtype = dtype,
                                                               .training = true});
    const ContextRows mine = make_context_rows(p.layout, comm.rank(), p.segment_begin);
    const Tensors t(rig, mine.rows(), c, dtype, 50);
    for (const auto& [local, whole] :
         {std::pair(t.q, in.q), {t.k, in.k}, {t.v, in.v}, {t.do_, in.do_}}) {
      take_rows(mine, local, whole);
    }
    const Tensors there = device ? device->twins(t) : t;
    attention.begin(comm, mine);
    for (const bool last : {false, true}) {  // buffers serve layer after layer
      attention.forward(ctx, {.o = there.o,
                              .lse = there.lse,
                              .q = there.q,
                              .k = there.k,
                              .v = there.v,
                              .window = c.window,
                              .scale = scale_of(c)});
      if (device) device->copy(false);
      if (last) put_rows(mine, out.o, t.o);
      if (last) put_rows(mine, out.lse, t.lse);
      take_rows(mine, t.o, in.o);
      take_rows(mine, t.lse, in.lse);
      if (device) device->copy(true);
      attention.backward(ctx, {.dq = there.dq,
                               .dk = there.dk,
                               .dv = there.dv,
                               .delta = there.delta,
                               .do_ = there.do_,
                               .o = there.o,
                               .lse = there.lse,
                               .q = there.q,
                               .k = there.k,
                               .v = there.v,
                               .window = c.window,
                               .scale = scale_of(c)});
    }
    if (device) device->copy(false);
    for (const auto& [local, whole] : {std::pair(t.dq, out.dq), {t.dk, out.dk}, {t.dv, out.dv}}) {
      put_rows(mine, whole, local);
    }
  });
}

void expect_matches_one_rank(const Case& c, const Way& way, DType dtype) {
  Rig rig;
  const Packed p = packed_of(c);
  const std::vector<Segment> segments = whole_segments(p);
  Tensors want(rig, p.layout.rows(), c, dtype, 1);
  for (Tensor* t : {&want.o, &want.lse, &want.delta, &want.dq, &want.dk, &want.dv}) {
    *t = rig.copy_as(*t, DType::kF64);
  }
  Rig reference(Backend::kRef, 1);
  ref::attention_forward({.o = want.o,
                          .lse = want.lse,
                          .q = want.q,
                          .k = want.k,
                          .v = want.v,
                          .segments = segments,
                          .window = c.window,
                          .scale = scale_of(c)});
  const Tensor want_o = want.o, want_lse = want.lse;
  want.o = rig.copy_as(want_o, dtype);
  want.lse = rig.copy_as(want_lse, wide_dtype(dtype));
  ref::attention_backward({.dq = want.dq,
                           .dk = want.dk,
                           .dv = want.dv,
                           .delta = want.delta,
                           .do_ = want.do_,
                           .o = want.o,
                           .lse = want.lse,
                           .q = want.q,
                           .k = want.k,
                           .v = want.v,
                           .segments = segments,
                           .window = c.window,
                           .scale = scale_of(c)});
  const AttentionAllowed allowed(
      {.q = want.q,
       .k = want.k,
       .v = want.v,
       .do_ = want.do_,
       .lse = want.lse,
       .delta = want.delta,
       .scale = scale_of(c)},
      2 * c.ranks, [&](const auto& pair) { for_visible_pairs(segments, {}, c.window, pair); });
  Tensors got(rig, p.layout.rows(), c, dtype, 30), again(rig, p.layout.rows(), c, dtype, 70);
  run_ranks(c, p, way, want, got);
  expect_allowed(got.o, want_o, allowed.o, "o");
  EXPECT_CLOSE(got.lse, want_lse, tolerance(DType::kF32, c.length + c.d));
  expect_allowed(got.dq, want.dq, allowed.dq, "dq");
  expect_allowed(got.dk, want.dk, allowed.dk, "dk");
  expect_allowed(got.dv, want.dv, allowed.dv, "dv");
  if (way.backend == Backend::kGpu) return;  // an emulator takes its time
  run_ranks(c, p, way, want, again);
  EXPECT_SAME_BITS(again.o, got.o);
  EXPECT_SAME_BITS(again.lse, got.lse);
  EXPECT_SAME_BITS(again.dq, got.dq);
  EXPECT_SAME_BITS(again.dk, got.dk);
  EXPECT_SAME_BITS(again.dv, got.dv);
}

void for_cases(ContextVariant variant) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (size_t i = 0; i < cases().size(); ++i) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " case " + std::to_string(i));
      expect_matches_one_rank(cases()[i], {variant}, dtype);
    }
  }
}

TEST(ContextAttention, TheRingGivesWhatOneRankGivesAndTheSameBitsAgain) {
  for_cases(ContextVariant::kRing);
}

TEST(ContextAttention, TheAllGatherGivesWhatOneRankGivesAndTheSameBitsAgain) {
  for_cases(ContextVariant::kAllGather);
}

TEST(ContextAttention, TheAllGatherHasTheBitsOfOneRankButForKeyGradients) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " ranks " + std::to_string(c.ranks) +
                   " length " + std::to_string(c.length));
      Rig rig;
      const Packed p = packed_of(c);
      const std::vector<Segment> segments = whole_segments(p);
      const Tensors one(rig, p.layout.rows(), c, dtype, 1), got(rig, p.layout.rows(), c, dtype, 30);
      one_rank_forward(rig.ctx, one, c, segments);
      one_rank_backward(rig.ctx, one, c, segments);
      run_ranks(c, p, {ContextVariant::kAllGather}, one, got);
      EXPECT_SAME_BITS(got.o, one.o);
      EXPECT_SAME_BITS(got.lse, one.lse);
      EXPECT_SAME_BITS(got.dq, one.dq);
    }
  }
}

// One device's bits, but for key gradients.
void expect_bits_of_one_device(const Case& c, DType dtype) {
  Rig rig;
  const Packed p = packed_of(c);
  const std::vector<Segment> segments = whole_segments(p);
  const Tensors one(rig, p.layout.rows(), c, dtype, 1), got(rig, p.layout.rows(), c, dtype, 30);
  TestDevice device;
  const Tensors there = device.twins(one);
  one_rank_forward(device.ctx, there, c, segments);
  one_rank_backward(device.ctx, there, c, segments);
  device.copy(false);
  run_ranks(c, p, {ContextVariant::kAllGather, Backend::kGpu}, one, got);
  EXPECT_SAME_BITS(got.o, one.o);
  EXPECT_SAME_BITS(got.lse, one.lse);
  EXPECT_SAME_BITS(got.dq, one.dq);
}

// Packed; a window over chunks and hops that nobody sees. Of those that an emulator has done soon.
TEST(ContextAttention, DevicesGiveWhatOneOfThemGives) {
  const Case packed = {2, 2, 17, 2, 1, 8, 0, 2}, windowed = {4, 1, 40, 2, 1, 8, 6, 0};
  for (const auto& [c, dtype] :
       {std::pair(packed, DType::kF32), {packed, DType::kBF16}, {windowed, DType::kF32}}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)) + " length " + std::to_string(c.length));
    expect_matches_one_rank(c, {ContextVariant::kRing, Backend::kGpu}, dtype);
    expect_matches_one_rank(c, {ContextVariant::kAllGather, Backend::kGpu}, dtype);
    expect_bits_of_one_device(c, dtype);
  }
}

// In double nothing hides behind a tolerance.
TEST(ContextAttention, TheReferenceRingIsExact) {
  for (const Case& c : cases()) {
    SCOPED_TRACE("ranks " + std::to_string(c.ranks) + " length " + std::to_string(c.length));
    Rig rig(Backend::kRef, 1);
    const Packed p = packed_of(c);
    const std::vector<Segment> segments = whole_segments(p);
    const Tensors one(rig, p.layout.rows(), c, DType::kF64, 1),
        got(rig, p.layout.rows(), c, DType::kF64, 30);
    one_rank_forward(rig.ctx, one, c, segments);
    one_rank_backward(rig.ctx, one, c, segments);
    run_ranks(c, p, {ContextVariant::kRing, Backend::kRef}, one, got);
    expect_close(got.o, one.o, {1e-13}, "o");
    expect_close(got.lse, one.lse, {1e-13}, "lse");
    expect_close(got.dq, one.dq, {1e-12}, "dq");
    expect_close(got.dk, one.dk, {1e-12}, "dk");
    expect_close(got.dv, one.dv, {1e-12}, "dv");
  }
}

TEST(ContextAttention, ItsMemoryIsThePlannedMemory) {
  for (const ContextVariant variant : {ContextVariant::kRing, ContextVariant::kAllGather}) {
    Arena dry(Arena::Mode::kDry), real(Arena::Mode::kReal);
    const ContextAttentionSizes sizes = {.variant = variant,
                                         .tokens = 100,
                                         .rows = 400,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 8,
                                         .dtype = DType::kBF16,
                                         .training = true};
    const ContextAttention planned(dry, sizes), taken(real, sizes);
    EXPECT_EQ(dry.bytes(), real.bytes());
    EXPECT_GT(dry.bytes(), 0);
  }
}

}  // namespace
}  // namespace moraine
