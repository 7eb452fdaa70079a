// EmulatedTiles: the tile registers of cpu::AmxTiles in scalar code, bit for bit, on every machine.
//
// The same members, so that a product written over tiles runs on either. Loads take what is in memory
// at the time; a row beyond a tile's configured ones is neither read nor written.
//
//   F(x, y, z) = flush(fma(x, y, z)) ;  S(x, y) = flush(x + y)
//   flush      : zero with the sign where the result, rounded to 24 bits with an unbounded exponent,
//                is smaller than 2^-126: tininess is judged after rounding
//   NaN        : stays NaN; its payload is not the instruction's
//
// Cost:     about 50 us for a full dot.
// Source:   ../shared/reference/amx.md section 3: compared with the instruction on 819,200 elements;
//           amx_tiles_test.cc compares again where there is one.
#pragma once

#include <cstdint>

#include "kernels/cpu/amx_tiles.h"

namespace moraine::testing {

float emulated_fma(float x, float y, float z);  // F; inputs are not flushed
float emulated_add(float x, float y);           // S

class EmulatedTiles {
 public:
  explicit EmulatedTiles(const cpu::TileShapes& shapes) : shapes_(shapes) {}
  EmulatedTiles(const EmulatedTiles&) = delete;
  EmulatedTiles& operator=(const EmulatedTiles&) = delete;

  template <int kTile>
  void zero() {
    zero(kTile);
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    load(kTile, from, stride);
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    store(kTile, to, stride);
  }
  template <int kC, int kA, int kB>
  void dot() {
    dot(kC, kA, kB);
  }

 private:
  void zero(int tile);
  void load(int tile, const void* from, int64_t stride);
  void store(int tile, void* to, int64_t stride) const;
  void dot(int c, int a, int b);

  cpu::TileShapes shapes_;
  uint32_t words_[8][cpu::kAmxRows][cpu::kAmxWords] = {};
};

}  // namespace moraine::testing
