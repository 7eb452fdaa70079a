// Context: takes the scratch memory of a context from the arena.
#include "kernels/context.h"

#include "kernels/isa.h"

namespace moraine {

Context make_context(Backend backend, Pool& pool, Arena& arena) {
  MR_CHECK(backend != Backend::kGpu, "no GPU");
  isa();  // the first call applies MORAINE_ISA to Highway: before any kernel runs
  Context ctx;
  ctx.backend = backend;
  ctx.pool = &pool;
  ctx.scratch = arena.take("kernels.worker_scratch", "scratch", DType::kU8,
                           {pool.threads(), kWorkerScratchBytes});
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
