// SavedRows: which rows of which tensors a rank writes to a checkpoint, and which it reads.
//
// Writing: weights that every rank has are cut evenly by bytes; experts' weights are cut by rows
// among the ranks that hold them; optimizer state is written by its owner. All ranks' parts tile
// every tensor once. Reading: everything a rank holds, from whoever wrote it.
#pragma once

#include <vector>

#include "checkpoint/distributed.h"
#include "model/parameters.h"
#include "optim/optimizer.h"
#include "parallel/mesh.h"

namespace moraine {

// Weights that this rank writes, and those that it reads (all it holds).
std::vector<TensorRows> weights_to_write(const ParameterTable& table, const Tensor& master,
                                         const Mesh& mesh);
std::vector<TensorRows> weights_to_read(const ParameterTable& table, const Tensor& master);

// State that this rank owns. `writes`: the balancing biases' state, which every rank has alike,
// only on rank 0.
std::vector<TensorRows> optimizer_rows(const ParameterTable& table,
                                       const std::vector<OptimizerTensor>& state, const Mesh& mesh,
                                       bool writes);

}  // namespace moraine
