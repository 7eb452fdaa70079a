// Context: takes the scratch memory of a context from the arena.
#include "kernels/context.h"

#include "kernels/isa.h"

namespace moraine {

Context make_context(Backend backend, Pool& pool, Arena& arena, int64_t worker_bytes) {
  MR_CHECK(backend != Backend::kGpu, "no GPU");
  MR_CHECK(worker_bytes >= kWorkerScratchBytes && worker_bytes % 64 == 0, "%ld",
           long(worker_bytes));
  isa();  // the first call applies MORAINE_ISA to Highway: before any kernel runs
  Context ctx;
  ctx.backend = backend;
  ctx.pool = &pool;
  ctx.scratch =
      arena.take("kernels.worker_scratch", "scratch", DType::kU8, {pool.threads(), worker_bytes});
  return ctx;
}

Context make_context(gpu::Gpu& gpu, Pool& pool) {
  isa();
  Context ctx;
  ctx.backend = Backend::kGpu;
  ctx.pool = &pool;
  ctx.gpu = &gpu;
  return ctx;
}

}  // namespace moraine
