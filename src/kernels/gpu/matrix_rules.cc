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

Parts product_of(BF16 a, BF16 b) {
  const Parts x = parts_of(to_float(a)), y = parts_of(to_float(b));
  return {(x.significand >> 16) * (y.significand >> 16), x.exponent + y.exponent};
}

// What a sum that is not finite is; `c` joined.
double wide_sum(const BF16* a, const BF16* b, int count, float c) {
  double sum = 0;
  for (int k = 0; k < count; ++k) {
    sum += static_cast<double>(to_float(a[k])) * static_cast<double>(to_float(b[k]));
  }
  return sum + static_cast<double>(c);
}

struct FixedSum {
  int64_t sum;  // times 2^(exponent - fraction bits)
  int exponent;
};

// All aligned to the largest exponent, truncated there, added exactly.
FixedSum aligned_products(const BF16* a, const BF16* b, int count, int bits, int exponent) {
  FixedSum s = {0, exponent};
  for (int k = 0; k < count; ++k)
    s.exponent = std::max(s.exponent, product_of(a[k], b[k]).exponent);
  for (int k = 0; k < count; ++k) {
    const Parts p = product_of(a[k], b[k]);
    s.sum += truncated(p.significand, bits - kProductBits + p.exponent - s.exponent);
  }
  return s;
}

float nvidia_dot(const BF16* a, const BF16* b, int count, int bits, float c) {
  const double wide = wide_sum(a, b, count, c);
  if (std::isnan(wide)) return std::bit_cast<float>(0x7fffffffu);
  if (std::isinf(wide)) return static_cast<float>(wide);
  const Parts join = parts_of(c);
  FixedSum s = aligned_products(a, b, count, bits, join.exponent);
  s.sum += truncated(join.significand, bits - kFloatBits + join.exponent - s.exponent);
  return truncated_float(std::ldexp(static_cast<double>(s.sum), s.exponent - bits));
}

float cdna3_dot(const BF16* a, const BF16* b, int count, float c) {
  const double wide = wide_sum(a, b, count, c);
  if (std::isnan(wide) || std::isinf(wide)) return static_cast<float>(wide);
  bool above = false, below = false;  // a product that f32 does not hold
  for (int k = 0; k < count; ++k) {
    const double p = static_cast<double>(to_float(a[k])) * static_cast<double>(to_float(b[k]));
    above |= p >= 0x1p128;
    below |= p <= -0x1p128;
  }
  if (above || below) return above && below ? NAN : above ? INFINITY : -INFINITY;
  constexpr int kBits = 24, kJoinBits = 31;
  const FixedSum s = aligned_products(a, b, count, kBits, -1000);
  const Parts join = parts_of(c);
  const int exponent = std::max(s.exponent, join.exponent);
  const int64_t products = floored(s.sum, kJoinBits - kBits + s.exponent - exponent);
  const int64_t joined = floored(join.significand, kBits - kFloatBits + join.exponent - exponent);
  const int64_t sum = products + joined * (int64_t{1} << (kJoinBits - kBits));
  return static_cast<float>(std::ldexp(static_cast<double>(sum), exponent - kJoinBits));
}

float flushed(float v) { return std::fabs(v) < 0x1p-126f ? v * 0.0f : v; }
float flushed_input(float v) { return std::fabs(v) < 0x1p-126f ? 0.0f : v; }

float cdna2_dot(const BF16* a, const BF16* b, float c) {
  float p[4];
  for (int k = 0; k < 4; ++k) {
    p[k] = flushed(std::fma(flushed_input(to_float(a[k])), flushed_input(to_float(b[k])), 0.0f));
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
      for (int k = 0; k < kMatrixDepth; ++k) c = std::fma(to_float(a[k]), to_float(b[k]), c);
      return c;
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
