// One dot in scalar code: two chains of fused multiply-adds, flushed after each.
#include "testing/emulated_tiles.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace moraine::testing {
namespace {

constexpr float kSmallest = 0x1p-126f;  // normal

// `exact` is the result before rounding to f32; needed only next to the smallest normal number.
template <class Exact>
float flush(float rounded, const Exact& exact) {
  if (!(std::fabs(rounded) <= kSmallest)) return rounded;
  const double wide = exact();
  return std::fabs(wide) < 0x1p-126 * (1 - 0x1p-25) ? std::copysign(0.0f, static_cast<float>(wide))
                                                    : rounded;
}

float without_denormal(float x) { return std::fabs(x) < kSmallest ? std::copysign(0.0f, x) : x; }

float lower(uint32_t word) { return without_denormal(std::bit_cast<float>(word << 16)); }
float upper(uint32_t word) { return without_denormal(std::bit_cast<float>(word & 0xffff0000u)); }

}  // namespace

float emulated_fma(float x, float y, float z) {
  return flush(std::fma(x, y, z), [&] { return std::fma(double{x}, double{y}, double{z}); });
}

float emulated_add(float x, float y) {
  return flush(x + y, [&] { return double{x} + double{y}; });
}

void EmulatedTiles::zero(int tile) { std::memset(words_[tile], 0, sizeof words_[tile]); }

void EmulatedTiles::load(int tile, const void* from, int64_t stride) {
  zero(tile);
  for (int64_t r = 0; r < shapes_.rows[tile]; ++r) {
    std::memcpy(words_[tile][r], static_cast<const uint8_t*>(from) + r * stride,
                shapes_.row_bytes[tile]);
  }
}

void EmulatedTiles::store(int tile, void* to, int64_t stride) const {
  for (int64_t r = 0; r < shapes_.rows[tile]; ++r) {
    std::memcpy(static_cast<uint8_t*>(to) + r * stride, words_[tile][r], shapes_.row_bytes[tile]);
  }
}

void EmulatedTiles::dot(int c, int a, int b) {
  const int64_t steps = shapes_.row_bytes[a] / 4, columns = shapes_.row_bytes[c] / 4;
  MR_CHECK(shapes_.rows[a] == shapes_.rows[c] && shapes_.rows[b] == steps &&
           shapes_.row_bytes[b] == shapes_.row_bytes[c] && steps > 0 && columns > 0);
  for (int64_t i = 0; i < shapes_.rows[c]; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float even = 0, odd = 0;
      for (int64_t p = 0; p < steps; ++p) {
        const uint32_t x = words_[a][i][p], y = words_[b][p][j];
        even = emulated_fma(lower(x), lower(y), even);
        odd = emulated_fma(upper(x), upper(y), odd);
      }
      const float before = without_denormal(std::bit_cast<float>(words_[c][i][j]));
      words_[c][i][j] = std::bit_cast<uint32_t>(emulated_add(before, emulated_add(even, odd)));
    }
  }
}

}  // namespace moraine::testing
