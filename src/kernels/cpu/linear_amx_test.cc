// Fails if products over tiles are not the sums that linear_amx.h promises: emulated tiles and scalar
// copies run everywhere, the machine's tiles and fast copies must give their bits.
#include "kernels/cpu/linear_amx.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "kernels/cpu/linear_amx_streamed.h"
#include "kernels/cpu/linear_rows.h"
#include "kernels/ref/element.h"
#include "testing/emulated_tiles.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using cpu::ColumnCopy;
using cpu::kAmxTileRows;
using cpu::kAmxWords;
using cpu::kPanel;
using cpu::LinearEngine;
using testing::EmulatedTiles;
using testing::Rig;
using testing::tolerance;

// ------------------------------------------------------------------ the copies, as their layouts say

uint16_t element(const ColumnCopy& c, int64_t s, int64_t column) {
  return s < c.sum ? static_cast<const uint16_t*>(c.from)[s * c.stride + column] : uint16_t{0};
}

template <class At>
void copy_panels(const ColumnCopy& c, const At& at) {
  const int64_t steps = (c.sum + 2 * kAmxWords - 1) / (2 * kAmxWords) * kAmxWords;
  for (int64_t p = 0; p < c.count; ++p) {
    const int64_t begin = c.even ? cpu::even_begin(c.columns, c.count, p) : p * c.width;
    const int64_t end =
        c.even ? cpu::even_begin(c.columns, c.count, p + 1) : std::min(begin + c.width, c.columns);
    auto* panel = reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(c.panels) + p * c.panel_bytes);
    for (int64_t s = 0; s < steps; ++s) {
      for (int64_t j = begin; j < end; ++j) {
        panel[at(s, j - begin)] = element(c, 2 * s, j) | uint32_t{element(c, 2 * s + 1, j)} << 16;
      }
    }
  }
}

void copy_right(const ColumnCopy& c) {
  std::memset(c.panels, 0, static_cast<size_t>(c.count * c.panel_bytes));
  copy_panels(c, [](int64_t s, int64_t j) { return s * kPanel + j; });
}

void copy_left(const ColumnCopy& c) {
  copy_panels(c, [](int64_t s, int64_t j) {
    return s / kAmxWords * kAmxTileRows * kAmxWords + j * kAmxWords + s % kAmxWords;
  });
}

void copy_rows(const cpu::RowCopy& r) {
  for (int64_t i = 0; i < r.rows; ++i) {
    auto* to = static_cast<uint16_t*>(r.panel) + i * cpu::kRowWords * 2;
    for (int64_t j = 0; j < (r.sum + 31) / 32 * 32; ++j) {
      const float* wide = static_cast<const float*>(r.from) + i * r.stride + j;
      const uint16_t* half = static_cast<const uint16_t*>(r.from) + i * r.stride + j;
      to[j] = j >= r.sum ? uint16_t{0} : r.dtype == DType::kBF16 ? *half : to_bf16(*wide).bits;
    }
  }
}

const LinearEngine& emulated_engine() {
  static const LinearEngine engine = [] {
    LinearEngine e = cpu::f32_engine(DType::kBF16);  // finish
    e.tile_rows = e.row_run = e.column_width = kAmxTileRows;
    e.ahead_rows = 1;
    e.parts = {};
    e.ahead_streams = cpu::Ahead::kStreams;
    e.sum_block = 2 * cpu::kBlockWords;
    e.row_step = e.column_step = 2;
    e.in_place = true;
    e.streamed = {cpu::kStreamedRows, cpu::amx_streamed_tile<EmulatedTiles>};
    e.column_round = kAmxWords;
    e.copy_rows = copy_rows;
    e.copy_right = copy_right;
    e.copy_left = copy_left;
    e.row_tile = cpu::amx_tile<EmulatedTiles, false>;
    e.column_tile = cpu::amx_tile<EmulatedTiles, true>;
    return e;
  }();
  return engine;
}

bool machine_has_tiles() { return supported_isas().back() == Isa::kAmx; }

// ------------------------------------------------------------------------------------------ products

struct AmxShape {
  int64_t rows, n, k;
};
// One row, a tile and its half and one beyond; sums of less than a dot, odd, and of several blocks.
constexpr AmxShape kAmxShapes[] = {{1, 32, 32},    {1, 33, 7},    {15, 64, 40},
                                   {16, 31, 1025}, {17, 40, 64},  {31, 8, 2},
                                   {33, 65, 95},   {70, 96, 129}, {5, 32, 2049}};

struct Forward {
  Tensor y, x, w;
};

// y = x w, of each group its rows.
void multiply(Rig& rig, const Forward& f, const PackedMatrix& packed, std::span<const int64_t> rows,
              const LinearEngine& e) {
  cpu::run_rows_product(rig.ctx, {.y = f.y, .x = f.x, .w = packed, .rows = rows}, e);
}

