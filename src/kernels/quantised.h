// Quantised: weights as integers of 8, 6 or 4 bits, a scale for each block of 128 along the sum, and their product.
//
//   weight   w[n,k]  = scale[n,b] * q[n,k]       b = k / 128;  q8: |q| <= 127; q6: -32 <= q <= 31; q4: -8 <= q <= 7
//   row      x[t,k]  ~ step[t,b] * r[t,k]        step = max |x| of the block / 127, r = nearest(x / step)
//   product  y[t,n]  = sum_b (step[t,b] * scale[n,b]) * sum_{k in b} r[t,k] * q[n,k]   (+ bias)
//
// Bytes:    panels of 32 columns (n rounded up); a panel is blocks of 128 inputs (k rounded up), one after another, a
//           block two runs of 64 inputs, one after the other:
//             q8   [16][32][4]      byte (i, j, e): q of column j and input 4 i + e of the run, plus 128
//             q4   [8][32][4]       low half: q of input 4 i + e, plus 8; high half: of input 4 (i + 8) + e
//             q6   [4][3][32][4]    of the low four bits of q plus 32 byte (i, 0, j, e) has halves as byte (i, j, e) of
//                                   q4 has, byte (i, 1, j, e) as its byte (i + 4, j, e); byte (i, 2, j, e) has the
//                                   high two, bits 2 m and 2 m + 1 those of input 4 (i + 4 m) + e
//             then [32] bf16 scales
//           A group's panels follow one another, then the next group's. What is padded has q = 0, scale 0.
//           The same bytes on every machine: 8.125, 6.125 and 4.125 bits a weight.
// Order:    the inner sum is of integers, hence exact; the outer one is a chain of fused multiply-adds over ascending
//           blocks from zero (without fma: product, then sum). So the same bits for any batch, position and number
//           of threads, and on every Isa that has fma, and every GPU (kernels/gpu/linear_quantised.h).
// Rows:     a block of x that holds a NaN or an infinity makes its sums NaN; one below 2^-100 counts as zero.
// Errors:   of a row: each r is off by at most step / 2, that is 1/254 of the largest |x| of its block.
// Scales:   q8: the largest |w| / 127, rounded up to bf16. q6, q4: that of 19 candidates whose squares of errors are
//           least before it is rounded to bf16: sum_k importance[k] * (w - scale q)^2, here all alike; or given, with
//           weights that kernels/error_feedback.h has made multiples of them.
// Source:   block formats as in ggml. Runs of 64 because a dot of AMX's int8 tiles is as long; blocks of two of them
//           because storing a block's sums and adding them costs as much there as two dots: products of 64 rows and
//           more take three quarters of the time that they take with blocks of 64.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "kernels/round_to_even.h"

namespace moraine {

constexpr int64_t kQuantisedBlock = 128;  // inputs that share a scale
constexpr int64_t kQuantisedRun = 64;     // inputs whose bytes stand together
constexpr float kLeastBlock = 0x1p-100f;  // a block whose largest size is smaller counts as zero

// "plain", "q8", "q6", "q4".
const char* weight_format_name(WeightFormat format);

constexpr int64_t kRowBytes = 4 * kPackPanel;  // of a run: four inputs of each column

// What is added to an integer before it is stored. q6 and q4 are from -kWeightOffset to kWeightOffset - 1.
template <int kBits>
constexpr int kWeightOffset = 1 << (kBits - 1);

template <int kBits>
constexpr int64_t kRunBytes = kPackPanel* kQuantisedRun* kBits / 8;

// Which row of 128 bytes of a run, of all 32 columns, has four inputs: all their bits or the low four; of q6 the high
// two. So a pass over a run reads it from its first byte to its last.
template <int kBits>
constexpr int64_t row_of_four(int64_t four) {
  return kBits == 8 ? four : kBits == 4 ? four % 8 : 3 * (four % 4) + four % 8 / 4;
}
constexpr int64_t row_of_high_bits(int64_t four) { return 3 * (four % 4) + 2; }

// As it is stored: of inputs [4 four, 4 four + 4) the one at byte `at` of their row.
template <int kBits>
int stored_integer(const uint8_t* run, int64_t four, int64_t at) {
  const int byte = run[row_of_four<kBits>(four) * kRowBytes + at];
  if constexpr (kBits == 8) return byte;
  const int low = four < 8 ? byte & 15 : byte >> 4;
  if constexpr (kBits == 4) return low;
  return low | (run[row_of_high_bits(four) * kRowBytes + at] >> 2 * (four / 4) & 3) << 4;
}

// 8, 6 or 4. A plain format is the caller's bug, here and below.
int integer_bits(WeightFormat format);
// 6 or 4 bits: integers that scales and errors are chosen for with care. Of any format.
constexpr bool has_few_bits(WeightFormat format) {
  return format == WeightFormat::kQ6 || format == WeightFormat::kQ4;
}

// Of a block of a panel, weights and scales.
int64_t quantised_block_bytes(WeightFormat format);
// Bytes of a pack of `groups` weights of n x k.
int64_t quantised_bytes(WeightFormat format, int64_t groups, int64_t n, int64_t k);

// out[w.k] = row n of group `group` as the product reads it. Any format; plain packs of the cpu
// backend, or f64.
void read_packed_row(const PackedMatrix& w, int64_t group, int64_t n, float* out);

// A block of a row as integers.
struct QuantisedStep {
  float step;     // NaN if the block is not finite
  float inverse;  // 0: all r are 0
};
QuantisedStep quantised_step(float largest);  // largest |x|, or NaN

// A block of a row: its weights, zeros behind the end of the row, and how much a square of each one's error counts.
struct WeightBlock {
  float w[kQuantisedBlock], importance[kQuantisedBlock];
};

// Of q6 or q4: the scale as it is stored; 0 for a block that counts as zero, NaN for one that is not finite.
float choose_scale(WeightFormat format, const WeightBlock& block);

// The integer nearest to `value`, a weight over its scale.
template <int kBits>
float nearest_integer(float value) {
  constexpr float kLeast = -kWeightOffset<kBits>, kMost = kWeightOffset<kBits> - 1;
  const float from =
      value < kLeast ? kLeast : value;  // no std::max: its references keep loops scalar
  return round_to_even(from > kMost ? kMost : from);
}

// Panel `panel` of group `group` of a.packed from a.w (pack_matrix calls it for each). Not transposed; w is f32.
// Weights that are not finite make the scale of their block NaN.
void quantise_panel(const PackMatrix& a, int64_t group, int64_t panel);

}  // namespace moraine
