// ExpertDispatch: group token rows by expert, and bring the experts' outputs back.
//
//   plan      rows[e] .. rows[e+1] are expert e's rows, in (token, choice) order; skipped choices have none.
//             choice_of[row] = t*n + j ;  row_of[t,j] = row, or -1 if skipped.  rows[E] = rows in use.
//             load[c] = choices of class c (c < E), load[E] = skipped choices.
//   dispatch  xe[row] = x[choice_of[row] / n]                         backward  dx[t] += sum_j dxe[row_of[t,j]]
//   combine   h[t] = sum_j gate[t,j] * (row_of[t,j] >= 0 ? ye[row_of[t,j]] : skip_identity ? x[t] : 0)
//             (a choice forced by an earlier skip has gate 0)
//   combine backward  dye[row] = gate[t,j] * dh[t] ;  dgate[t,j] = dh[t] . ye[row_of[t,j]]
//             (skipped with identity: dh[t] . x[t], and dx[t] += gate[t,j] * dh[t]; skipped with zero: 0)
//
// Shapes:   T tokens, n choices each, E experts, Te = T*n expert rows at most, D channels.
// Types:    x, xe, ye, h, dh, dye, dxe: f32 or bf16. gate, dgate, dx: f32. Indices i32, rows and load i64.
//           Sums in f32, over j ascending.
// Aliasing: none.
// Order:    integer counts; each row's sum is over its own choices only.
// Cost:     memory-bound.
#pragma once

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

struct DispatchPlan {
  Tensor rows;       // [E+1] i64 out
  Tensor choice_of;  // [T*n] i32 out
  Tensor row_of;     // [T, n] i32 out
  Tensor load;       // [E+1] i64 out
  Tensor expert;     // [T, n] i32 in; E means skip
};

struct DispatchForward {
  Tensor xe;         // [T*n, D] out: the first rows[E] rows
  Tensor x;          // [T, D] in
  Tensor choice_of;  // [T*n] i32
  Tensor rows;       // [E+1] i64
};

struct DispatchBackward {
  Tensor dx;      // [T, D] f32 added to
  Tensor dxe;     // [T*n, D] in
  Tensor row_of;  // [T, n] i32
};

struct CombineForward {
  Tensor h;       // [T, D] out
  Tensor ye;      // [T*n, D] in
  Tensor gate;    // [T, n] f32 in
  Tensor x;       // [T, D] in: the experts' input, for skip_identity
  Tensor row_of;  // [T, n] i32
  bool skip_identity;
};

struct CombineBackward {
  Tensor dye;     // [T*n, D] out
  Tensor dgate;   // [T, n] f32 out
  Tensor dx;      // [T, D] f32 added to (skip_identity only)
  Tensor dh;      // [T, D] in
  Tensor ye;      // [T*n, D] in
  Tensor gate;    // [T, n] f32 in
  Tensor x;       // [T, D] in
  Tensor row_of;  // [T, n] i32
  bool skip_identity;
};

void dispatch_plan(Context& ctx, const DispatchPlan& a);
void dispatch_forward(Context& ctx, const DispatchForward& a);
void dispatch_backward(Context& ctx, const DispatchBackward& a);
void combine_forward(Context& ctx, const CombineForward& a);
void combine_backward(Context& ctx, const CombineBackward& a);

namespace ref {
void dispatch_plan(const DispatchPlan& a);
void dispatch_forward(const DispatchForward& a);
void dispatch_backward(const DispatchBackward& a);
void combine_forward(const CombineForward& a);
void combine_backward(const CombineBackward& a);
}  // namespace ref
namespace cpu {
void dispatch_forward(Context& ctx, const DispatchForward& a);
void dispatch_backward(Context& ctx, const DispatchBackward& a);
void combine_forward(Context& ctx, const CombineForward& a);
void combine_backward(Context& ctx, const CombineBackward& a);
}  // namespace cpu

}  // namespace moraine
