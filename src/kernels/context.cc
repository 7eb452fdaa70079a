// Takes the scratch of a context from the arena.
#include "kernels/context.h"

namespace moraine {

Context make_context(Backend backend, Pool& pool, Arena& arena) {
  Context ctx;
  ctx.backend = backend;
  ctx.pool = &pool;
  ctx.scratch = arena.take("kernels.worker_scratch", "scratch", DType::kU8,
                           {pool.threads(), kWorkerScratchBytes});
  return ctx;
}

}  // namespace moraine
