// Weights to integers: a block of one column at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/quantised.h"
#include "kernels/round_to_even.h"

namespace moraine {
namespace {

constexpr int64_t kBlock = kQuantisedBlock;
constexpr float kLeast = 0x1p-100f;  // blocks that are smaller count as zero
constexpr int kLanes = 16;  // sums are kept apart by lane: the same bits however they are compiled

// A block of a column: its weights, zeros behind the end of the row, and how much each counts.
struct Column {
  float w[kBlock], importance[kBlock];
};

float nearest_within(float value, float least, float most) {
  return round_to_even(std::min(std::max(value, least), most));
}

float added(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// The least bf16 number from `value` on; value > 0.
float bf16_from(float value) {
  BF16 rounded = to_bf16(value);
  if (to_float(rounded) < value) ++rounded.bits;
  return to_float(rounded);
}

// Sums of importance * w * q and importance * q * q for q = round_to_even(w * inverse).
struct Fit {
  float wq, qq;
};
template <int kBits>
Fit fit_of(const Column& c, float inverse) {
  float wq[kLanes] = {}, qq[kLanes] = {};
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float w = c.w[i + lane];
      const float q = nearest_within(w * inverse, -kWeightOffset<kBits>, kWeightOffset<kBits> - 1);
      const float weighted = c.importance[i + lane] * q;
      wq[lane] += weighted * w;
      qq[lane] += weighted * q;
    }
  }
  return {added(wq), added(qq)};
}

// The scale of least weighted error among candidates around the one that gives the largest weight the least integer.
template <int kBits>
float choose_scale(const Column& c, float largest) {
  float best = 0, best_gain = -1;
  for (int candidate = -9; candidate <= 9; ++candidate) {
    const float inverse = -(kWeightOffset<kBits> + 0.1f * static_cast<float>(candidate)) / largest;
    const Fit fit = fit_of<kBits>(c, inverse);
    // With the best scale for these integers, wq / qq, squares of errors are less by wq^2 / qq.
    if (!(fit.qq > 0) || fit.wq * fit.wq <= best_gain * fit.qq) continue;
    best = fit.wq / fit.qq;
    best_gain = fit.wq * fit.wq / fit.qq;
  }
  return to_float(to_bf16(best));
}

// The weight of largest size, or a NaN; the first one of several.
float largest_of(const Column& c) {
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

// Of 6 or 4 bits.
template <int kBits>
void put_few_bits(const Column& c, int64_t j, uint8_t* block) {
  const float largest = largest_of(c);
  float scale = std::isnan(largest) ? largest : 0;
  if (std::abs(largest) >= kLeast) scale = choose_scale<kBits>(c, largest);
  put_scale<kBits>(scale, j, block);
  const bool counts = std::abs(scale) > 0;  // no: nothing that counts, or NaN
  for (int64_t i = 0; i < kBlock; ++i) {
    const float q =
        nearest_within(c.w[i] * (1 / scale), -kWeightOffset<kBits>, kWeightOffset<kBits> - 1);
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
  if (largest >= kLeast) scale = bf16_from(largest / 127);
  put_scale<8>(scale, j, block);
  const float inverse = largest >= kLeast ? 1 / scale : 0;
  uint8_t bytes[kBlock];
  for (int64_t i = 0; i < kBlock; ++i) {
    const float value = inverse == 0 ? 0 : w[i] * inverse;  // 0, not NaN, where the scale is NaN
    bytes[i] = static_cast<uint8_t>(static_cast<int>(nearest_within(value, -127, 127)) + 128);
  }
  for (int64_t i = 0; i < kBlock; i += 4) std::memcpy(block + i * kPackPanel + 4 * j, bytes + i, 4);
}

}  // namespace

void quantise_panel(const PackMatrix& a, int64_t group, int64_t panel) {
  const PackedMatrix& p = a.packed;
  const int64_t panels = (p.n + kPackPanel - 1) / kPackPanel;
  uint8_t* block = static_cast<uint8_t*>(p.data) +
                   (group * panels + panel) * quantised_bytes(p.format, 1, 1, p.k);
  for (int64_t k = 0; k < p.k; k += kBlock, block += quantised_block_bytes(p.format)) {
    const int64_t here = std::min(kBlock, p.k - k);
    for (int64_t j = 0; j < kPackPanel; ++j) {
      Column column;
      std::fill_n(column.w, kBlock, 0.0f);
      const int64_t n = panel * kPackPanel + j;
      if (n < p.n) std::copy_n(a.w.as<float>() + (group * p.n + n) * p.k + k, here, column.w);
      if (p.format == WeightFormat::kQ8) {
        put_q8(column.w, j, block);
        continue;
      }
      std::fill_n(column.importance, kBlock, a.importance.empty() ? 1.0f : 0.0f);
      if (!a.importance.empty())
        std::copy_n(a.importance.as<float>() + group * p.k + k, here, column.importance);
      p.format == WeightFormat::kQ6 ? put_few_bits<6>(column, j, block)
                                    : put_few_bits<4>(column, j, block);
    }
  }
}

}  // namespace moraine
