// RandomBatch: each token by its place in the run.
#include "bench/random_batch.h"

#include "base/random.h"

namespace moraine {

void read_random(const StepPlan& plan, int64_t vocab, int64_t first, int64_t count,
                 SequenceBatch* out) {
  const int64_t rows = count * plan.sequence;
  out->tokens.resize(static_cast<size_t>(rows));
  out->targets.resize(static_cast<size_t>(rows));
  out->segment_begin.clear();
  out->num_targets = rows;
  for (int64_t i = 0; i < rows; ++i) {
    const uint64_t index = static_cast<uint64_t>((plan.first_sequence + first) * plan.sequence + i);
    out->tokens[static_cast<size_t>(i)] = static_cast<int32_t>(
        random_below(static_cast<uint64_t>(vocab), 1, Stream::kTest, 0, index));
    out->targets[static_cast<size_t>(i)] = static_cast<int32_t>(
        random_below(static_cast<uint64_t>(vocab), 2, Stream::kTest, 0, index));
  }
  for (int64_t i = 0; i < count; ++i) out->segment_begin.push_back(i * plan.sequence);
}

}  // namespace moraine
