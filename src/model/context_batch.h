// ContextBatch: one rank's rows of a batch of sequences, as a batch.
//
//   ContextParallel context(arena, context_sizes(config, options));      // once
//   Model model(arena, config, {..., .tokens = most rows of a rank, .context = &context}, master);
//   ...
//   ContextRows mine = make_context_rows(layout, comm.rank(), segment_begin);
//   ContextBatch rows = context_batch(mine, tokens, targets, memory);
//   context.begin(ctx, comm, std::move(mine));
//   loss += model.loss_and_gradients(ctx, rows.batch, rows.target, {gradients}, load);
//
// The loss, the gradients and the load are this rank's part: sums over the context group are those
// of the whole batch. The number of targets is summed by the caller as well.
#pragma once

#include "model/batch.h"
#include "model/config.h"
#include "parallel/context_parallel.h"

namespace moraine {

struct ContextOptions {
  ContextVariant variant = ContextVariant::kRing;
  ContextLayout most;  // the largest batch: ranks as it will be, sequences, length
  DType compute = DType::kBF16;
  bool training = false;
};

ContextSizes context_sizes(const ModelConfig& config, const ContextOptions& options);
// For several phases: each field the larger of both.
ContextSizes larger_of(const ContextSizes& a, const ContextSizes& b);

// Where a rank's rows go: [most rows of a rank] i32 each.
struct ContextBatchMemory {
  Tensor token, position, target;
};

struct ContextBatch {
  Batch batch;
  Tensor target;            // [T] i32
  int64_t num_targets = 0;  // >= 0, of this rank's rows
};

// tokens, targets: of the whole batch, [layout.rows()].
ContextBatch context_batch(const ContextRows& mine, std::span<const int32_t> tokens,
                           std::span<const int32_t> targets, const ContextBatchMemory& memory);

}  // namespace moraine
