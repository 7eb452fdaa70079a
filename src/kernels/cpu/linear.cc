// Dense products, first version: the reference's sums.
#include "kernels/linear.h"

namespace moraine::cpu {

void pack_matrix(Context&, const PackMatrix& a) { ref::pack_matrix(a); }
void grouped_linear_forward(Context&, const GroupedLinearForward& a) {
  ref::grouped_linear_forward(a);
}
void grouped_linear_backward_input(Context&, const GroupedLinearBackwardInput& a) {
  ref::grouped_linear_backward_input(a);
}
void grouped_linear_backward_weight(Context&, const GroupedLinearBackwardWeight& a) {
  ref::grouped_linear_backward_weight(a);
}
void matmul_nt(Context&, const MatmulNT& a) { ref::matmul_nt(a); }

}  // namespace moraine::cpu
