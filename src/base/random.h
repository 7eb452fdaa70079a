// Random: counter-based random numbers; a draw is a function of where it is used.
//
//   bits(seed, stream, step, index) -> 64 bits
//
// There is no generator state, so nothing is saved, and any thread or rank may draw any number.
// `stream` separates uses (weights, data order, sampling); the constants below name them.
// Source: Philox4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include <cstdint>

namespace moraine {

enum class Stream : uint32_t {
  kInit = 1,
  kDataOrder = 2,
  kDataSplit = 3,
  kSample = 4,
  kTest = 5,
  kChoice = 6,
  kFaults = 7,
  kSampleRow = 8
};

uint64_t random_bits(uint64_t seed, Stream stream, uint64_t step, uint64_t index);

// 16 bits: eighth index % 8 of the block of index / 8, so that a row of them costs an eighth of a row of words.
uint16_t random_short(uint64_t seed, Stream stream, uint64_t step, uint64_t index);

// Uniform in (0, 1), 53 bits; never 0 or 1.
double random_uniform(uint64_t seed, Stream stream, uint64_t step, uint64_t index);

// The uniform of one word, in (0, 1).
double uniform_of_bits(uint64_t bits);

// Standard normal (Box-Muller on the two halves of one Philox block).
double random_normal(uint64_t seed, Stream stream, uint64_t step, uint64_t index);

// Uniform integer in [0, n), n > 0; bias below 2^-32 for n < 2^32.
uint64_t random_below(uint64_t n, uint64_t seed, Stream stream, uint64_t step, uint64_t index);

}  // namespace moraine
