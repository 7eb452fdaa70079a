// Weights to integers: a block of one column at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/quantised.h"

namespace moraine {
namespace {

constexpr int64_t kBlock = kQuantisedBlock;
constexpr float kLeast = 0x1p-100f;  // blocks that are smaller count as zero
constexpr int kLanes = 16;  // sums are kept apart by lane: the same bits however they are compiled

// A block of a column: 64 weights, zeros behind the end of the row, and how much each counts.
struct Column {
  float w[kBlock], importance[kBlock];
};

// What becomes of it.
struct Integers {
  float scale;
  int q[kBlock];
};

// Of |value| < 2^22, to even on a tie: what is added leaves no bits for a fraction. No call, unlike nearbyintf
// where the machine is taken to have no instruction for it.
float nearest(float value) {
  constexpr float kShift = 0x1.8p23f;
  return (value + kShift) - kShift;
}
float nearest_within(float value, float least, float most) {
  return nearest(std::min(std::max(value, least), most));
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

// Sums of importance * w * q and importance * q * q for q = nearest(w * inverse).
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

Integers quantised(const Column& c, WeightFormat format) {
  Integers to = {};
  const float largest = largest_of(c);
  if (std::isnan(largest)) to.scale = largest;
  if (!(std::abs(largest) >= kLeast)) return to;
  const bool q8 = format == WeightFormat::kQ8;
  to.scale = q8 ? bf16_from(std::abs(largest) / 127) : choose_q4_scale(c, largest);
  if (to.scale == 0) return to;  // nothing that counts
  const float inverse = 1 / to.scale;
  for (int64_t i = 0; i < kBlock; ++i)
    to.q[i] = static_cast<int>(nearest_within(c.w[i] * inverse, q8 ? -127 : -8, q8 ? 127 : 7));
  return to;
}

void put(const Integers& from, WeightFormat format, int64_t j, uint8_t* block) {
  constexpr int64_t kHalf = kPackPanel * kBlock / 2;
  for (int64_t i = 0; i < kBlock; ++i) {
    const int64_t at = i / 4 * 4 * kPackPanel + 4 * j + i % 4;
    if (format == WeightFormat::kQ8) {
      block[at] = static_cast<uint8_t>(from.q[i] + 128);
    } else if (at < kHalf) {
      block[at] = static_cast<uint8_t>(from.q[i] + 8);
    } else {
      block[at - kHalf] = static_cast<uint8_t>(block[at - kHalf] | (from.q[i] + 8) << 4);
    }
  }
  const BF16 scale = to_bf16(from.scale);
  std::memcpy(block + quantised_block_bytes(format) - 2 * (kPackPanel - j), &scale, sizeof scale);
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
      Column column = {};
      const int64_t n = panel * kPackPanel + j;
      if (n < p.n) std::copy_n(a.w.as<float>() + (group * p.n + n) * p.k + k, here, column.w);
      if (a.importance.empty()) {
        std::fill_n(column.importance, here, 1.0f);
      } else {
        std::copy_n(a.importance.as<float>() + group * p.k + k, here, column.importance);
      }
      put(quantised(column, p.format), p.format, j, block);
    }
  }
}

}  // namespace moraine
