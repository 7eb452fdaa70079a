// Dispatch: runs an operation on the backend of its context.
//
//   dispatch(ctx, "gelu_forward", a, {ref::gelu_forward, cpu::gelu_forward, gpu::gelu_forward});
//
// Without a kernel for GPUs the third is left out, and a context on a GPU is refused.
//
// Errors: kInvalidArgument, naming the operation. Who computes on a GPU asks for all of them at the start
//         (kernels/gpu/operations.h), so that nobody meets this one in the middle of a pass.
#pragma once

#include <type_traits>

#include "kernels/context.h"

namespace moraine {

template <class A>
struct Implementations {
  void (*ref)(const A&);
  void (*cpu)(Context&, const A&);
  void (*gpu)(gpu::Gpu&, const A&) = nullptr;
};

[[noreturn]] void refuse_gpu(const char* operation);

template <class A>
void dispatch(Context& ctx, const char* operation, const A& a,
              const Implementations<std::type_identity_t<A>>& run) {
  switch (ctx.backend) {
    case Backend::kRef:
      return run.ref(a);
    case Backend::kCpu:
      return run.cpu(ctx, a);
    case Backend::kGpu:
      if (run.gpu == nullptr) refuse_gpu(operation);
      return run.gpu(*ctx.gpu, a);
  }
}

}  // namespace moraine
