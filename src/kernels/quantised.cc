// Sizes, names and single rows of quantised packs.
#include "kernels/quantised.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/ceil_div.h"
#include "kernels/widened.h"

namespace moraine {
namespace {

// kPer elements of a row stand together in a step.
template <class E, int64_t kPer>
void read_plain_elements(const PackedMatrix& w, int64_t group, int64_t n, float* out) {
  const int64_t steps = ceil_div(w.k, kPer), panels = packed_panels(w.n);
  const E* row = static_cast<const E*>(w.data) +
                 ((group * panels + n / kPackPanel) * steps * kPackPanel + n % kPackPanel) * kPer;
  for (int64_t i = 0; i < w.k; ++i) out[i] = widened(row[i / kPer * kPer * kPackPanel + i % kPer]);
}

void read_plain_row(const PackedMatrix& w, int64_t group, int64_t n, float* out) {
  if (w.dtype == DType::kF64) {
    const double* row = static_cast<const double*>(w.data) + (group * w.n + n) * w.k;
    for (int64_t i = 0; i < w.k; ++i) out[i] = static_cast<float>(row[i]);
    return;
  }
  w.dtype == DType::kBF16 ? read_plain_elements<BF16, 2>(w, group, n, out)
                          : read_plain_elements<float, 1>(w, group, n, out);
}

// Column j of a block, times its scale.
template <int kBits>
void read_block(const uint8_t* block, int64_t j, float scale, float (&out)[kQuantisedBlock]) {
  for (int64_t i = 0; i < kQuantisedBlock; ++i) {
    const uint8_t* run = block + i / kQuantisedRun * kRunBytes<kBits>;
    const int stored = stored_integer<kBits>(run, i % kQuantisedRun / 4, 4 * j + i % 4);
    out[i] = scale * static_cast<float>(stored - kWeightOffset<kBits>);
  }
}

}  // namespace

const char* weight_format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPlain:
      return "plain";
    case WeightFormat::kQ8:
      return "q8";
    case WeightFormat::kQ6:
      return "q6";
    case WeightFormat::kQ4:
      return "q4";
  }
  MR_CHECK(false, "format %d", static_cast<int>(format));
}

int integer_bits(WeightFormat format) {
  MR_CHECK(format != WeightFormat::kPlain, "no integers");
  return format == WeightFormat::kQ8 ? 8 : format == WeightFormat::kQ6 ? 6 : 4;
}

int64_t quantised_block_bytes(WeightFormat format) {
  constexpr int64_t kWeights = kPackPanel * kQuantisedBlock, kScales = 2 * kPackPanel;
  return kWeights * integer_bits(format) / 8 + kScales;
}

int64_t quantised_bytes(WeightFormat format, int64_t groups, int64_t n, int64_t k) {
  return groups * packed_panels(n) * ceil_div(k, kQuantisedBlock) * quantised_block_bytes(format);
}

void read_packed_row(const PackedMatrix& w, int64_t group, int64_t n, float* out) {
  if (w.format == WeightFormat::kPlain) return read_plain_row(w, group, n, out);
  const int bits = integer_bits(w.format);
  const auto read = bits == 8 ? read_block<8> : bits == 6 ? read_block<6> : read_block<4>;
  const int64_t block_bytes = quantised_block_bytes(w.format),
                panel_bytes = quantised_bytes(w.format, 1, 1, w.k), panels = packed_panels(w.n),
                j = n % kPackPanel;
  const uint8_t* block =
      static_cast<const uint8_t*>(w.data) + (group * panels + n / kPackPanel) * panel_bytes;
  for (int64_t i = 0; i < w.k; i += kQuantisedBlock, block += block_bytes) {
    const BF16* scales = reinterpret_cast<const BF16*>(block + block_bytes) - kPackPanel;
    const float scale = to_float(scales[j]);
    float values[kQuantisedBlock];
    read(block, j, scale, values);
    std::copy_n(values, std::min(kQuantisedBlock, w.k - i), out + i);
  }
}

QuantisedStep quantised_step(float largest) {
  if (!std::isfinite(largest)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (largest < kLeastBlock) return {0, 0};
  return {largest / 127, 127 / largest};
}

}  // namespace moraine
