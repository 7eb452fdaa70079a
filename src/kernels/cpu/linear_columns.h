// Column sums: dbias[g,j] += sum over the rows t of group g, ascending, of dy[t,j].
#pragma once

#include <span>

#include "kernels/context.h"

namespace moraine::cpu {

void add_column_sums(Context& ctx, float* dbias, const Tensor& dy, std::span<const int64_t> rows);

}  // namespace moraine::cpu
