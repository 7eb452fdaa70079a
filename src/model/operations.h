// Operations: what a model calls, by name: the operations of its passes.
#pragma once

#include <vector>

#include "model/model.h"

namespace moraine {

// By the names of src/kernels; what moves between ranks by its file's name in src/parallel.
std::vector<const char*> operations_of(const ModelConfig& config, const ModelOptions& options);

}  // namespace moraine