Forward run_forward(Rig& rig, const AmxShape& s, DType input, DType output, const LinearEngine& e) {
  const Forward f = {.y = rig.normal({s.rows, s.n}, output, 3),
                     .x = rig.normal({s.rows, s.k}, input, 1),
                     .w = rig.normal({s.n, s.k}, DType::kF32, 2)};
  const PackedMatrix packed = {
      .data = rig.zeros({packed_bytes(DType::kBF16, 1, s.n, s.k) + 64}, DType::kU8).data,
      .dtype = DType::kBF16,
      .groups = 1,
      .n = s.n,
      .k = s.k};
  pack_matrix(rig.ctx, {.packed = packed, .w = f.w, .transpose = false});
  const int64_t rows[2] = {0, s.rows};
  multiply(rig, f, packed, rows, e);
  return f;
}

// The sum of one element in the order of amx_tiles.h, from rounded operands.
float in_order(const Tensor& x, const Tensor& w, int64_t t, int64_t j) {
  const int64_t k = x.dims[1];
  float sum = 0;
  for (int64_t i = 0; i < k; i += 32) {
    float even = 0, odd = 0;
    for (int64_t p = i; p < std::min(i + 32, k); ++p) {
      const float a = to_float(to_bf16(static_cast<float>(ref::get(x, t * k + p))));
      const float b = to_float(to_bf16(static_cast<float>(ref::get(w, j * k + p))));
      float& chain = p % 2 == 0 ? even : odd;
      chain = testing::emulated_fma(a, b, chain);
    }
    sum = testing::emulated_add(sum, testing::emulated_add(even, odd));
  }
  return sum;
}

TEST(LinearAmx, EmulatedForwardIsTheSumInItsOrder) {
  for (const AmxShape& s : kAmxShapes) {
    SCOPED_TRACE(fmt::format("rows={} n={} k={}", s.rows, s.n, s.k));
    Rig rig;
    const Forward f = run_forward(rig, s, DType::kBF16, DType::kF32, emulated_engine());
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t j = 0; j < s.n; ++j) {
        ASSERT_EQ(f.y.as<float>()[t * s.n + j], in_order(f.x, f.w, t, j)) << t << " " << j;
      }
    }
  }
}

TEST(LinearAmx, ForwardEqualsTheEmulation) {
  if (!machine_has_tiles()) GTEST_SKIP() << "this machine has no AMX";
  for (const AmxShape& s : kAmxShapes) {
    for (const DType input : {DType::kBF16, DType::kF32}) {
      for (const DType output : {DType::kBF16, DType::kF32}) {
        SCOPED_TRACE(fmt::format("{} -> {} rows={} n={} k={}", dtype_name(input),
                                 dtype_name(output), s.rows, s.n, s.k));
        Rig rig;
        const Tensor got = run_forward(rig, s, input, output, *cpu::amx_engine()).y,
                     want = run_forward(rig, s, input, output, emulated_engine()).y;
        EXPECT_SAME_BITS(got, want);
      }
    }
  }
}

TEST(LinearAmx, WhereRowsAreReadChangesNoBit) {
  constexpr AmxShape kShapes[] = {{33, 65, 96}, {17, 160, 32}, {3, 96, 64}, {40, 70, 1056}};
  LinearEngine copying = emulated_engine();
  copying.in_place = false;
  for (const AmxShape& s : kShapes) {
    SCOPED_TRACE(fmt::format("rows={} n={} k={}", s.rows, s.n, s.k));
    Rig rig;
    EXPECT_SAME_BITS(run_forward(rig, s, DType::kBF16, DType::kF32, emulated_engine()).y,
                     run_forward(rig, s, DType::kBF16, DType::kF32, copying).y);
  }
}

// Rows in sixteens and one beyond, few and as many as there can be; sums of less than a part of a panel, of parts, and
// with a dot that is not whole.
constexpr AmxShape kStreamedShapes[] = {{1, 64, 288},  {16, 32, 30},  {17, 64, 256},
                                        {40, 32, 610}, {64, 32, 512}, {128, 32, 34}};

// Sums of all rows by `tile`, `at_once` of them in turn, onto what is there if `add`.
std::vector<float> sums_by(void (*tile)(const cpu::Tile&), const AmxShape& s, int64_t at_once,
                           bool add) {
  Rig rig;
  const int64_t words = (s.k + 31) / 32 * kAmxWords, steps = (s.k + 1) / 2;
  const Tensor left = rig.normal({s.rows, 2 * words}, DType::kBF16, 1),
               right = rig.normal({s.n / kPanel, steps, kPanel, 2}, DType::kBF16, 2),
               c = rig.normal({s.rows, s.n}, DType::kF32, 3);
  for (int64_t row = 0; row < s.rows; ++row) {
    for (int64_t i = s.k; i < 2 * words; ++i) left.as<BF16>()[row * 2 * words + i] = {};
  }
  for (int64_t row = 0; row < s.rows; row += at_once) {
    tile({.a = left.as<BF16>() + row * 2 * words,
          .b = right.data,
          .b_stride = steps * 4 * kPanel,
          .panels = s.n / kPanel,
          .steps = steps,
          .c = c.as<float>() + row * s.n,
          .c_stride = s.n,
          .rows = std::min(at_once, s.rows - row),
          .add = add,
          .a_row = 4 * words});
  }
  return {c.as<float>(), c.as<float>() + c.count()};
}

