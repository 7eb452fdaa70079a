// Matmul on an emulated GPU: fails if a product, a factor or the other half of a symmetric one is off, if an operand is
// overwritten while it is read, or if a generation has more than one result.
#include "kernels/gpu/matmul.h"

#include <gtest/gtest.h>

#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/linear.h"

namespace moraine::gpu {
namespace {

using namespace testing;

struct MatmulCase {
  int64_t m, n, k;
  DType compute;
  bool b_is_kn = false;
  bool in_place = false;  // c is c0, and b where their shapes are the same
  bool symmetric = false;
};

constexpr MatmulCase kMatmulCases[] = {
    {1, 1, 1, DType::kF32},
    {65, 30, 33, DType::kBF16},
    {30, 65, 33, DType::kF32, true},
    {30, 66, 30, DType::kBF16, true, true},  // as Newton-Schulz moves X
    {30, 66, 30, DType::kF32, true, true},
    {70, 70, 20, DType::kBF16, false, true, true},  // blocks on and above the diagonal
    {70, 70, 20, DType::kF32, false, true, true},
    {64, 128, 40, DType::kBF16, false, true},         // blocks that are whole
    {128, 128, 24, DType::kBF16, false, true, true},  // one of them is mirrored
};

MatmulNT make_data(Rig& rig, const MatmulCase& c) {
  MatmulNT a = {.c = rig.normal({c.m, c.n}, DType::kF32, 1),
                .c0 = rig.normal({c.m, c.n}, DType::kF32, 2),
                .a = rig.normal({c.m, c.k}, DType::kF32, 3),
                .b = rig.normal({c.b_is_kn ? c.k : c.n, c.b_is_kn ? c.n : c.k}, DType::kF32, 4),
                .alpha = 1.5f,
                .beta = -0.5f,
                .symmetric = c.symmetric,
                .compute = c.compute,
                .b_is_kn = c.b_is_kn,
                .scratch = {}};
  if (c.symmetric) a.b = a.a;
  return a;
}

Tensor run(GpuRig& rig, MatmulNT a, bool in_place, const ProductSize* size = nullptr) {
  Rig host;
  const bool same = a.a.data == a.b.data;
  for (Tensor* t : {&a.c, &a.c0, &a.a, &a.b}) *t = rig.put(*t);
  if (same) a.b = a.a;
  if (in_place) a.c = a.c0;
  if (in_place && a.b_is_kn) {
    a.b = a.c;
  }
  a.scratch =
      rig.put(host.zeros({matmul_scratch_bytes(a.c.dims[1], a.a.dims[1], a.compute)}, DType::kU8));
  if (!same) a.rounded_a = rig.put(host.zeros({2 * a.a.count()}, DType::kU8));
  if (size == nullptr) {
    matmul_nt(*rig.gpu, a);
  } else {
    matmul_nt(*rig.gpu, a, *size);
  }
  return a.c;
}

TEST(GpuMatmul, MatchesTheReferenceInEveryWaveAndOrder) {
  for (const MatmulCase& c : kMatmulCases) {
    Rig host;
    MatmulNT data = make_data(host, c);
    if (c.in_place && c.b_is_kn) data.b = data.c0;
    MatmulNT want = data;
    want.c = host.copy(data.c);
    ref::matmul_nt(want);
    for (const Emulation& e : all_emulations()) {
      SCOPED_TRACE(emulation_text(e) + " m=" + std::to_string(c.m) + " n=" + std::to_string(c.n));
      GpuRig rig(e);
      EXPECT_CLOSE(rig.get(host, run(rig, data, c.in_place)), want.c,
                   tolerance(DType::kF32, c.k + 2));
    }
  }
}

// Newton-Schulz's second product: a is b and its own transpose, so nobody transposes it.
TEST(GpuMatmul, AProductOfASymmetricMatrixWithItselfNeedsNoTranspose) {
  Rig host;
  MatmulNT data = make_data(host, {40, 40, 40, DType::kBF16, true, false, true});
  float* const a = data.a.as<float>();
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < i; ++j) a[i * 40 + j] = a[j * 40 + i];
  }
  MatmulNT want = data;
  want.c = host.copy(data.c);
  ref::matmul_nt(want);
  GpuRig rig({.wave = 32});
  EXPECT_CLOSE(rig.get(host, run(rig, data, false)), want.c, tolerance(DType::kF32, 42));
}

TEST(GpuMatmul, LargeBlocksHaveTheSameBits) {
  const ProductSize large = ProductSize::kLarge, middle = ProductSize::kMiddle;
  for (const MatmulCase& c : {MatmulCase{256, 256, 40, DType::kBF16, false, false, true},
                              MatmulCase{130, 128, 33, DType::kBF16, true}}) {
    Rig host;
    const MatmulNT data = make_data(host, c);
    for (const MatrixRule rule : {MatrixRule::kSm90, MatrixRule::kCdna3}) {
      GpuRig rig(orders_of(rule).front());
      EXPECT_SAME_BITS(rig.get(host, run(rig, data, false, &large)),
                       rig.get(host, run(rig, data, false, &middle)));
    }
  }
}

TEST(GpuMatmul, WithoutBetaWhatWasThereIsNotRead) {
  Rig host;
  MatmulNT data = make_data(host, {3, 5, 7, DType::kBF16});
  data.beta = 0;
  data.c0 = {};
  MatmulNT want = data;
  want.c = host.copy(data.c);
  ref::matmul_nt(want);
  GpuRig rig({.wave = 32});
  EXPECT_CLOSE(rig.get(host, run(rig, data, false)), want.c, tolerance(DType::kF32, 8));
}

// Of the product below: one for each generation, no two the same.
constexpr StatedHashes kMatmulHashes = {
    "a199486c1173a9b680361c4cd65f2095", "9e89dbfb1cb2cf6744b443188de0960d",
    "0c8b65013e86c6ab2c1df5f04a37da65", "8fb11f178d9e712974b67e14f46097a1",
    "aa828ea9cf1d525ebc25658e68f36107"};

TEST(GpuMatmul, EveryGenerationHasOneResult) {
  Rig host;
  const MatmulNT data = make_data(host, {40, 40, 50, DType::kBF16, false, false, true});
  for (const MatrixRule rule : kMatrixRules) {
    Tensor all;
    expect_one_result(orders_of(rule), [&](GpuRig& r) {
      const Tensor device = run(r, data, false);
      all = r.get(host, device);
      return device;
    });
    expect_stated_hash(all, kMatmulHashes, rule);
  }
}

}  // namespace
}  // namespace moraine::gpu
