// Dispatch: what is said of an operation without a kernel for GPUs.
#include "kernels/dispatch.h"

#include "base/error.h"

namespace moraine {

void refuse_gpu(const char* operation) {
  throw_error(Code::kInvalidArgument, "{} has no kernel for GPUs yet (docs/gpu.md); use the CPU",
              operation);
}

}  // namespace moraine
