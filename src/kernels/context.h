// Context: where a kernel runs: backend, threads, scratch memory, profile.
//
// Passed first to every operation. Kernels take no memory of their own: a task uses the scratch of the
// worker that runs it (kWorkerScratchBytes), anything larger is a named tensor in the arguments.
#pragma once

#include <cstdint>

#include "base/pool.h"
#include "kernels/profile.h"
#include "tensor/arena.h"

namespace moraine {

// kRef computes in double, one thread, no cleverness; it takes tensors of any float type, and is what
// "correct" means. kCpu is threads and SIMD.
enum class Backend : uint8_t { kRef, kCpu };

constexpr int64_t kWorkerScratchBytes = int64_t{4}
                                        << 20;  // packed blocks of the widest GEMM kernel

struct Context {
  Backend backend = Backend::kCpu;
  Pool* pool = nullptr;
  Tensor scratch;              // [threads, kWorkerScratchBytes] u8
  Profile* profile = nullptr;  // null: not measured

  template <class E>
  E* worker_scratch(int worker) const {
    return reinterpret_cast<E*>(static_cast<uint8_t*>(scratch.data) + worker * kWorkerScratchBytes);
  }
};

// A context on `pool` whose scratch is taken from `arena`.
Context make_context(Backend backend, Pool& pool, Arena& arena);

}  // namespace moraine
