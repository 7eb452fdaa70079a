// Fails if a tile instruction and its emulation differ in a bit, or the emulation is not what its
// header says.
#include "kernels/cpu/amx_tiles.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernels/isa.h"
#include "testing/emulated_tiles.h"

namespace moraine {
namespace {

using cpu::kAmxRows;
using cpu::kAmxWords;
using testing::emulated_add;
using testing::emulated_fma;
using testing::EmulatedTiles;

constexpr float kTiny = std::numeric_limits<float>::min();  // 2^-126, the smallest normal number

TEST(EmulatedTiles, FlushAfterRounding) {
  EXPECT_EQ(emulated_fma(kTiny, 0.5f, 0), 0);
  EXPECT_TRUE(std::signbit(emulated_fma(-kTiny, 0.5f, 0)));
  EXPECT_EQ(emulated_add(kTiny, -kTiny), 0);
  EXPECT_EQ(emulated_add(kTiny, 0), kTiny);
  // Rounded to 24 bits, (1 - 2^-27) 2^-126 is the smallest normal number and (1 - 2^-24) 2^-126 is not.
  EXPECT_EQ(emulated_fma(-0x1p-76f, 0x1p-77f, kTiny), kTiny);
  EXPECT_EQ(emulated_fma(std::nextafter(1.0f, 0.0f), kTiny, 0), 0);
  EXPECT_EQ(emulated_fma(0x1.fffffep0f, kTiny, -kTiny), 0);  // exact: (1 - 2^-23) 2^-126
  EXPECT_TRUE(std::isnan(emulated_fma(INFINITY, 0, 1)));
  EXPECT_EQ(emulated_fma(INFINITY, 1, 1), INFINITY);
}

// One dot of a x b onto c, with tiles of `rows` x 16 and 16 x 16 words.
struct Operands {
  alignas(64) uint32_t a[kAmxRows][kAmxWords], b[kAmxWords][kAmxWords], c[kAmxRows][kAmxWords];
};

template <class Tiles>
void run_dot(const Operands& in, int64_t rows, int64_t words,
             uint32_t (&out)[kAmxRows][kAmxWords]) {
  cpu::TileShapes shapes;
  shapes.set(0, rows, kAmxWords).set(4, rows, words).set(6, words, kAmxWords);
  Tiles tiles(shapes);
  tiles.template load<0>(in.c, 64);
  tiles.template load<4>(in.a, 64);
  tiles.template load<6>(in.b, 64);
  tiles.template dot<0, 4, 6>();
  std::memset(out, 0, sizeof out);
  tiles.template store<0>(out, 64);
}

enum class Numbers { kGauss, kWide, kTiny, kDenormal, kSpecial, kBits, kLarge, kCount };

uint16_t bf16_bits(float v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16); }

float number(Numbers kind, uint64_t seed, uint64_t index) {
  const double g = random_normal(seed, Stream::kTest, 1, index);
  const auto below = [&](uint64_t n) { return random_below(n, seed, Stream::kTest, 2, index); };
  switch (kind) {
    case Numbers::kGauss:
      return static_cast<float>(g);
    case Numbers::kWide:
      return static_cast<float>(std::ldexp(g, static_cast<int>(below(120)) - 60));
    case Numbers::kTiny:  // products next to 2^-126
      return static_cast<float>(std::ldexp(g, -63 + static_cast<int>(below(3))));
    case Numbers::kDenormal:
      return static_cast<float>(std::ldexp(g, below(2) == 0 ? -128 : -2));
    case Numbers::kSpecial: {
      constexpr float kSpecials[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1.0f};
      return below(8) < 6 ? static_cast<float>(g) : kSpecials[below(6)];
    }
    case Numbers::kBits:
      return std::bit_cast<float>(
          static_cast<uint32_t>(random_bits(seed, Stream::kTest, 3, index)));
    default:
      return static_cast<float>(std::ldexp(g, 64));
  }
}

Operands operands(Numbers kind, uint64_t seed) {
  Operands o;
  uint64_t index = 0;
  for (auto* m : {&o.a, &o.b}) {
    for (auto& row : *m) {
      for (uint32_t& word : row) {
        const uint32_t low = bf16_bits(number(kind, seed, index)),
                       high = bf16_bits(number(kind, seed, index + 1));
        word = low | high << 16;
        index += 2;
      }
    }
  }
  const float gain = kind == Numbers::kTiny ? 0x1p-62f : 1;
  for (auto& row : o.c) {
    for (uint32_t& word : row) {
      word = std::bit_cast<uint32_t>(number(kind, seed, index++) * gain);
    }
  }
  return o;
}

// The order of the header, once more and without tiles.
float in_order(const Operands& o, int64_t i, int64_t j, int64_t words) {
  float even = 0, odd = 0;
  for (int64_t p = 0; p < words; ++p) {
    const uint32_t x = o.a[i][p], y = o.b[p][j];
    even = std::fma(std::bit_cast<float>(x << 16), std::bit_cast<float>(y << 16), even);
    odd =
        std::fma(std::bit_cast<float>(x & 0xffff0000u), std::bit_cast<float>(y & 0xffff0000u), odd);
  }
  return std::bit_cast<float>(o.c[i][j]) + (even + odd);
}

TEST(EmulatedTiles, SumsInTheOrderOfTheHeader) {
  for (const int64_t words : {1, 8, 15, 16}) {
    const Operands o = operands(Numbers::kGauss, 7);
    uint32_t got[kAmxRows][kAmxWords];
    run_dot<EmulatedTiles>(o, 16, words, got);
    for (int64_t i = 0; i < kAmxRows; ++i) {
      for (int64_t j = 0; j < kAmxWords; ++j) {
        EXPECT_EQ(std::bit_cast<float>(got[i][j]), in_order(o, i, j, words)) << i << " " << j;
      }
    }
  }
}

#if defined(__x86_64__)
TEST(AmxTiles, EqualTheirEmulation) {
  if (supported_isas().back() != Isa::kAmx) GTEST_SKIP() << "this machine has no AMX";
  constexpr int64_t kRows[] = {16, 1, 7, 16}, kWords[] = {16, 16, 5, 8};
  for (int kind = 0; kind < static_cast<int>(Numbers::kCount); ++kind) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Operands o = operands(static_cast<Numbers>(kind), seed);
      const int64_t rows = kRows[seed % 4], words = kWords[seed % 4];
      uint32_t got[kAmxRows][kAmxWords], want[kAmxRows][kAmxWords];
      run_dot<cpu::AmxTiles>(o, rows, words, got);
      run_dot<EmulatedTiles>(o, rows, words, want);
      for (int64_t i = 0; i < kAmxRows; ++i) {
        for (int64_t j = 0; j < kAmxWords; ++j) {
          const bool nan = std::isnan(std::bit_cast<float>(want[i][j]));
          EXPECT_TRUE(nan ? std::isnan(std::bit_cast<float>(got[i][j])) : got[i][j] == want[i][j])
              << "numbers " << kind << " seed " << seed << " at " << i << ", " << j << ": "
              << std::bit_cast<float>(got[i][j]) << " " << std::bit_cast<float>(want[i][j]);
        }
      }
    }
  }
}
#endif

}  // namespace
}  // namespace moraine
