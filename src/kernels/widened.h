// Widened: an element of a matrix, of either type, as f32.
#pragma once

#include "tensor/dtype.h"

namespace moraine {

inline float widened(float value) { return value; }
inline float widened(BF16 value) { return to_float(value); }

}  // namespace moraine