TEST(LinearAmx, RowsThatTakeTurnsAtAPanelHaveTheSumsOfOthers) {
  const auto few = cpu::amx_tile<EmulatedTiles, false>,
             many = cpu::amx_streamed_tile<EmulatedTiles>;
  for (const AmxShape& s : kStreamedShapes) {
    for (const bool add : {false, true}) {
      SCOPED_TRACE(fmt::format("rows={} n={} k={} add={}", s.rows, s.n, s.k, add));
      const std::vector<float> want = sums_by(few, s, kAmxTileRows, add),
                               got = sums_by(many, s, cpu::kStreamedRows, add);
      ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
      if (!machine_has_tiles()) continue;
      const std::vector<float> here =
          sums_by(cpu::amx_engine()->streamed.tile, s, cpu::kStreamedRows, add);
      ASSERT_EQ(std::memcmp(here.data(), want.data(), want.size() * sizeof(float)), 0);
    }
  }
}

// A tile that counts how often it was added to.
void count_tile(const cpu::Tile& t) {
  for (int64_t i = 0; i < t.rows; ++i) {
    float* c = t.c + i * t.c_stride;
    for (int64_t j = 0; j < t.panels * cpu::kPanel; ++j) c[j] = t.add ? c[j] + 1 : 1;
  }
}

// Sixteen experts of a row each, one thread: a task never has more tiles than a group, so its sums have room.
TEST(LinearAmx, GroupsOfFewRowsFitTheScratchOfOneThread) {
  constexpr int64_t kGroups = 16, kColumns = 2048, kSum = 2 * cpu::kBlockWords + 32;
  Rig rig(Backend::kCpu, 1);
  std::vector<int64_t> rows(kGroups + 1);
  for (size_t g = 0; g < rows.size(); ++g) rows[g] = static_cast<int64_t>(g);
  LinearEngine engine = emulated_engine();
  engine.row_tile = count_tile;
  engine.streamed = {};
  const int64_t bytes = packed_bytes(DType::kBF16, kGroups, kColumns, kSum);
  const Tensor y = rig.zeros({kGroups, kColumns}, DType::kF32),
               x = rig.zeros({kGroups, kSum}, DType::kBF16);
  multiply(rig, {.y = y, .x = x, .w = {}},
           {.data = rig.zeros({bytes + 64}, DType::kU8).data,
            .dtype = DType::kBF16,
            .groups = kGroups,
            .n = kColumns,
            .k = kSum},
           rows, engine);
  for (int64_t i = 0; i < y.count(); ++i) ASSERT_EQ(y.as<float>()[i], 2) << i;  // blocks of the sum
}

struct Weight {
  Tensor dw, dy, x;
};

// The sum runs over s.k rows, in two groups.
Weight run_weight(Rig& rig, const AmxShape& s, const LinearEngine& e) {
  const int64_t T = s.k + 3, n = s.n, k = s.rows;
  const Weight w = {.dw = rig.normal({2, n, k}, DType::kF32, 3),
                    .dy = rig.normal({T, n}, DType::kBF16, 1),
                    .x = rig.normal({T, k}, DType::kBF16, 2)};
  const int64_t rows[3] = {0, 3, T};
  cpu::run_weight_product(rig.ctx,
                          {.dw = w.dw, .dbias = Tensor(), .dy = w.dy, .x = w.x, .rows = rows}, e);
  return w;
}

TEST(LinearAmx, EmulatedWeightGradientMatchesReference) {
  for (const AmxShape& s : kAmxShapes) {
    SCOPED_TRACE(fmt::format("rows={} n={} k={}", s.k, s.n, s.rows));
    Rig rig, slow(Backend::kRef);
    const Weight w = run_weight(rig, s, emulated_engine());
    const Tensor want = slow.copy_as(rig.normal({2, s.n, s.rows}, DType::kF32, 3), DType::kF64);
    const int64_t rows[3] = {0, 3, s.k + 3};
    grouped_linear_backward_weight(slow.ctx, {.dw = want,
                                              .dbias = Tensor(),
                                              .dy = slow.copy_as(w.dy, DType::kF64),
                                              .x = slow.copy_as(w.x, DType::kF64),
                                              .rows = rows});
    EXPECT_CLOSE(w.dw, want, tolerance(DType::kF32, s.k));
  }
}

TEST(LinearAmx, WeightGradientEqualsTheEmulation) {
  if (!machine_has_tiles()) GTEST_SKIP() << "this machine has no AMX";
  for (const AmxShape& s : kAmxShapes) {
    SCOPED_TRACE(fmt::format("rows={} n={} k={}", s.k, s.n, s.rows));
    Rig rig;
    EXPECT_SAME_BITS(run_weight(rig, s, *cpu::amx_engine()).dw,
                     run_weight(rig, s, emulated_engine()).dw);
  }
}

}  // namespace
}  // namespace moraine
