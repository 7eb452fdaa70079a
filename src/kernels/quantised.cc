// Sizes, names and single rows of quantised packs.
#include "kernels/quantised.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace moraine {
namespace {

int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

void read_plain_row(const PackedMatrix& w, int64_t group, int64_t n, float* out) {
  if (w.dtype == DType::kF64) {
    const double* row = static_cast<const double*>(w.data) + (group * w.n + n) * w.k;
    for (int64_t i = 0; i < w.k; ++i) out[i] = static_cast<float>(row[i]);
    return;
  }
  const int64_t per = w.dtype == DType::kBF16 ? 2 : 1, steps = round_up(w.k, per) / per;
  const int64_t panels = round_up(w.n, kPackPanel) / kPackPanel;
  const int64_t first = (group * panels + n / kPackPanel) * steps * kPackPanel;
  for (int64_t i = 0; i < w.k; ++i) {
    const int64_t word = first + i / per * kPackPanel + n % kPackPanel;
    out[i] = per == 1 ? static_cast<const float*>(w.data)[word]
                      : to_float(static_cast<const BF16*>(w.data)[2 * word + i % 2]);
  }
}

// q of column j and input i of a block.
int quantised_at(WeightFormat format, const uint8_t* block, int64_t j, int64_t i) {
  const int64_t at = i / 4 * 4 * kPackPanel + 4 * j + i % 4;
  if (format == WeightFormat::kQ8) return block[at] - 128;
  constexpr int64_t kHalf = kPackPanel * kQuantisedBlock / 2;
  return (at < kHalf ? block[at] & 15 : block[at - kHalf] >> 4) - 8;
}

}  // namespace

const char* weight_format_name(WeightFormat format) {
  return format == WeightFormat::kQ8 ? "q8" : format == WeightFormat::kQ4 ? "q4" : "plain";
}

bool weight_format_of(std::string_view name, WeightFormat* format) {
  for (const WeightFormat f : {WeightFormat::kPlain, WeightFormat::kQ8, WeightFormat::kQ4}) {
    if (name != weight_format_name(f)) continue;
    *format = f;
    return true;
  }
  return false;
}

int64_t quantised_block_bytes(WeightFormat format) {
  MR_CHECK(format == WeightFormat::kQ8 || format == WeightFormat::kQ4, "format %d",
           static_cast<int>(format));
  constexpr int64_t kWeights = kPackPanel * kQuantisedBlock, kScales = 2 * kPackPanel;
  return (format == WeightFormat::kQ8 ? kWeights : kWeights / 2) + kScales;
}

int64_t quantised_bytes(WeightFormat format, int64_t groups, int64_t n, int64_t k) {
  const int64_t panels = round_up(n, kPackPanel) / kPackPanel;
  const int64_t blocks = round_up(k, kQuantisedBlock) / kQuantisedBlock;
  return groups * panels * blocks * quantised_block_bytes(format);
}

void read_packed_row(const PackedMatrix& w, int64_t group, int64_t n, float* out) {
  if (w.format == WeightFormat::kPlain) return read_plain_row(w, group, n, out);
  const int64_t block_bytes = quantised_block_bytes(w.format),
                panel_bytes = quantised_bytes(w.format, 1, 1, w.k),
                panels = round_up(w.n, kPackPanel) / kPackPanel, j = n % kPackPanel;
  const uint8_t* block =
      static_cast<const uint8_t*>(w.data) + (group * panels + n / kPackPanel) * panel_bytes;
  for (int64_t i = 0; i < w.k; i += kQuantisedBlock, block += block_bytes) {
    const BF16* scales = reinterpret_cast<const BF16*>(block + block_bytes) - kPackPanel;
    const float scale = to_float(scales[j]);
    for (int64_t e = 0; e < kQuantisedBlock && i + e < w.k; ++e) {
      out[i + e] = scale * static_cast<float>(quantised_at(w.format, block, j, e));
    }
  }
}

QuantisedStep quantised_step(float largest) {
  if (!std::isfinite(largest)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (largest < 0x1p-100f) return {0, 0};
  return {largest / 127, 127 / largest};
}

}  // namespace moraine
