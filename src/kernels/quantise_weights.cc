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

// A block of a column: 64 weights, zeros behind the end of the row, and how much each counts.
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
Fit fit_q4(const Column& c, float inverse) {
  float wq[kLanes] = {}, qq[kLanes] = {};
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float w = c.w[i + lane];
      const float q = nearest_within(w * inverse, -8, 7);
      const float weighted = c.importance[i + lane] * q;
      wq[lane] += weighted * w;
      qq[lane] += weighted * q;
    }
  }
  return {added(wq), added(qq)};
}

// The scale of least weighted error among candidates around the one that gives the largest weight -8.
float choose_q4_scale(const Column& c, float largest) {
  float best = 0, best_gain = -1;
  for (int candidate = -9; candidate <= 9; ++candidate) {
    const float inverse = -(8 + 0.1f * static_cast<float>(candidate)) / largest;
    const Fit fit = fit_q4(c, inverse);
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

void put_scale(float scale, WeightFormat format, int64_t j, uint8_t* block) {
  const BF16 stored = to_bf16(scale);
  std::memcpy(block + quantised_block_bytes(format) - 2 * (kPackPanel - j), &stored, sizeof stored);
}

void put_q4(const Column& c, int64_t j, uint8_t* block) {
  constexpr int64_t kHalf = kPackPanel * kBlock / 2;
  const float largest = largest_of(c);
  float scale = std::isnan(largest) ? largest : 0;
  if (std::abs(largest) >= kLeast) scale = choose_q4_scale(c, largest);
  put_scale(scale, WeightFormat::kQ4, j, block);
  const bool counts = std::abs(scale) > 0;  // no: nothing that counts, or NaN
  for (int64_t i = 0; i < kBlock; ++i) {
    const int q = counts ? static_cast<int>(nearest_within(c.w[i] * (1 / scale), -8, 7)) : 0;
    const int64_t at = i / 4 * 4 * kPackPanel + 4 * j + i % 4;
    if (at < kHalf) {
      block[at] = static_cast<uint8_t>(q + 8);
    } else {
      block[at - kHalf] = static_cast<uint8_t>(block[at - kHalf] | (q + 8) << 4);
    }
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
  put_scale(scale, WeightFormat::kQ8, j, block);
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
      put_q4(column, j, block);
    }
  }
}

}  // namespace moraine
