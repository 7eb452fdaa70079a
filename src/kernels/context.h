// Context: where a kernel runs: backend, threads or GPU, scratch memory, profile.
//
// Passed first to every operation. Kernels take no memory of their own: a task uses the scratch of the
// worker that runs it (kWorkerScratchBytes), anything larger is a named tensor in the arguments.
#pragma once

#include <cstdint>

#include "base/pool.h"
#include "kernels/profile.h"
#include "tensor/arena.h"

namespace moraine {

namespace gpu {
class Gpu;  // kernels/gpu/runtime.h
}

// kRef computes in double, one thread, no cleverness; it takes tensors of any float type, and is what
// "correct" means. kCpu is threads and SIMD. kGpu is kernels/gpu: tensors are in the GPU's memory, which the host does
// not read, so ids and positions are checked where they enter it (kernels/host_copy.h); segments, pages and row bounds
// that the host has made stay in its own.
enum class Backend : uint8_t { kRef, kCpu, kGpu };

constexpr int64_t kWorkerScratchBytes = int64_t{4}
                                        << 20;  // packed blocks of the widest GEMM kernel

struct Context {
  Backend backend = Backend::kCpu;
  Pool* pool = nullptr;
  Tensor scratch;              // [threads, kWorkerScratchBytes or more] u8
  Profile* profile = nullptr;  // null: not measured
  gpu::Gpu* gpu = nullptr;     // of kGpu

  int64_t worker_bytes() const { return scratch.dims[1]; }
  template <class E>
  E* worker_scratch(int worker) const {
    return reinterpret_cast<E*>(static_cast<uint8_t*>(scratch.data) + worker * worker_bytes());
  }
};

// A context on `pool` whose scratch is taken from `arena`, `worker_bytes` for each thread: more than there must be lets
// some operations do less work (attention_worker_bytes).
Context make_context(Backend backend, Pool& pool, Arena& arena,
                     int64_t worker_bytes = kWorkerScratchBytes);
// A context on `gpu`, which outlives it; the pool is for what the host does meanwhile.
Context make_context(gpu::Gpu& gpu, Pool& pool);

}  // namespace moraine
