// ModelMemory: whether there is room for a model: what its plan takes, by what a person can make smaller.
//
// The kernel hands out more than there is, and ends whoever touches it: better to say so before reading.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/arena.h"

namespace moraine {

// What a model takes of the host's memory; sums over the ranks of this host.
struct ModelMemory {
  int64_t ranks = 1;
  int64_t parameters = 0;  // that are read; 0: packs are mapped
  DType compute = DType::kF32;
  int64_t weight_bytes = 0;      // as they are read, and packed
  int64_t guest_bytes = 0;       // of weights of other ranks' experts
  int64_t cached_positions = 0;  // of all ranks that share a cache
  int64_t cache_bytes = 0;
  int64_t positions = 0;    // of the longest document,
  int64_t table_bytes = 0;  // each of which has a row in tables
  int64_t rows = 0;         // of a pass,
  int64_t row_bytes = 0;    // each of which has its activations, and all else
  int64_t head_bytes = 0;   // of the copy of the head in 8 bits
};

// The bytes of a plan (LoadedModel::plan), by name; what has another name counts beside the activations.
ModelMemory planned_memory(const Arena& plan);

// Bytes of `parameters`, f32 as they are read and packed as `compute`; INT64_MAX if that is not enough to count them.
int64_t read_model_bytes(int64_t parameters, DType compute);

// What is lacking of `available` bytes, and what to do; empty: nothing. `unread`: what to do where there is no room for
// weights that are read.
std::string model_shortage(const ModelMemory& memory, int64_t available, const std::string& unread);

}  // namespace moraine
