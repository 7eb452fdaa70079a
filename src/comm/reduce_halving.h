// ReduceHalving: reduce-scatter by recursive halving, nearest neighbours first.
//
// In step k a member exchanges with the one whose number differs in bit k: each gives away its
// partial sums for owners on the other's side and adds what it gets to those it keeps. After step k
// it holds sums over its 2^(k+1) nearest members: the tree of collectives.h.
#pragma once

#include "comm/collectives.h"

namespace moraine {

// `merged`: shares without ranges that touch; comm.size() is a power of two. `scratch`: twice as
// many as the shares have elements together.
void reduce_scatter_halving(Communicator& comm, const Tensor& data, const Shares& merged,
                            std::span<float> scratch);

}  // namespace moraine
