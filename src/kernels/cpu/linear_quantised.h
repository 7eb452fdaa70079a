// Engines of products with quantised packs (kernels/quantised.h): rows as integers, tiles of sums.
//
// A step of their tiles is a block of 128 inputs. The sums of integers are exact, so an engine is free to choose
// whichever tile function is fastest for a number of rows: all give the same bits.
#pragma once

#include "kernels/cpu/linear_engine.h"
#include "kernels/quantised.h"

namespace moraine::cpu {

constexpr int64_t kQuantisedSum = 1024;  // elements of a row in a panel
constexpr int64_t kQuantisedBlocks = kQuantisedSum / kQuantisedBlock;
constexpr int64_t kQuantisedRows = 32;                      // of a tile
constexpr int64_t kRuns = kQuantisedBlock / kQuantisedRun;  // of a block

// A row of a row panel; the whole block that the sum ends in exists, zeros behind the end.
struct alignas(64) QuantisedRow {
  int8_t r[kQuantisedSum];
  float step[kQuantisedBlocks];
  int32_t minus
      [kQuantisedBlocks];  // -128 times the sum of a block's r: weights of 8 bits have that offset
};

// What the offset of weights of kBits adds, negative: `minus` of a row.
template <int kBits>
constexpr int32_t offset_sum(int32_t minus) {
  return minus >> (8 - kBits);  // exact: offsets are 128, 32 and 8
}

template <int kBits>
constexpr int64_t kBlockBytes = kRuns* kRunBytes<kBits> + 2 * kPackPanel;

// Behind a block's integers.
template <int kBits>
const uint8_t* scales_of(const uint8_t* block) {
  return block + kRuns * kRunBytes<kBits>;
}

// The row_tile of an engine.
struct QuantisedTiles {
  void (*q8)(const Tile&);
  void (*q6)(const Tile&);
  void (*q4)(const Tile&);

  auto of(int bits) const { return bits == 8 ? q8 : bits == 6 ? q6 : q4; }
};
QuantisedTiles avx2_tiles();  // linear_quantised_avx2.cc: from kAvx2 on; null on other machines
QuantisedTiles vnni_tiles();  // linear_quantised_vnni.cc: from kAvx512 on, if the machine has it
QuantisedTiles quantised_amx_tiles();  // linear_quantised_amx.cc: kAmx, with int8

// The copy_rows of an engine.
using QuantisedRows = void (*)(const RowCopy&);
QuantisedRows avx512_quantised_rows();  // linear_quantised_rows.cc: from kAvx512 on

LinearEngine quantised_engine(WeightFormat format);

}  // namespace moraine::cpu
