// RandomRow: random numbers of 16 bits for consecutive indices, and which of them are large.
//
//   shorts[i]  = random_short(seed, stream, step, first + i)                  base/random.h, bit for bit
//   reached[w] bit b = shorts[64 w + b] >= least[w]; 0 beyond the row
//
// A draw of a token needs a random number for each entry of the vocabulary, and more than 16 bits of it only for the
// few that could win. Integers only: every instruction set gives the same.
//
// Threads: any; on the caller's alone.
// Cost:    20 multiplications of 32 bits for eight numbers, four or eight such at a time.
#pragma once

#include <span>

#include "base/random.h"

namespace moraine {

struct RandomRow {
  std::span<uint16_t> shorts;       // out
  std::span<uint64_t> reached;      // out, one for each 64 shorts or part of that
  std::span<const uint16_t> least;  // as many
  uint64_t seed;
  Stream stream;
  uint64_t step;
  uint64_t first;  // index, a multiple of 8; first + shorts.size() is at most 2^32
};

void random_row(const RandomRow& a);

}  // namespace moraine
