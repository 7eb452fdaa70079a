// Embedding on a GPU: a thread takes a channel of a token; its gradient goes from an id's first token to its last.
//
//   links    a block takes a token, looks back for the last one before it of the same id, and links that one to it
//   sums     a block takes a token that has none before it, and adds dx of it and of those linked to its id's row
//
// Formulas, shapes and types: kernels/embedding.h, forward from a table in f32 or a pack as linear.h has it: a row of
// integers times their scales, each rounded to x's type; the bits of the CPU.
// Order:    t ascending, each added to what is there: the bits of the CPU, on every target.
// Errors:   an id outside the table is found where ids enter the GPU's memory, not here.
// Cost:     memory-bound, but for the links: an id that is rare is looked for in all tokens before it, T^2 / 2 ids at
//           most. Takes 8 T bytes.
#pragma once

#include <cstdint>

namespace moraine {
struct EmbeddingBackward;  // kernels/embedding.h
struct EmbeddingForward;
struct EmbeddingPackedForward;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

struct EmbeddingArgs {
  void* x;               // [T, D] out; f32 or bf16
  const float* table;    // [V, D]
  const int32_t* token;  // [T]
  int64_t T, D;
};

struct EmbeddingPackedArgs {
  void* x;               // [T, D] out; f32 or bf16
  const void* pack;      // [V, D] as x, or V x D of integers
  const int32_t* token;  // [T]
  int64_t T, D;
};

constexpr int kEmbeddingThreads = 256;

struct EmbeddingBackwardArgs {
  float* dtable;      // [V, D] added to
  int32_t* next;      // [T] scratch, zeros before the links: the next token of the same id; 0: none
  int32_t* previous;  // [T] scratch: the last one before; -1: none
  const void* dx;     // [T, D]; f32 or bf16
  const int32_t* token;  // [T]
  int64_t D;
};

// Tensors in the memory of `gpu`.
void embedding_forward(Gpu& gpu, const EmbeddingForward& a);
void embedding_packed_forward(Gpu& gpu, const EmbeddingPackedForward& a);
void embedding_backward(Gpu& gpu, const EmbeddingBackward& a);

}  // namespace moraine::gpu
