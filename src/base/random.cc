// Philox4x32 with ten rounds, keyed by seed and stream, counting step and index.
#include "base/random.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace moraine {
namespace {

using Block = std::array<uint32_t, 4>;

Block philox(uint64_t seed, Stream stream, uint64_t step, uint64_t index) {
  constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;    // multipliers of the paper
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;  // key increments of the paper
  const uint64_t mixed = seed + 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(stream);
  uint32_t key0 = static_cast<uint32_t>(mixed), key1 = static_cast<uint32_t>(mixed >> 32);
  Block c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
             static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMul0} * c[0], p1 = uint64_t{kMul1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

}  // namespace

// The half keeps 0 out. In the upper half of all words it does not fit and is rounded: the last one would be 1.
double uniform_of_bits(uint64_t bits) {
  return std::min((static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53, 1 - 0x1.0p-53);
}

uint64_t random_bits(uint64_t seed, Stream stream, uint64_t step, uint64_t index) {
  const Block b = philox(seed, stream, step, index);
  return uint64_t{b[0]} << 32 | b[1];
}

uint16_t random_short(uint64_t seed, Stream stream, uint64_t step, uint64_t index) {
  const Block b = philox(seed, stream, step, index / 8);
  return static_cast<uint16_t>(b[index % 8 / 2] >> (16 * (index % 2)));
}

double random_uniform(uint64_t seed, Stream stream, uint64_t step, uint64_t index) {
  return uniform_of_bits(random_bits(seed, stream, step, index));
}

double random_normal(uint64_t seed, Stream stream, uint64_t step, uint64_t index) {
  const Block b = philox(seed, stream, step, index);
  const double u = uniform_of_bits(uint64_t{b[0]} << 32 | b[1]),
               v = uniform_of_bits(uint64_t{b[2]} << 32 | b[3]);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * M_PI * v);
}

uint64_t random_below(uint64_t n, uint64_t seed, Stream stream, uint64_t step, uint64_t index) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(random_bits(seed, stream, step, index)) * n;
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace moraine
