// Register-only tile products on x86 with AMX: bf16 pairs, int8 quadruples.
#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/peak_loops.h"

#if defined(__x86_64__)

namespace moraine::cpu {
namespace {

constexpr int kTileChains = 4;  // tiles of sums: as many as the products have

TileShapes full_tiles() {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kAmxRows, kAmxWords);
  return shapes;
}

void run_bf16_tiles(int64_t iterations) {
  AmxTiles tiles(full_tiles());
  tiles.zero<4>();
  tiles.zero<6>();
  for (int64_t i = 0; i < iterations; ++i) {
    tiles.dot<0, 4, 6>();
    tiles.dot<1, 4, 6>();
    tiles.dot<2, 4, 6>();
    tiles.dot<3, 4, 6>();
  }
}

void run_int8_tiles(int64_t iterations) {
  AmxTiles tiles(full_tiles());
  for (int64_t i = 0; i < iterations; ++i) {
    asm volatile(
        "tdpbssd %tmm6, %tmm4, %tmm0\n\t"
        "tdpbssd %tmm6, %tmm4, %tmm1\n\t"
        "tdpbssd %tmm6, %tmm4, %tmm2\n\t"
        "tdpbssd %tmm6, %tmm4, %tmm3");
  }
}

constexpr double kPairs = kAmxRows * kAmxWords * kAmxWords * 2.0;  // multiply-adds of a bf16 dot

}  // namespace

PeakLoop amx_bf16_loop() { return {run_bf16_tiles, 2 * kTileChains * kPairs}; }
PeakLoop amx_int8_loop() { return {run_int8_tiles, 2 * kTileChains * 2 * kPairs}; }

}  // namespace moraine::cpu

#else

namespace moraine::cpu {
PeakLoop amx_bf16_loop() { return {}; }
PeakLoop amx_int8_loop() { return {}; }
}  // namespace moraine::cpu

#endif
