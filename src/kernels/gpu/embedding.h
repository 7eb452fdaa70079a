// Embedding on a GPU: a thread takes a channel of a token.
//
// Formulas, shapes and types: kernels/embedding.h, forward from a table in f32.
// Order:    no sums: the same bits on every target.
// Errors:   an id outside the table is found where ids enter the GPU's memory, not here.
#pragma once

#include <cstdint>

namespace moraine {
struct EmbeddingForward;  // kernels/embedding.h
}

namespace moraine::gpu {

class Gpu;

struct EmbeddingArgs {
  void* x;               // [T, D] out; f32 or bf16
  const float* table;    // [V, D]
  const int32_t* token;  // [T]
  int64_t T, D;
};

// Tensors in the memory of `gpu`.
void embedding_forward(Gpu& gpu, const EmbeddingForward& a);

}  // namespace moraine::gpu
