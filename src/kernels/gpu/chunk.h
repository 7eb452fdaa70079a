// Chunk: what a thread of a GPU moves at once, eight elements of bf16.
#pragma once

#include "tensor/dtype.h"

namespace moraine::gpu {

constexpr int kChunk = 8;
struct alignas(16) Chunk {
  BF16 v[kChunk];
};

}  // namespace moraine::gpu
