// ModelMemory: whether there is room for a model whose weights are read, not mapped.
//
// The kernel hands out more than there is, and ends whoever touches it: better to say so before reading.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace moraine {

// Bytes of `parameters`, f32 as they are read and packed as `compute`; INT64_MAX if that is not enough to count them.
int64_t read_model_bytes(int64_t parameters, DType compute);
// What `parameters`, read as f32 and packed as `compute`, lack of `available` bytes, and what to do; empty: nothing.
std::string model_shortage(int64_t parameters, DType compute, int64_t available);

}  // namespace moraine
