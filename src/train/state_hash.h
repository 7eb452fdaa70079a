// StateHash: one hash of memory that lies in several places, taken by all threads of a rank.
//
// In blocks of 1 MiB from the start of each part: the same for the same bytes in parts of the same sizes, wherever they
// lie and however many threads there are.
//
// Errors: none.
// Cost:   memory bandwidth, once.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/hash.h"
#include "kernels/context.h"

namespace moraine {

class StateHash {
 public:
  // Memory that outlives it; empty tensors are left out.
  explicit StateHash(std::span<const Tensor> parts);
  StateHash() = default;

  Hash128 digest(Context& ctx);  // of the bytes as they are now

 private:
  void hash_here(Context& ctx);
  void hash_copies(Context& ctx);  // of a GPU's memory, block after block

  struct Block {
    const std::byte* data;
    int64_t bytes;
  };
  std::vector<Block> blocks_;
  std::vector<Hash128> hashes_;  // of each
};

}  // namespace moraine
