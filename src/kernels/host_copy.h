// HostCopy: between the host's memory and the memory that a context computes in.
//
// Shapes:   both tensors hold as many elements, of one type.
// Cost:     without a GPU a memcpy, or nothing where both are the same memory. With one, copy_out waits for all
//           that was launched before it.
#pragma once

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace moraine {

void copy_in(Context& ctx, const Tensor& there, const Tensor& host);
void copy_out(Context& ctx, const Tensor& host, const Tensor& there);

// fault_bytes (base/fault_point.h) of memory that a context computes in.
void fault_tensor(Context& ctx, const char* name, const Tensor& there);

}  // namespace moraine
