// The rules in integers: significands as whole numbers, exponents apart, shifts that floor or truncate as a rule says.
#include "kernels/gpu/matrix_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace moraine::gpu {
namespace {

// A float as significand * 2^(exponent - fraction bits); a subnormal has the smallest normal exponent, and so has 0.
struct Parts {
  int64_t significand;  // with its sign
  int exponent;
};

Parts parts_of(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const int field = static_cast<int>(bits >> 23 & 0xff);
  const int64_t fraction = bits & 0x7fffff, whole = field == 0 ? fraction : fraction | 0x800000;
  return {bits >> 31 ? -whole : whole, field == 0 ? -126 : field - 127};
}

// v * 2^by, towards 0 or down.
int64_t truncated(int64_t v, int by) {
  if (by >= 0) return v << by;
  return by <= -63 ? 0 : v < 0 ? -(-v >> -by) : v >> -by;
}
int64_t floored(int64_t v, int by) { return by >= 0 ? v << by : v >> std::min(-by, 63); }

// To f32, towards 0.
float truncated_float(double v) {
  const float f = static_cast<float>(v);
  if (!(std::fabs(v) < 0x1p128)) return f;
  return std::fabs(static_cast<double>(f)) > std::fabs(v) ? std::nextafterf(f, 0.0f) : f;
}

// Products of bf16 have 14 fraction bits.
constexpr int kProductBits = 14, kFloatBits = 23;

// v * 2^by, of a v that is exact in double; 2^by is normal.
double scaled(int64_t v, int by) {
  return static_cast<double>(v) * std::bit_cast<double>(static_cast<uint64_t>(by + 1023) << 52);
}

// What a sum that is not finite is; `c` joined.
double wide_sum(const BF16* a, const BF16* b, int count, float c) {
  double sum = 0;
  for (int k = 0; k < count; ++k) {
    sum += static_cast<double>(to_float(a[k])) * static_cast<double>(to_float(b[k]));
  }
  return sum + static_cast<double>(c);
}

bool finite(BF16 v) { return (v.bits & 0x7f80) != 0x7f80; }

// The products of two rows: significand * 2^(exponent - 14).
struct Products {
  Products(const BF16* a, const BF16* b, int count) : count(count) {
    for (int k = 0; k < count; ++k) {
      const Parts x = parts_of(to_float(a[k])), y = parts_of(to_float(b[k]));
      significand[k] = (x.significand >> 16) * (y.significand >> 16);
      exponent[k] = x.exponent + y.exponent;
      finite &= gpu::finite(a[k]) && gpu::finite(b[k]);
      largest = std::max(largest, exponent[k]);
    }
  }
  int count;
  bool finite = true;  // the factors are
  int largest = -1000;
  int64_t significand[kMatrixDepth];
  int exponent[kMatrixDepth];
};

// All aligned to `exponent`, truncated at `bits` behind the point, added exactly: times 2^(exponent - bits).
int64_t aligned_sum(const Products& p, int bits, int exponent) {
  int64_t sum = 0;
  for (int k = 0; k < p.count; ++k) {
    sum += truncated(p.significand[k], bits - kProductBits + p.exponent[k] - exponent);
  }
  return sum;
}

float nvidia_dot(const BF16* a, const BF16* b, int count, int bits, float c) {
  const Products p(a, b, count);
  if (!p.finite || !std::isfinite(c)) {
    const double wide = wide_sum(a, b, count, c);
    if (std::isnan(wide)) return std::bit_cast<float>(0x7fffffffu);
    return static_cast<float>(wide);
  }
  const Parts join = parts_of(c);
  const int exponent = std::max(p.largest, join.exponent);
  const int64_t sum = aligned_sum(p, bits, exponent) +
                      truncated(join.significand, bits - kFloatBits + join.exponent - exponent);
  return truncated_float(scaled(sum, exponent - bits));
}

float cdna3_dot(const BF16* a, const BF16* b, int count, float c) {
  const Products p(a, b, count);
  if (!p.finite || !std::isfinite(c)) return static_cast<float>(wide_sum(a, b, count, c));
  bool above = false, below = false;  // a product that f32 does not hold
  for (int k = 0; k < count && p.largest >= 127; ++k) {
    const double wide = scaled(p.significand[k], p.exponent[k] - kProductBits);
    above |= wide >= 0x1p128;
    below |= wide <= -0x1p128;
  }
  if (above || below) return above && below ? NAN : above ? INFINITY : -INFINITY;
  constexpr int kBits = 24, kJoinBits = 31;
  const Parts join = parts_of(c);
  const int exponent = std::max(p.largest, join.exponent);
  const int64_t products =
      floored(aligned_sum(p, kBits, p.largest), kJoinBits - kBits + p.largest - exponent);
  const int64_t joined = floored(join.significand, kBits - kFloatBits + join.exponent - exponent);
  const int64_t sum = products + joined * (int64_t{1} << (kJoinBits - kBits));
  return static_cast<float>(scaled(sum, exponent - kJoinBits));
}

// Whether a product with another such is exact in f32: 0, or not beyond 2^60 either way.
bool moderate(BF16 v) {
  const int field = v.bits >> 7 & 0xff;
  return (field > 127 - 60 && field < 127 + 60) || (v.bits & 0x7fff) == 0;
}

float plain_dot(const BF16* a, const BF16* b, float c) {
  bool exact = true;
  for (int k = 0; k < kMatrixDepth; ++k) exact &= moderate(a[k]) && moderate(b[k]);
  for (int k = 0; k < kMatrixDepth; ++k) {
    const float x = to_float(a[k]), y = to_float(b[k]);
    c = exact ? x * y + c : std::fma(x, y, c);
  }
  return c;
}

float flushed(float v) { return std::fabs(v) < 0x1p-126f ? v * 0.0f : v; }
float flushed_input(float v) { return std::fabs(v) < 0x1p-126f ? 0.0f : v; }

// A product of bf16 is exact in f32 but for those that are flushed.
float cdna2_dot(const BF16* a, const BF16* b, float c) {
  float p[4];
  for (int k = 0; k < 4; ++k) {
    p[k] = flushed(flushed_input(to_float(a[k])) * flushed_input(to_float(b[k])) + 0.0f);
  }
  return flushed(c + flushed(flushed(p[0] + p[1]) + flushed(p[2] + p[3])));
}

}  // namespace

const char* matrix_rule_name(MatrixRule rule) {
  constexpr const char* kNames[] = {"plain", "cdna2", "cdna3", "sm_80", "sm_90"};
  return kNames[static_cast<int>(rule)];
}

float matrix_dot(MatrixRule rule, const BF16* a, const BF16* b, float c) {
  switch (rule) {
    case MatrixRule::kPlain:
      return plain_dot(a, b, c);
    case MatrixRule::kCdna2:
      c = flushed_input(c);
      for (int k = 0; k < kMatrixDepth; k += 4) c = cdna2_dot(a + k, b + k, c);
      return c;
    case MatrixRule::kCdna3:
      return cdna3_dot(a + 8, b + 8, 8, cdna3_dot(a, b, 8, c));
    case MatrixRule::kSm80:
      return nvidia_dot(a + 8, b + 8, 8, 24, nvidia_dot(a, b, 8, 24, c));
    case MatrixRule::kSm90:
      return nvidia_dot(a, b, kMatrixDepth, 25, c);
  }
  MR_CHECK(false, "rule %d", static_cast<int>(rule));
  return 0;
}

}  // namespace moraine::gpu
