// PtxGpu: a GPU whose launches run twice, as interpreted PTX and as our emulation, and must leave the same bits.
//
// Memory, copies and launches go to both. After each launch every byte of every buffer is compared; of a buffer of more
// than 1 MiB (gpu_lists.h has one of 16) what the launch has stored. What comes out is the interpreter's. So any test
// that runs on a Gpu is a test of the compiled code against the emulation. A NaN of f32 arithmetic is 0x7fffffff in PTX
// and the host's in the emulation: two NaNs are counted, and are no difference.
//
// The PTX is that of the .cu files of this tree by clang 19 (ptx_source.h), or what `edit` makes of it: faults are put
// in so.
//
// Errors:   kDevice: what the interpreter says (run.h), or "KERNEL: 3 of 2800 elements differ, the first ...";
//           whatever the emulation says.
// Order:    the emulation's threads ascend, the interpreter's warps descend.
// Tests:    MORAINE_PTX_REPORT=FILE: at its end a line for each kernel: name, target, launches, elements, that
//           differ, NaNs of both with other bits.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/gpu/runtime.h"
#include "testing/ptx/ptx_source.h"

namespace moraine::testing {

struct PtxGpuOptions {
  std::string target;  // "sm_80" or "sm_90", whose rule of rounding it has
  std::function<std::string(const std::string&)> edit = nullptr;  // of a module's text
};

std::unique_ptr<gpu::Gpu> make_ptx_gpu(const PtxGpuOptions& options);

}  // namespace moraine::testing
