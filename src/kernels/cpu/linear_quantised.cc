// Quantised products on any machine: rows to integers, and tiles in plain code.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_quantised.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/linear_quantised.h"
#include "kernels/cpu/simd.h"
#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace moraine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using moraine::HWY_NAMESPACE::DF;
using moraine::HWY_NAMESPACE::load;
using moraine::HWY_NAMESPACE::VF;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));

// --------------------------------------------------------------------------------- rows to integers

// Largest |x| of a block as bits: sizes of numbers are ordered as these, and NaN is above all.
template <class E>
HWY_INLINE int32_t largest_of(const E* x) {
  const hn::RebindToSigned<DF> di;
  const auto mask = hn::Set(di, 0x7fffffff);
  auto most = hn::Zero(di);
  for (int64_t i = 0; i < kQuantisedBlock; i += kLanes) {
    most = hn::Max(most, hn::And(hn::BitCast(di, load(DF(), x + i)), mask));
  }
  return hn::GetLane(hn::MaxOfLanes(di, most));
}
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE int32_t largest_of(const BF16* x) {
  const hn::RebindToSigned<DF> di;
  const hn::Repartition<uint16_t, DF> d16;
  const auto mask = hn::Set(d16, 0x7fff);
  auto most = hn::Zero(d16);
  for (int64_t i = 0; i < kQuantisedBlock; i += 2 * kLanes) {
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(x) + i);
    most = hn::Max(most, hn::And(bits, mask));
  }
  const auto pairs = hn::BitCast(di, most), odd = hn::And(pairs, hn::Set(di, 0x7fff0000));
  return hn::GetLane(hn::MaxOfLanes(di, hn::Max(hn::ShiftLeft<16>(pairs), odd)));
}
#endif

// quantised_step of every block, in whole vectors.
struct Steps {
  static constexpr int64_t kCount = kQuantisedBlocks > kLanes ? kQuantisedBlocks : kLanes;
  HWY_ALIGN float largest[kCount] = {};  // or its bits
  HWY_ALIGN float step[kCount];
  HWY_ALIGN float inverse[kCount];
};
HWY_INLINE void find_steps(Steps& all) {
  const DF df;
  const VF most = hn::Set(df, 127.0f), none = hn::Set(df, kLeastBlock),
           finite = hn::Set(df, std::numeric_limits<float>::max()),
           nan = hn::Set(df, std::numeric_limits<float>::quiet_NaN());
  for (int64_t b = 0; b < Steps::kCount; b += kLanes) {
    const VF largest = hn::Load(df, all.largest + b);
    const auto is_finite = hn::Le(largest, finite), is_zero = hn::Lt(largest, none);
    const VF inverse = hn::IfThenZeroElse(is_zero, hn::Div(most, largest));
    hn::Store(hn::IfThenElseZero(is_finite, inverse), df, all.inverse + b);
    const VF here = hn::IfThenZeroElse(is_zero, hn::Div(largest, most));
    hn::Store(hn::IfThenElse(is_finite, here, nan), df, all.step + b);
  }
}

// r of a block, and their sum. |x * inverse| is at most 127, a little rounding aside, so adding kShift leaves the
// nearest integer in the low bits, to even on a tie.
template <class E>
HWY_INLINE int32_t quantise_block(const E* x, float inverse, int8_t* r) {
  constexpr float kShift = 0x1.8p23f;
  constexpr uint32_t kShiftBits = 0x4b400000;
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint8_t, DF> d8;
  if (inverse == 0) {
    std::memset(r, 0, kQuantisedBlock);
    return 0;
  }
  const VF factor = hn::Set(df, inverse), shift = hn::Set(df, kShift);
  auto sum = hn::Zero(du);
  for (int64_t i = 0; i < kQuantisedBlock; i += kLanes) {
    const auto bits = hn::BitCast(du, hn::Add(hn::Mul(load(df, x + i), factor), shift));
    sum = hn::Add(sum, bits);
    hn::StoreU(hn::TruncateTo(d8, bits), d8, reinterpret_cast<uint8_t*>(r) + i);
  }
  const auto total = hn::GetLane(hn::SumOfLanes(du, sum));
  return static_cast<int32_t>(total - kShiftBits * static_cast<uint32_t>(kQuantisedBlock));
}

// Blocks wait for nothing but their own numbers: first all sizes, then all steps, then all integers.
template <class E>
HWY_INLINE void copy_rows_of(const RowCopy& c) {
  const int64_t whole = c.sum / kQuantisedBlock, rest = c.sum % kQuantisedBlock;
  for (int64_t i = 0; i < c.rows; ++i) {
    QuantisedRow& to = static_cast<QuantisedRow*>(c.panel)[i];
    const E* from = static_cast<const E*>(c.from) + i * c.stride;
    E last[kQuantisedBlock] = {};
    std::memcpy(last, from + whole * kQuantisedBlock, static_cast<size_t>(rest) * sizeof(E));
    const auto block = [&](int64_t b) { return b < whole ? from + b * kQuantisedBlock : last; };
    Steps steps;
    for (int64_t b = 0; b * kQuantisedBlock < c.sum; ++b) {
      const int32_t bits = largest_of(block(b));
      std::memcpy(steps.largest + b, &bits, sizeof bits);
    }
    find_steps(steps);
    std::copy_n(steps.step, kQuantisedBlocks, to.step);
    for (int64_t b = 0; b * kQuantisedBlock < c.sum; ++b) {
      to.minus[b] = -kWeightOffset<8> *
                    quantise_block(block(b), steps.inverse[b], to.r + b * kQuantisedBlock);
    }
  }
}

