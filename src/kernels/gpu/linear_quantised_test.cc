// Packs of integers on an emulated GPU: fails if a product or a row of an embedding has another bit than the CPU's in
// any wave or order, if a product is off from its formula, or if a row's bits depend on its company.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/embedding.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/isa.h"
#include "kernels/linear.h"
#include "kernels/quantised.h"

namespace moraine::gpu {
namespace {

using namespace testing;

constexpr WeightFormat kFormats[] = {WeightFormat::kQ8, WeightFormat::kQ6, WeightFormat::kQ4};

// A pack that the CPU has made of normal weights.
PackedMatrix make_pack(Rig& rig, PackedMatrix shape) {
  shape.data = rig.zeros({packed_bytes(shape)}, DType::kU8).data;
  const Tensor w = rig.normal({shape.groups * shape.n, shape.k}, DType::kF32, 3);
  pack_matrix(rig.ctx, {.packed = shape, .w = w, .transpose = false});
  return shape;
}

PackedMatrix put(GpuRig& rig, PackedMatrix pack) {
  pack.data = rig.put(make_tensor(pack.data, DType::kU8, {packed_bytes(pack)})).data;
  return pack;
}

struct QuantisedCase {
  std::vector<int64_t> rows;  // of each group
  int64_t n, k;
  DType dtype, y;
  bool bias;
};

struct QuantisedData {
  Tensor y, x, bias;
  PackedMatrix w;
  std::vector<int64_t> rows;
};

// Rows of what integers are easily wrong for: blocks of zeros, of less than 2^-100, and of ties between two integers.
void spoil(const Tensor& x) {
  const int64_t T = x.dims[0], k = x.dims[1];
  const auto set = [&](int64_t t, int64_t i, float v) {
    if (t >= T || i >= k) return;
    if (x.dtype == DType::kF32) x.as<float>()[t * k + i] = v;
    if (x.dtype == DType::kBF16) x.as<BF16>()[t * k + i] = to_bf16(v);
  };
  for (int64_t i = 0; i < kQuantisedBlock; ++i) {
    set(1, i, 0);
    set(2, i, i % 2 == 0 ? 0x1p-101f : -0x1p-110f);
    set(3, i, i == 0 ? 127.0f : static_cast<float>(i) - 20.5f);
    set(3, kQuantisedBlock + i, i == 1 ? -63.5f : static_cast<float>(i) / 4 - 9);
  }
}

QuantisedData make_data(Rig& rig, const QuantisedCase& c, WeightFormat format) {
  QuantisedData data;
  data.rows = {0};
  for (const int64_t rows : c.rows) data.rows.push_back(data.rows.back() + rows);
  const int64_t T = data.rows.back() + 3,
                G = static_cast<int64_t>(c.rows.size());  // three rows of no group
  data.y = rig.normal({T, c.n}, c.y, 1);
  data.x = rig.normal({T, c.k}, c.dtype, 2);
  spoil(data.x);
  data.w = make_pack(rig, {.dtype = c.dtype, .groups = G, .n = c.n, .k = c.k, .format = format});
  if (c.bias) data.bias = rig.normal({G, c.n}, DType::kF32, 4);
  return data;
}

GroupedLinearForward call(const QuantisedData& d) {
  return {.y = d.y, .x = d.x, .w = d.w, .bias = d.bias, .rows = d.rows};
}

Tensor run(GpuRig& rig, QuantisedData d) {
  d.y = rig.put(d.y);
  d.x = rig.put(d.x);
  d.w = put(rig, d.w);
  d.bias = rig.put(d.bias);
  grouped_linear_forward(rig.ctx, call(d));
  return d.y;
}

const QuantisedCase kCases[] = {
    {{1}, 1, 1, DType::kBF16, DType::kF32, false},                // smallest
    {{5}, 33, 70, DType::kF32, DType::kF32, true},                // one past a panel and a block
    {{64}, 64, 64, DType::kBF16, DType::kF32, false},             // everything is a multiple
    {{65}, 97, 129, DType::kBF16, DType::kBF16, true},            // a panel that is not there
    {{3, 0, 66, 1}, 20, 150, DType::kBF16, DType::kBF16, false},  // groups, one of them empty
    {{1}, 40, 1100, DType::kBF16, DType::kF32, false},            // the CPU's sum is in two pieces
};

// Without fma the CPU rounds twice.
bool cpu_has_fma() { return isa() != Isa::kBaseline; }

TEST(GpuLinearQuantised, HasTheBitsOfTheCpuWithOneResultInEveryWaveAndOrder) {
  if (!cpu_has_fma()) GTEST_SKIP() << "the CPU's products have no fused multiply-adds here";
  for (const WeightFormat format : kFormats) {
    for (const QuantisedCase& c : kCases) {
      Rig host;
      const QuantisedData data = make_data(host, c, format);
      QuantisedData want = data;
      want.y = host.copy(data.y);
      grouped_linear_forward(host.ctx, call(want));
      for (const Emulation& e : all_emulations()) {
        SCOPED_TRACE(emulation_text(e) + " " + weight_format_name(format) +
                     " n=" + std::to_string(c.n) + " k=" + std::to_string(c.k));
        GpuRig rig(e);
        EXPECT_SAME_BITS(rig.get(host, run(rig, data)), want.y);
      }
    }
  }
}

TEST(GpuLinearQuantised, MatchesTheReference) {
  for (const WeightFormat format : kFormats) {
    for (const QuantisedCase& c : kCases) {
      SCOPED_TRACE(std::string(weight_format_name(format)) + " k=" + std::to_string(c.k));
      Rig host;
      const QuantisedData data = make_data(host, c, format);
      QuantisedData want = data;
      want.y = host.copy(data.y);
      ref::grouped_linear_forward(call(want));
      GpuRig rig({.wave = 64});
      EXPECT_CLOSE(rig.get(host, run(rig, data)), want.y,
                   tolerance(c.y, c.k / kQuantisedBlock + 1));
    }
  }
}

// Bounds are in the GPU's memory, as a plan leaves them, or none are: a plain product.
TEST(GpuLinearQuantised, ARowAloneIsTheRowInCompanyAndInAGroup) {
  for (const WeightFormat format : kFormats) {
    Rig host;
    const QuantisedData all =
        make_data(host, {{2, 66}, 20, 70, DType::kBF16, DType::kF32, true}, format);
    GpuRig rig({.wave = 32, .order = ThreadOrder::kRandom, .seed = 3});
    const Tensor together = rig.get(host, run(rig, all));
    QuantisedData there = all;
    there.y = rig.put(all.y);
    there.x = rig.put(all.x);
    there.w = put(rig, all.w);
    there.bias = rig.put(all.bias);
    const Tensor bounds = rig.put(make_tensor(there.rows.data(), DType::kI64, {3}));
    grouped_linear_forward(rig.ctx, {.y = there.y,
                                     .x = there.x,
                                     .w = there.w,
                                     .bias = there.bias,
                                     .rows = {bounds.as<int64_t>(), 3}});
    EXPECT_SAME_BITS(rig.get(host, there.y), together);
    PackedMatrix second = there.w;
    second.groups = 1;
    second.data = packed_group(there.w, 1);
    for (const int64_t t : {2, 30, 67}) {
      const Tensor y = rig.put(all.y.rows(t, t + 1));
      linear_forward(rig.ctx, {.y = y,
                               .x = rig.put(all.x.rows(t, t + 1)),
                               .w = second,
                               .bias = there.bias.rows(1, 2).reshaped({20})});
      EXPECT_SAME_BITS(rig.get(host, y), together.rows(t, t + 1));
    }
  }
}

// Sums as large as they get, of either sign: 128 * 127 * 127.
TEST(GpuLinearQuantised, LargestIntegersDoNotOverflow) {
  if (!cpu_has_fma()) GTEST_SKIP() << "the CPU's products have no fused multiply-adds here";
  for (const WeightFormat format : kFormats) {
    Rig host;
    constexpr int64_t k = 2 * kQuantisedBlock;
    QuantisedData data = make_data(host, {{4}, 4, k, DType::kF32, DType::kF32, false}, format);
    const Tensor w = host.zeros({4, k}, DType::kF32);
    for (int64_t i = 0; i < data.x.count(); ++i)
      data.x.as<float>()[i] = i % k < kQuantisedBlock ? 3.0f : -3.0f;
    for (int64_t i = 0; i < w.count(); ++i) w.as<float>()[i] = i / k % 2 == 0 ? -5.0f : 5.0f;
    pack_matrix(host.ctx, {.packed = data.w, .w = w, .transpose = false});
    QuantisedData want = data;
    want.y = host.copy(data.y);
    grouped_linear_forward(host.ctx, call(want));
    GpuRig rig({.wave = 64});
    EXPECT_SAME_BITS(rig.get(host, run(rig, data)), want.y);
  }
}

TEST(GpuLinearQuantised, ARowThatIsNotFiniteSpoilsNoOther) {
  constexpr int64_t n = 32, k = 128;
  for (const WeightFormat format : kFormats) {
    Rig host;
    const QuantisedData data =
        make_data(host, {{9}, n, k, DType::kF32, DType::kF32, false}, format);
    GpuRig rig({.wave = 32});
    const Tensor want = rig.get(host, run(rig, data));
    data.x.as<float>()[4 * k + 5] = std::numeric_limits<float>::quiet_NaN();
    data.x.as<float>()[7 * k + 70] = -std::numeric_limits<float>::infinity();
    const Tensor y = rig.get(host, run(rig, data));
    for (int64_t t = 0; t < 12; ++t) {
      if (t == 4 || t == 7) {
        for (int64_t j = 0; j < n; ++j) EXPECT_TRUE(std::isnan(y.as<float>()[t * n + j])) << t;
      } else {
        EXPECT_SAME_BITS(y.rows(t, t + 1), want.rows(t, t + 1));
      }
    }
  }
}

// A pack of the GPU's own, of a table that x's type rounds, or one of integers.
TEST(GpuEmbeddingPacked, RowsAreTheCpusWithOneResultInEveryWaveAndOrder) {
  constexpr int64_t V = 70, D = 100, T = 9;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const WeightFormat format :
         {WeightFormat::kPlain, WeightFormat::kQ8, WeightFormat::kQ6, WeightFormat::kQ4}) {
      Rig host;
      const PackedMatrix table =
          make_pack(host, {.dtype = dtype, .groups = 1, .n = V, .k = D, .format = format});
      const Tensor token = host.integers({T}, V, 5), want = host.zeros({T, D}, dtype),
                   master = host.normal({V, D}, DType::kF32, 3);
      token.as<int32_t>()[0] = V - 1;
      embedding_packed_forward(host.ctx, {.x = want, .table = table, .token = token});
      for (const Emulation& e : all_emulations()) {
        SCOPED_TRACE(emulation_text(e) + " " + weight_format_name(format));
        GpuRig rig(e);
        const PackedMatrix there = put(rig, table);
        if (format == WeightFormat::kPlain)
          pack_matrix(rig.ctx, {.packed = there, .w = rig.put(master), .transpose = false});
        const Tensor x = rig.put(host.zeros({T, D}, dtype));
        embedding_packed_forward(rig.ctx, {.x = x, .table = there, .token = rig.put(token)});
        EXPECT_SAME_BITS(rig.get(host, x), want);
      }
    }
  }
}

}  // namespace
}  // namespace moraine::gpu
