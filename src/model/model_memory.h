// ModelMemory: whether there is room for a model: for weights that are read, not mapped, and for its cache.
//
// The kernel hands out more than there is, and ends whoever touches it: better to say so before reading.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace moraine {

// What a model takes of the host's memory, but for activations; sums over the ranks of this host.
struct ModelMemory {
  int64_t ranks = 1;
  int64_t parameters = 0;  // that are read; 0: packs are mapped
  DType compute = DType::kF32;
  int64_t cached_positions = 0;  // of all ranks that share a cache
  int64_t cache_bytes = 0;
  int64_t positions = 0;    // of the longest document,
  int64_t table_bytes = 0;  // each of which has a row in tables
};

// Bytes of `parameters`, f32 as they are read and packed as `compute`; INT64_MAX if that is not enough to count them.
int64_t read_model_bytes(int64_t parameters, DType compute);
// What is lacking of `available` bytes, and what to do; empty: nothing.
std::string model_shortage(const ModelMemory& memory, int64_t available);

}  // namespace moraine