void copy_rows(const RowCopy& c) {
  c.dtype == DType::kBF16 ? copy_rows_of<BF16>(c) : copy_rows_of<float>(c);
}

// --------------------------------------------------------------------------------------------- tiles

template <int kBits>
HWY_INLINE void add_block(const uint8_t* w, const int8_t* r, int32_t minus, int32_t* sums) {
  std::fill_n(sums, kPackPanel, offset_sum<kBits>(minus));
  for (int64_t run = 0; run < kRuns; ++run, w += kRunBytes<kBits>, r += kQuantisedRun) {
    for (int64_t g = 0; g < kQuantisedRun / 4; ++g) {
      for (int64_t at = 0; at < 4 * kPackPanel; ++at)
        sums[at / 4] += stored_integer<kBits>(w, g, at) * r[4 * g + at % 4];
    }
  }
}

// c (+)= step * scale * sums, of one row and block.
HWY_INLINE void add_scaled(float* c, const int32_t* sums, float row_step, const BF16* scales,
                           bool add) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const VF step = hn::Set(df, row_step);
  for (int64_t j = 0; j < kPanel; j += kLanes) {
    const VF before = add ? hn::LoadU(df, c + j) : hn::Zero(df);
    const VF sum = hn::ConvertTo(df, hn::LoadU(di, sums + j));
    hn::StoreU(hn::MulAdd(sum, hn::Mul(step, load(df, scales + j)), before), df, c + j);
  }
}

template <int kBits>
void tile(const Tile& t) {
  const auto* rows = static_cast<const QuantisedRow*>(t.a);
  for (int64_t p = 0; p < t.panels; ++p) {
    const uint8_t* w = static_cast<const uint8_t*>(t.b) + p * t.b_stride;
    for (int64_t b = 0; b < t.steps; ++b, w += kBlockBytes<kBits>) {
      const BF16* scales = reinterpret_cast<const BF16*>(scales_of<kBits>(w));
      for (int64_t i = 0; i < t.rows; ++i) {
        HWY_ALIGN int32_t sums[kPackPanel];
        add_block<kBits>(w, rows[i].r + b * kQuantisedBlock, rows[i].minus[b], sums);
        add_scaled(t.c + i * t.c_stride + p * kPanel, sums, rows[i].step[b], scales,
                   b > 0 || t.add);
      }
    }
  }
}

QuantisedTiles tiles() { return {tile<8>, tile<6>, tile<4>}; }
void (*rows_function())(const RowCopy&) { return copy_rows; }

}  // namespace HWY_NAMESPACE
}  // namespace moraine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {
HWY_EXPORT(tiles);
HWY_EXPORT(rows_function);

namespace {

// A way of computing these products, by instruction.
struct Way {
  QuantisedTiles tiles;
  double step_cost;  // as in linear_engine.h, of 32 rows
  int64_t
      ahead_rows;  // as there. Fewer rows are as fast as memory, and what is asked for is in their way
  int64_t row_run = 1;
  int64_t turn_steps = 0;
  int64_t right_bytes = 512 << 10, cache_bytes = 4 << 20;  // as there
};

Way fastest_way() {
  const Isa best = isa();
  if (best == Isa::kAmx && amx_has_int8())
    return {.tiles = quantised_amx_tiles(),
            .step_cost = 96,
            .ahead_rows = 0,
            .row_run = kQuantisedRows,
            .right_bytes = 1 << 20,
            .cache_bytes = 0};
  if (best >= Isa::kAvx512 && machine_has_vnni()) return {vnni_tiles(), 1024, 5, 1, 1};
  if (best >= Isa::kAvx2 && avx2_tiles().q8 != nullptr) return {avx2_tiles(), 2048, 0};
  return {HWY_DYNAMIC_DISPATCH(tiles)(), 16384, 0};
}

}  // namespace

LinearEngine quantised_engine(WeightFormat format) {
  const Way way = fastest_way();
  LinearEngine e = f32_engine(DType::kBF16);  // finishes sums into f32 and bf16
  e.tile_rows = kQuantisedRows;
  e.row_run = way.row_run;
  e.ahead_rows = way.ahead_rows;
  e.ahead_streams = Ahead::kStreams;
  e.right_bytes = way.right_bytes;
  e.cache_bytes = way.cache_bytes;
  e.turn_steps = way.turn_steps;
  e.parts = {};
  e.sum_block = kQuantisedSum;
  e.row_step = kQuantisedBlock;
  e.step_bytes = quantised_block_bytes(format);
  e.step_cost = way.step_cost;
  const QuantisedRows fast = isa() >= Isa::kAvx512 ? avx512_quantised_rows() : nullptr;
  e.copy_rows = fast != nullptr ? fast : HWY_DYNAMIC_DISPATCH(rows_function)();
  e.row_tile = way.tiles.of(integer_bits(format));
  e.copy_right = e.copy_left = nullptr;  // weights that are integers have no gradient
  e.column_tile = nullptr;
  return e;
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
