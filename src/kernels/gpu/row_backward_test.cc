// Gradients of Embedding, ValueShift, CcaConv and QkNormRope on an emulated GPU, by way of dispatch: fails if a term, a
// border of a document or a halo is off, if a gradient is overwritten where it is added to, if a column that is
// another's is touched, if a document's bits depend on its company, or if a bit depends on wave or order of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/cca_conv.h"
#include "kernels/embedding.h"
#include "kernels/gpu/test_gpu_forward.h"
#include "kernels/qk_norm_rope.h"
#include "kernels/value_shift.h"
#include "testing/two_ways.h"

namespace moraine::gpu {
namespace {

using namespace testing;

constexpr DType kRowTypes[] = {DType::kF32, DType::kBF16};

struct EmbeddingCase {
  int64_t T, V, D;
  bool far;  // the first id once more, at the end, and no other twice
};

constexpr EmbeddingCase kEmbeddingCases[] = {
    {1, 1, 1, false},
    {7, 11, 45, false},
    {40, 3, 300, false},  // frequent ids; more channels than threads
    {261, 261, 2, true},  // further back than a block has threads
};

std::vector<GpuField> embedding_fields(EmbeddingBackward& f) {
  return {{&f.dtable, "dtable"}, {&f.dx, nullptr}, {&f.token, nullptr}};
}

TEST(GpuEmbeddingBackward, MatchesTheReferenceWithTheBitsOfTheCpu) {
  for (const EmbeddingCase& c : kEmbeddingCases) {
    for (const DType dtype : kRowTypes) {
      SCOPED_TRACE("T=" + std::to_string(c.T));
      Rig host;
      const EmbeddingBackward a = {.dtable = host.normal({c.V, c.D}, DType::kF32, 1),
                                   .dx = host.normal({c.T, c.D}, dtype, 2),
                                   .token = host.integers({c.T}, c.V, 3)};
      for (int64_t t = 0; c.far && t < c.T; ++t) {
        a.token.as<int32_t>()[t] = static_cast<int32_t>((t + 1) % (c.T - 1));
      }
      const EmbeddingBackward got =
          expect_forward(host, a,
                         GpuOperation{&embedding_fields, &moraine::embedding_backward,
                                      &ref::embedding_backward, c.T});
      moraine::embedding_backward(host.ctx, a);
      EXPECT_SAME_BITS(got.dtable, a.dtable);
    }
  }
}

TEST(GpuValueShiftBackward, MatchesTheReferenceWithOneResult) {
  const std::vector<Segment> segments = documents({1, 2, 1, 7});
  const std::vector<int64_t> halo_row = {1, -1, 0, 3};
  const auto fields = [](ValueShiftBackward& f) -> std::vector<GpuField> {
    return {{&f.dqkv, "dqkv"}, {&f.dhalo, "dhalo"}, {&f.dv, nullptr}};
  };
  for (const DType dtype : kRowTypes) {
    for (const int form : {0, 1, 2, 3}) {  // plain; delayed; with a halo; with some of its rows
      SCOPED_TRACE(form);
      Rig host;
      const int64_t T = 11, K = 2, d = 13;
      const ValueShiftBackward a = {
          .dqkv = host.normal({T, 3 * K * d}, dtype, 1),
          .dv = host.normal({T, K, d}, dtype, 2),
          .segments = segments,
          .delayed = form > 0,
          .dhalo = form >= 2 ? host.normal({4, K * d / 2}, dtype, 3) : Tensor(),
          .halo_row = form == 3 ? halo_row : std::span<const int64_t>()};
      const ValueShiftBackward got = expect_forward(
          host, a,
          GpuOperation{fields, &moraine::value_shift_backward, &ref::value_shift_backward, 0});
      moraine::value_shift_backward(host.ctx, a);
      EXPECT_SAME_BITS(got.dqkv, a.dqkv);
      if (form >= 2) EXPECT_SAME_BITS(got.dhalo, a.dhalo);
    }
  }
}

CcaConvBackward conv_data(Rig& rig, Segments segments, DType dtype, int halo) {
  const int64_t G = 3, d = 17, C = G * d, T = segments.back().row_begin + segments.back().rows;
  const auto S = static_cast<int64_t>(segments.size());
  return {.dqkv = rig.normal({T, C + 5}, dtype, 1),
          .dw = rig.normal({C, 2}, DType::kF32, 2),
          .db = rig.normal({C}, DType::kF32, 3),
          .dpair = rig.normal({G, T, 2 * d}, dtype, 4),
          .qkv = rig.normal({T, C + 5}, dtype, 5),
          .w = rig.normal({C, 2}, DType::kF32, 6),
          .segments = segments,
          .dhalo = halo > 0 ? rig.normal({S, 2, C}, DType::kF32, 7) : Tensor(),
          .halo = halo > 1 ? rig.normal({S, 2, C}, dtype, 8) : Tensor(),
          .halo_row = {}};
}

std::vector<GpuField> conv_fields(CcaConvBackward& f) {
  return {{&f.dqkv, "dqkv"},   {&f.dw, "dw"},     {&f.db, "db"},   {&f.dhalo, "dhalo"},
          {&f.dpair, nullptr}, {&f.qkv, nullptr}, {&f.w, nullptr}, {&f.halo, nullptr}};
}

TEST(GpuCcaConvBackward, MatchesTheReferenceWithOneResult) {
  // A document of one row, one whose rows are in three blocks, borders next to a block's.
  const std::vector<Segment> segments = documents({1, 2, 60, 1, 70, 3});
  const std::vector<int64_t> halo_row = {4, -1, 0, 1, 2, -1};
  for (const DType dtype : kRowTypes) {
    for (const int form :
         {0, 1, 2, 3}) {  // no halo; gradients of one; with a halo; with some of its rows
      SCOPED_TRACE(form);
      Rig host;
      CcaConvBackward a = conv_data(host, segments, dtype, form);
      if (form == 3) a.halo_row = halo_row;
      const int64_t T = a.qkv.dims[0];
      expect_forward(
          host, a,
          GpuOperation{&conv_fields, &moraine::cca_conv_backward, &ref::cca_conv_backward, 2 * T});
    }
  }
}

TEST(GpuCcaConvBackward, ADocumentAloneIsTheDocumentInCompany) {
  Rig host;
  const std::vector<Segment> segments = documents({5, 62, 9}), alone = documents({62});
  const CcaConvBackward all = conv_data(host, segments, DType::kBF16, 2);
  GpuRig rig({.wave = 64});
  const auto run = [&](CcaConvBackward a) {
    for (const GpuField& f : conv_fields(a)) *f.tensor = rig.put(*f.tensor);
    moraine::cca_conv_backward(rig.ctx, a);
    return a;
  };
  const CcaConvBackward together = run(all);
  CcaConvBackward one = all;
  one.segments = alone;
  for (Tensor* t : {&one.dqkv, &one.qkv}) *t = t->rows(5, 67);
  for (Tensor* t : {&one.dhalo, &one.halo}) *t = t->rows(1, 2);
  one.dpair = host.zeros({3, 62, 34}, DType::kBF16);
  for (int64_t g = 0; g < 3; ++g) {
    std::copy_n(all.dpair.as<BF16>() + (g * 76 + 5) * 34, 62 * 34,
                one.dpair.as<BF16>() + g * 62 * 34);
  }
  const CcaConvBackward got = run(one);
  EXPECT_SAME_BITS(rig.get(host, got.dqkv), rig.get(host, together.dqkv).rows(5, 67));
  EXPECT_SAME_BITS(rig.get(host, got.dhalo), rig.get(host, together.dhalo).rows(1, 2));
}

struct RopeCase {
  int64_t T, H, K, d, rotary;
  DType dtype;
  bool plain;
};

// d >= 5: of fewer channels too little is left across the head to say how large the terms were that cancel.
constexpr RopeCase kRopeCases[] = {
    {1, 1, 1, 5, 0, DType::kF32, false},  // nothing to turn
    {3, 4, 2, 7, 2, DType::kF32, false},
    {2, 6, 2, 34, 34, DType::kBF16, false},   // all channels turned
    {2, 2, 1, 130, 64, DType::kBF16, false},  // more channels than threads
    {130, 3, 3, 6, 4, DType::kF32, false},    // three blocks of rows; no groups
    {3, 4, 2, 24, 12, DType::kF32, true},
    {2, 4, 1, 64, 32, DType::kBF16, true},
};

QkNormRopeBackward rope_data(Rig& rig, const RopeCase& c) {
  constexpr int64_t kPositions = 50;
  const auto unless_plain = [&](std::initializer_list<int64_t> dims, DType dtype, uint64_t seed) {
    return c.plain ? Tensor() : rig.normal(dims, dtype, seed);
  };
  const Tensor rope = rig.zeros({kPositions, c.rotary / 2, 2}, DType::kF32);
  ref::rope_table({.table = rope, .theta = 1e4});
  const QkNormRopeForward forward = {.q = rig.zeros({c.T, c.H, c.d}, c.dtype),
                                     .k = rig.zeros({c.T, c.K, c.d}, c.dtype),
                                     .nq = unless_plain({c.T, c.H}, DType::kF32, 1),
                                     .nk = unless_plain({c.T, c.K}, DType::kF32, 2),
                                     .qkv = rig.normal({c.T, (c.H + c.K) * c.d + 3}, c.dtype, 3),
                                     .z = unless_plain({c.H + c.K, c.T, c.d}, c.dtype, 4),
                                     .temp = unless_plain({c.K}, DType::kF32, 5),
                                     .position = rig.integers({c.T}, kPositions, 6),
                                     .rope = rope};
  ref::qk_norm_rope_forward(forward);
  return {.dqkv = rig.normal({c.T, (c.H + c.K) * c.d + 3}, c.dtype, 7),
          .dz = unless_plain({c.H + c.K, c.T, c.d}, c.dtype, 8),
          .dtemp = unless_plain({c.K}, DType::kF32, 9),
          .dq = rig.normal({c.T, c.H, c.d}, c.dtype, 10),
          .dk = rig.normal({c.T, c.K, c.d}, c.dtype, 11),
          .nq = forward.nq,
          .nk = forward.nk,
          .qkv = forward.qkv,
          .z = forward.z,
          .temp = forward.temp,
          .position = forward.position,
          .rope = rope};
}

std::vector<GpuField> rope_fields(QkNormRopeBackward& f) {
  return {{&f.dqkv, "dqkv"}, {&f.dz, "dz"},      {&f.dtemp, "dtemp"},    {&f.dq, nullptr},
          {&f.dk, nullptr},  {&f.nq, nullptr},   {&f.nk, nullptr},       {&f.qkv, nullptr},
          {&f.z, nullptr},   {&f.temp, nullptr}, {&f.position, nullptr}, {&f.rope, nullptr}};
}

TEST(GpuQkNormRopeBackward, MatchesTheReferenceWithOneResult) {
  for (const RopeCase& c : kRopeCases) {
    SCOPED_TRACE("T=" + std::to_string(c.T) + " d=" + std::to_string(c.d));
    Rig host;
    expect_forward(host, rope_data(host, c),
                   GpuOperation{&rope_fields, &moraine::qk_norm_rope_backward,
                                &ref::qk_norm_rope_backward, c.T + c.d});
  }
}

TEST(GpuQkNormRopeBackward, AHeadWithoutLengthHasNoTermAlongIt) {
  Rig host;
  // Four key heads: one number of dtemp alone does not say how large the terms were that cancel in it.
  const RopeCase c = {2, 8, 4, 8, 4, DType::kF32, false};
  QkNormRopeBackward a = rope_data(host, c);
  std::memset(a.qkv.data, 0, static_cast<size_t>(a.qkv.bytes()));
  for (int64_t i = 0; i < a.z.count(); ++i) a.z.as<float>()[i] *= 1e-13f;  // below the norm's tiny
  ref::qk_norm_rope_forward({.q = host.zeros({c.T, c.H, c.d}, c.dtype),
                             .k = host.zeros({c.T, c.K, c.d}, c.dtype),
                             .nq = a.nq,
                             .nk = a.nk,
                             .qkv = a.qkv,
                             .z = a.z,
                             .temp = a.temp,
                             .position = a.position,
                             .rope = a.rope});
  expect_forward(host, a,
                 GpuOperation{&rope_fields, &moraine::qk_norm_rope_backward,
                              &ref::qk_norm_rope_backward, c.T + c.d});
}

TEST(GpuQkNormRopeBackward, ARowAloneIsTheRowInCompany) {
  Rig host;
  const QkNormRopeBackward all = rope_data(host, {5, 4, 2, 10, 6, DType::kBF16, false});
  GpuRig rig({.wave = 32});
  const auto run = [&](QkNormRopeBackward a) {
    for (const GpuField& f : rope_fields(a)) *f.tensor = rig.put(*f.tensor);
    moraine::qk_norm_rope_backward(rig.ctx, a);
    return a;
  };
  const QkNormRopeBackward together = run(all);
  const Tensor dz = rig.get(host, together.dz).reshaped({6, 5 * 10});
  for (const int64_t t : {0, 4}) {
    QkNormRopeBackward one = all;
    for (Tensor* of : {&one.dqkv, &one.dq, &one.dk, &one.nq, &one.nk, &one.qkv, &one.position}) {
      *of = of->rows(t, t + 1);
    }
    one.z = host.zeros({6, 1, 10}, DType::kBF16), one.dz = host.zeros({6, 1, 10}, DType::kBF16);
    for (int64_t head = 0; head < 6; ++head) {
      std::copy_n(all.z.as<BF16>() + (head * 5 + t) * 10, 10, one.z.as<BF16>() + head * 10);
    }
    const QkNormRopeBackward alone = run(one);
    EXPECT_SAME_BITS(rig.get(host, alone.dqkv), rig.get(host, together.dqkv).rows(t, t + 1));
    const Tensor dz_alone = rig.get(host, alone.dz);
    for (int64_t head = 0; head < 6; ++head) {
      EXPECT_SAME_BITS(dz_alone.rows(head, head + 1).reshaped({10}),
                       dz.rows(head, head + 1).reshaped({50}).rows(t * 10, t * 10 + 10));
    }
  }
}

}  // namespace
}  // namespace moraine::gpu
