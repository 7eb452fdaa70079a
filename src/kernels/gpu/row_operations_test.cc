// Embedding, CcaConv, ValueShift, QkNormRope and Elementwise on an emulated GPU: fails if a formula, a border of a
// document or a halo is off, if a row's bits depend on its company, or if a bit depends on wave or order of threads.
#include <gtest/gtest.h>

#include "kernels/cca_conv.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gpu/cca_conv.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/embedding.h"
#include "kernels/gpu/qk_norm_rope.h"
#include "kernels/gpu/test_gpu_forward.h"
#include "kernels/gpu/value_shift.h"
#include "kernels/qk_norm_rope.h"
#include "kernels/value_shift.h"
#include "testing/two_ways.h"

namespace moraine::gpu {
namespace {

using namespace testing;

constexpr DType kRowOperationTypes[] = {DType::kF32, DType::kBF16};

TEST(GpuEmbedding, MatchesTheReferenceWithOneResult) {
  for (const DType dtype : kRowOperationTypes) {
    Rig host;
    const EmbeddingForward a = {.x = host.normal({7, 45}, dtype, 1),
                                .table = host.normal({11, 45}, DType::kF32, 2),
                                .token = host.integers({7}, 11, 3)};
    const auto fields = [](EmbeddingForward& f) -> std::vector<GpuField> {
      return {{&f.x, "x"}, {&f.table, nullptr}, {&f.token, nullptr}};
    };
    expect_forward(host, a,
                   GpuOperation{fields, &gpu::embedding_forward, &ref::embedding_forward, 1});
  }
}

std::vector<GpuField> conv_forward_fields(CcaConvForward& f) {
  return {
      {&f.pair, "pair"}, {&f.qkv, nullptr}, {&f.halo, nullptr}, {&f.w, nullptr}, {&f.b, nullptr}};
}

CcaConvForward conv_data(Rig& rig, Segments segments, DType dtype, bool halo) {
  const int64_t G = 3, d = 17, C = G * d, T = segments.back().row_begin + segments.back().rows;
  return {
      .pair = rig.normal({G, T, 2 * d}, dtype, 1),
      .qkv = rig.normal({T, C + 5}, dtype, 2),
      .halo = halo ? rig.normal({static_cast<int64_t>(segments.size()), 2, C}, dtype, 3) : Tensor(),
      .w = rig.normal({C, 2}, DType::kF32, 4),
      .b = rig.normal({C}, DType::kF32, 5),
      .segments = segments,
      .halo_row = {}};
}

TEST(GpuCcaConv, MatchesTheReferenceWithOneResult) {
  const std::vector<Segment> segments = documents({1, 2, 3, 1, 9});
  const std::vector<int64_t> halo_row = {4, -1, 0, 1, 2};
  for (const DType dtype : kRowOperationTypes) {
    for (const int halo : {0, 1, 2}) {
      Rig host;
      CcaConvForward a = conv_data(host, segments, dtype, halo > 0);
      if (halo == 2) a.halo_row = halo_row;
      expect_forward(
          host, a,
          GpuOperation{&conv_forward_fields, &gpu::cca_conv_forward, &ref::cca_conv_forward, 3});
    }
  }
}

// The rows of a document from `cut` on, with the two before them as halo.
TEST(GpuCcaConv, ASplitDocumentIsTheWhole) {
  for (const int64_t cut : {1, 2, 7}) {
    Rig host;
    const std::vector<Segment> whole = documents({9}), rest = documents({9 - cut});
    const CcaConvForward all = conv_data(host, whole, DType::kBF16, true);
    const int64_t C = all.b.dims[0], N = all.qkv.dims[1], T = 9 - cut;
    CcaConvForward part = all;
    part.segments = rest;
    part.pair = host.zeros({3, T, 34}, DType::kBF16);
    part.qkv = all.qkv.rows(cut, 9);
    part.halo = host.copy(all.halo);
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t row = cut - 2 + i;  // -1: the whole's own halo
      const BF16* const from = row < 0 ? all.halo.as<BF16>() + C : all.qkv.as<BF16>() + row * N;
      std::copy_n(from, C, part.halo.as<BF16>() + i * C);
    }
    const auto run = [&](CcaConvForward a) {
      GpuRig rig({.wave = 64});
      for (const GpuField& f : conv_forward_fields(a)) *f.tensor = rig.put(*f.tensor);
      cca_conv_forward(*rig.gpu, a);
      return rig.get(host, a.pair);
    };
    const Tensor got = run(part), want = run(all);
    for (int64_t g = 0; g < 3; ++g) {
      const Tensor of = want.rows(g, g + 1).reshaped({9, 34}).rows(cut, 9);
      EXPECT_SAME_BITS(got.rows(g, g + 1).reshaped({T, 34}), of);
    }
  }
}

TEST(GpuValueShift, MatchesTheReferenceWithOneResult) {
  const std::vector<Segment> segments = documents({1, 2, 1, 7});
  const std::vector<int64_t> halo_row = {1, -1, 0, 0};
  const auto fields = [](ValueShiftForward& f) -> std::vector<GpuField> {
    return {{&f.v, "v"}, {&f.qkv, nullptr}, {&f.halo, nullptr}};
  };
  for (const DType dtype : kRowOperationTypes) {
    for (const int form : {0, 1, 2, 3}) {  // plain; delayed; with a halo; with some of its rows
      Rig host;
      const int64_t T = 11, K = 2, d = 13;
      const ValueShiftForward a = {
          .v = host.normal({T, K, d}, dtype, 1),
          .qkv = host.normal({T, 3 * K * d}, dtype, 2),
          .halo = form >= 2 ? host.normal({form == 2 ? 4 : 2, K * d / 2}, dtype, 3) : Tensor(),
          .segments = segments,
          .delayed = form > 0,
          .halo_row = form == 3 ? halo_row : std::span<const int64_t>()};
      expect_forward(host, a,
                     GpuOperation{fields, &gpu::value_shift_forward, &ref::value_shift_forward, 0});
    }
  }
}

struct ForwardRopeCase {
  int64_t T, H, K, d, rotary;
  DType dtype;
  bool plain;
};

constexpr ForwardRopeCase kForwardRopeCases[] = {
    {1, 1, 1, 5, 0, DType::kF32, false},  // nothing to turn
    {3, 4, 2, 7, 2, DType::kF32, false},
    {2, 6, 2, 34, 34, DType::kBF16, false},   // all channels turned
    {2, 2, 1, 130, 64, DType::kBF16, false},  // more channels than threads
    {3, 4, 2, 24, 12, DType::kF32, true},
    {2, 4, 1, 64, 32, DType::kBF16, true},
};

QkNormRopeForward rope_forward_data(Rig& rig, const ForwardRopeCase& c) {
  constexpr int64_t kPositions = 50;
  const auto unless_plain = [&](std::initializer_list<int64_t> dims, DType dtype, uint64_t seed) {
    return c.plain ? Tensor() : rig.normal(dims, dtype, seed);
  };
  const Tensor rope = rig.zeros({kPositions, c.rotary / 2, 2}, DType::kF32);
  ref::rope_table({.table = rope, .theta = 1e4});
  return {.q = rig.normal({c.T, c.H, c.d}, c.dtype, 1),
          .k = rig.normal({c.T, c.K, c.d}, c.dtype, 2),
          .nq = unless_plain({c.T, c.H}, DType::kF32, 3),
          .nk = unless_plain({c.T, c.K}, DType::kF32, 4),
          .qkv = rig.normal({c.T, (c.H + c.K) * c.d + 3}, c.dtype, 5),
          .z = unless_plain({c.H + c.K, c.T, c.d}, c.dtype, 6),
          .temp = unless_plain({c.K}, DType::kF32, 7),
          .position = rig.integers({c.T}, kPositions, 8),
          .rope = rope};
}

std::vector<GpuField> rope_forward_fields(QkNormRopeForward& f) {
  return {{&f.q, "q"},       {&f.k, "k"},     {&f.nq, "nq"},      {&f.nk, "nk"},
          {&f.qkv, nullptr}, {&f.z, nullptr}, {&f.temp, nullptr}, {&f.position, nullptr},
          {&f.rope, nullptr}};
}

TEST(GpuQkNormRope, MatchesTheReferenceWithOneResult) {
  for (const ForwardRopeCase& c : kForwardRopeCases) {
    SCOPED_TRACE("d=" + std::to_string(c.d));
    Rig host;
    expect_forward(host, rope_forward_data(host, c),
                   GpuOperation{&rope_forward_fields, &gpu::qk_norm_rope_forward,
                                &ref::qk_norm_rope_forward, c.d});
  }
}

TEST(GpuQkNormRope, AHeadOfZerosStaysZero) {
  Rig host;
  QkNormRopeForward a = rope_forward_data(host, {2, 2, 1, 8, 4, DType::kF32, false});
  zero(host.ctx, a.qkv);
  zero(host.ctx, a.z);
  expect_forward(host, a,
                 GpuOperation{&rope_forward_fields, &gpu::qk_norm_rope_forward,
                              &ref::qk_norm_rope_forward, 8});
}

struct Pair {
  Tensor y, x;
};

TEST(GpuElementwise, MatchesTheReferenceWithOneResult) {
  const auto fields = [](Pair& p) -> std::vector<GpuField> {
    return {{&p.y, "y"}, {&p.x, nullptr}};
  };
  for (const DType y : kRowOperationTypes) {
    for (const DType x : kRowOperationTypes) {
      Rig host;
      const Pair pair = {host.normal({3, 101}, y, 1), host.normal({3, 101}, x, 2)};
      for (const DType precision : kRowOperationTypes) {
        expect_forward(
            host, pair,
            GpuOperation{fields,
                         [&](Gpu& g, const Pair& p) { gpu::round_copy(g, p.y, p.x, precision); },
                         [&](const Pair& p) { ref::round_copy(p.y, p.x, precision); }, 0});
      }
      expect_forward(host, pair,
                     GpuOperation{fields, [](Gpu& g, const Pair& p) { gpu::scale(g, p.y, 0.3f); },
                                  [](const Pair& p) { ref::scale(p.y, 0.3f); }, 1});
      if (y == DType::kBF16) continue;
      expect_forward(host, pair,
                     GpuOperation{fields, [](Gpu& g, const Pair& p) { gpu::add_into(g, p.y, p.x); },
                                  [](const Pair& p) { ref::add_into(p.y, p.x); }, 1});
    }
  }
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kI32, DType::kI64}) {
    Rig host;
    const Tensor y = host.zeros({5, 61}, dtype);
    std::memset(y.data, 0x5a, static_cast<size_t>(y.bytes()));
    GpuRig rig({.wave = 32});
    const Tensor all = rig.put(y);
    zero(*rig.gpu, all.rows(1, 4));
    const Tensor got = rig.get(host, all);
    EXPECT_SAME_BITS(got.rows(0, 1), y.rows(0, 1));
    EXPECT_SAME_BITS(got.rows(1, 4), host.zeros({3, 61}, dtype));
    EXPECT_SAME_BITS(got.rows(4, 5), y.rows(4, 5));
  }
}

}  // namespace
}  // namespace moraine::gpu
