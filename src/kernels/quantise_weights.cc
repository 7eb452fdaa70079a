// Weights to integers: a block of one column at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ceil_div.h"
#include "kernels/cpu/rounding.h"
#include "kernels/quantised.h"

namespace moraine {
namespace {

constexpr int64_t kBlock = kQuantisedBlock;

// The least bf16 number from `value` on; value > 0.
float bf16_from(float value) {
  BF16 rounded = to_bf16(value);
  if (to_float(rounded) < value) ++rounded.bits;
  return to_float(rounded);
}

// The weight of largest size, or a NaN; the first one of several.
float largest_of(const WeightBlock& c) {
  float largest = 0;
  for (const float w : c.w) {
    if (!std::isfinite(w)) return std::numeric_limits<float>::quiet_NaN();
    if (std::abs(w) > std::abs(largest)) largest = w;
  }
  return largest;
}

template <int kBits>
void put_scale(float scale, int64_t j, uint8_t* block) {
  const BF16 stored = to_bf16(scale);
  std::memcpy(block + kBlock * kPackPanel * kBits / 8 + 2 * j, &stored, sizeof stored);
}

// Input i of column j, for ascending i: the first of a byte takes it, others join. 0 <= stored < 2^kBits.
template <int kBits>
void put_integer(int stored, int64_t i, int64_t j, uint8_t* block) {
  uint8_t* run = block + i / kQuantisedRun * kRunBytes<kBits>;
  const int64_t four = i % kQuantisedRun / 4, at = 4 * j + i % 4;
  uint8_t& low = run[row_of_four<kBits>(four) * kRowBytes + at];
  low = static_cast<uint8_t>(four < 8 ? stored & 15 : low | (stored & 15) << 4);
  if constexpr (kBits == 4) return;
  uint8_t& high = run[row_of_high_bits(four) * kRowBytes + at];
  const int bits = stored >> 4 << 2 * (four / 4);
  high = static_cast<uint8_t>(four < 4 ? bits : high | bits);
}

// Of 6 or 4 bits, column j of a panel.
template <int kBits>
void put_few_bits(const float (&w)[kBlock], float scale, int64_t j, uint8_t* block) {
  put_scale<kBits>(scale, j, block);
  const bool counts = std::isfinite(scale) && scale != 0;  // no: nothing that counts, or NaN
  for (int64_t i = 0; i < kBlock; ++i) {
    const float q = nearest_integer<kBits>(w[i] * (1 / scale));
    put_integer<kBits>((counts ? static_cast<int>(q) : 0) + kWeightOffset<kBits>, i, j, block);
  }
}

// Sizes of numbers are ordered as their bits; those of an infinity or a NaN are above all others.
float largest_size_of(const float (&w)[kBlock]) {
  constexpr int32_t kSize = 0x7fffffff, kInfinity = 0x7f800000;
  int32_t bits[kBlock], most = 0;
  std::memcpy(bits, w, sizeof bits);
  for (const int32_t b : bits) most = std::max(most, b & kSize);
  if (most >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  float size;
  std::memcpy(&size, &most, sizeof size);
  return size;
}

void put_q8(const float (&w)[kBlock], int64_t j, uint8_t* block) {
  const float largest = largest_size_of(w);
  float scale = std::isnan(largest) ? largest : 0;
  if (largest >= kLeastBlock) scale = bf16_from(largest / 127);
  put_scale<8>(scale, j, block);
  const float inverse = largest >= kLeastBlock ? 1 / scale : 0;
  uint8_t bytes[kBlock];
  for (int64_t i = 0; i < kBlock; ++i) {
    const float value = inverse == 0 ? 0 : w[i] * inverse;  // 0, not NaN, where the scale is NaN
    bytes[i] = static_cast<uint8_t>(
        static_cast<int>(round_to_even(std::min(std::max(value, -127.0f), 127.0f))) + 128);
  }
  for (int64_t i = 0; i < kBlock; i += 4) std::memcpy(block + i * kPackPanel + 4 * j, bytes + i, 4);
}

// The power of two that brings a positive number near 1: from 2^-23 to below 4.
float near_one(float value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0f, -std::clamp(exponent, -126, 126));
}

// Row n of a group, block `at` of it; zeros behind the last row.
WeightBlock block_of(const PackMatrix& a, int64_t group, int64_t n, int64_t at) {
  const PackedMatrix& p = a.packed;
  const int64_t k = at * kBlock, here = std::min(kBlock, p.k - k);
  WeightBlock b;
  std::fill_n(b.w, kBlock, 0.0f);
  if (n < p.n) std::copy_n(a.w.as<float>() + (group * p.n + n) * p.k + k, here, b.w);
  std::fill_n(b.importance, kBlock, 1.0f);
  return b;
}

}  // namespace

float choose_scale(WeightFormat format, const WeightBlock& block) {
  const float largest = largest_of(block);
  if (std::isnan(largest)) return largest;
  if (std::abs(largest) < kLeastBlock) return 0;
  // Sums of squares do not overflow, nor vanish but for importances 2^-75 below the largest: powers of two change no
  // bit of what is left.
  const float most = *std::max_element(block.importance, block.importance + kBlock);
  const float less = near_one(std::abs(largest)), of_importance = most > 0 ? near_one(most) : 1;
  WeightBlock b;
  for (int64_t i = 0; i < kBlock; ++i) {
    b.w[i] = block.w[i] * less;
    b.importance[i] = block.importance[i] * of_importance;
  }
  return cpu::best_scale(b, largest * less, 1 << (integer_bits(format) - 1)) / less;
}

void quantise_panel(const PackMatrix& a, int64_t group, int64_t panel) {
  const PackedMatrix& p = a.packed;
  const int64_t panels = ceil_div(p.n, kPackPanel), blocks = ceil_div(p.k, kBlock);
  uint8_t* block = static_cast<uint8_t*>(p.data) +
                   (group * panels + panel) * quantised_bytes(p.format, 1, 1, p.k);
  for (int64_t at = 0; at < blocks; ++at, block += quantised_block_bytes(p.format)) {
    for (int64_t j = 0; j < kPackPanel; ++j) {
      const int64_t n = panel * kPackPanel + j;
      const WeightBlock b = block_of(a, group, n, at);
      if (p.format == WeightFormat::kQ8) {
        put_q8(b.w, j, block);
        continue;
      }
      const bool given = !a.scales.empty() && n < p.n;
      const float scale =
          given ? a.scales.as<float>()[(group * p.n + n) * blocks + at] : choose_scale(p.format, b);
      p.format == WeightFormat::kQ6 ? put_few_bits<6>(b.w, scale, j, block)
                                    : put_few_bits<4>(b.w, scale, j, block);
    }
  }
}

}  // namespace moraine
