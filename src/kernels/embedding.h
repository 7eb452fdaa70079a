// Embedding: token ids to rows of a table.
//
//   forward   x[t] = table[token[t]] rounded to x's type
//   packed    x[t] = row token[t] of a pack: its elements, rounded to x's type
//   backward  dtable[token[t]] += dx[t], t ascending
//
// Shapes:   T tokens, V rows, D channels. 0 <= token < V is the caller's duty (checked).
// Types:    table, dtable f32; x, dx f32 or bf16. A pack is for rows of x's type, of any format.
// Order:    for each table row over t ascending, on any thread count.
#pragma once

#include "kernels/context.h"
#include "kernels/linear.h"
#include "tensor/tensor.h"

namespace moraine {

struct EmbeddingForward {
  Tensor x;      // [T, D] out
  Tensor table;  // [V, D] in
  Tensor token;  // [T] i32 in
};

struct EmbeddingPackedForward {
  Tensor x;            // [T, D] out
  PackedMatrix table;  // V x D, one group
  Tensor token;        // [T] i32 in
};

struct EmbeddingBackward {
  Tensor dtable;  // [V, D] added to
  Tensor dx;      // [T, D] in
  Tensor token;   // [T] i32 in
};

void embedding_forward(Context& ctx, const EmbeddingForward& a);
void embedding_packed_forward(Context& ctx, const EmbeddingPackedForward& a);
void embedding_backward(Context& ctx, const EmbeddingBackward& a);

namespace ref {
void embedding_forward(const EmbeddingForward& a);
void embedding_packed_forward(const EmbeddingPackedForward& a);
void embedding_backward(const EmbeddingBackward& a);
}  // namespace ref
namespace cpu {
void embedding_forward(Context& ctx, const EmbeddingForward& a);
void embedding_packed_forward(Context& ctx, const EmbeddingPackedForward& a);
void embedding_backward(Context& ctx, const EmbeddingBackward& a);
}  // namespace cpu

}  // namespace moraine
