// DType: the number formats a tensor may hold.
#pragma once

#include <cstdint>
#include <cstring>

namespace moraine {

enum class DType : uint8_t { kF64, kF32, kBF16, kI64, kI32, kU8 };

int64_t dtype_bytes(DType dtype);
const char* dtype_name(DType dtype);  // "f64", "f32", "bf16", "i64", "i32", "u8"

// A bfloat16 value: the upper half of a float. Arithmetic happens in float.
struct BF16 {
  uint16_t bits;
};

inline float to_float(BF16 value) {
  const uint32_t bits = uint32_t{value.bits} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
inline BF16 to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

inline float round_bf16(float value) { return to_float(to_bf16(value)); }

}  // namespace moraine
