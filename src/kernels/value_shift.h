// ValueShift: CCA's values: one half from this token, one half from the token before.
//
//   v1[t] = columns [C, C + M) of qkv row t, v2[t] = columns [C + M, C + 2M), M = K*d/2,
//           C = (H+K)*d
//   v[t]  = concat(v1[t], v2[t-1]) as [K, d]; at the first row of a segment v2[t-1] is from `halo`
//           (zeros at a document's start)
//   plain form (gqa baseline, delayed == false): v[t] = columns [C, C + 2M)
//   backward  dv1[t] = dv[t, first half]
//             dv2[t] = dv[t+1, second half] if t+1 is in the segment, else 0
//             dhalo = dv[first, second half], which belongs to the row before
//
// Shapes:   T rows, N = C + 2M columns of qkv, S segments, h rows of halo: segment s has row
//           halo_row[s], none if that is -1; halo_row empty: h = S and segment s has row s.
// Types:    all f32 or all bf16. A copy: no arithmetic.
// Aliasing: none. dqkv: columns [C, N) are out, the rest is untouched.
// Source:   docs/model.md, attention.
#pragma once

#include <span>

#include "kernels/context.h"
#include "kernels/segment.h"
#include "tensor/tensor.h"

namespace moraine {

struct ValueShiftForward {
  Tensor v;           // [T, K, d] out
  Tensor qkv;         // [T, N] in
  Tensor halo;        // [h, M] in: v2 at the position before a segment; or empty: zeros
  Segments segments;  // cover [0, T)
  bool delayed;       // false: plain values
  std::span<const int64_t> halo_row;
};

struct ValueShiftBackward {
  Tensor dqkv;  // [T, N] columns [N - K*d, N) out
  Tensor dv;    // [T, K, d] in
  Segments segments;
  bool delayed;
  Tensor dhalo;  // [h, M] out, rows of segments; or empty
  std::span<const int64_t> halo_row;
};

void value_shift_forward(Context& ctx, const ValueShiftForward& a);
void value_shift_backward(Context& ctx, const ValueShiftBackward& a);

namespace ref {
void value_shift_forward(const ValueShiftForward& a);
void value_shift_backward(const ValueShiftBackward& a);
}  // namespace ref
namespace cpu {
void value_shift_forward(Context& ctx, const ValueShiftForward& a);
void value_shift_backward(Context& ctx, const ValueShiftBackward& a);
}  // namespace cpu

}  // namespace moraine
