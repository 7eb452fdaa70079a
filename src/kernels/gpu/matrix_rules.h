// MatrixRules: the published rules by which each generation's matrix unit rounds a sum of products of bf16.
//
//   dot(rule, a, b, c) = c + sum_k a[k] b[k], k = 0 .. 15, in f32:
//
//   kPlain   k ascending, one rounding to nearest after each product
//   kCdna2   fours: (p0 + p1) + (p2 + p3), then joined to c; each rounded to nearest; subnormals are 0, in and out
//   kCdna3   eights: products aligned to the largest exponent, truncated at 24 fraction bits, summed; that and c
//            aligned to the larger exponent of both, floored at 31 and 24 bits, summed, rounded to nearest
//   kSm80    eights with c: all nine aligned to the largest exponent, truncated at 24 bits, summed, truncated to f32
//   kSm90    sixteen with c: the same with 25 bits
//
// An exponent is that of the significands' product before it is normalised; that of a zero is -126. So products that
// are all zero leave a normal c as it is, if no factor beside a zero is above 2^100 times c. Cut at eights and
// sixteens, the same bits come from every shape of tile.
//
// Order:    a function of k only, the same for every element of a tile: rows do not know their company.
// Source:   MMA-Sim, arXiv:2511.10909, and its code, github.com/microsoft/MMA-Sim at c785138, which its authors
//           compared with hardware. No hardware was at hand here.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace moraine::gpu {

enum class MatrixRule : uint8_t { kPlain, kCdna2, kCdna3, kSm80, kSm90 };

constexpr MatrixRule kMatrixRules[] = {MatrixRule::kPlain, MatrixRule::kCdna2, MatrixRule::kCdna3,
                                       MatrixRule::kSm80, MatrixRule::kSm90};
constexpr int kMatrixDepth = 16;  // products of one dot

const char* matrix_rule_name(MatrixRule rule);

float matrix_dot(MatrixRule rule, const BF16* a, const BF16* b, float c);  // a, b: [kMatrixDepth]

}  // namespace moraine::gpu
