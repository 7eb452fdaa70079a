// Rounding: the two inner loops of weights that become integers, for every instruction set.
//
// Order: products, then sums: no fused multiply-adds, and sums kept apart by 16 lanes, so the same bits on every Isa.
#pragma once

#include <cstdint>

#include "kernels/quantised.h"

namespace moraine::cpu {

// What choose_scale() returns, as f32, for integers from -half to half - 1. `largest`: the weight of the largest size.
float best_scale(const WeightBlock& block, float largest, int half);

constexpr int64_t kRoundedRows = 32;  // side by side

// u[j][r] += error[r] * factors[j] for j < count: [count, kRoundedRows].
void pass_on_errors(const float* error, const float* factors, int64_t count, float* u);

}  // namespace moraine::cpu
