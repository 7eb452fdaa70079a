// Attention backward, first version: the reference's sums.
#include "kernels/attention.h"

namespace moraine::cpu {

void attention_backward(Context&, const AttentionBackward& a) { ref::attention_backward(a); }

}  // namespace moraine::cpu
