// RandomRow: the random words of consecutive indices, many at a time.
//
//   bits[i] = random_bits(seed, stream, step, first + i)        base/random.h, word for word
//
// A draw of a token needs one word for each entry of the vocabulary: one by one that is a tenth of a small
// model's step. Integers only: every instruction set gives the same words.
//
// Threads: any; on the caller's alone.
// Cost:    20 multiplications of 32 bits for each word, four or eight at a time.
#pragma once

#include <span>

#include "base/random.h"

namespace moraine {

struct RandomRow {
  std::span<uint64_t> bits;  // out
  uint64_t seed;
  Stream stream;
  uint64_t step;
  uint64_t first;  // index; first + bits.size() is at most 2^32
};

void random_row(const RandomRow& a);

// Also says which words are `least` or more: bit i % 64 of reached[i / 64]; bits beyond the words are 0.
// reached: (bits.size() + 63) / 64 of them.
void random_row(const RandomRow& a, uint64_t least, std::span<uint64_t> reached);

}  // namespace moraine
