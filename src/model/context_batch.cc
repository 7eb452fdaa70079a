// ContextBatch: picks a rank's rows out of a batch.
#include "model/context_batch.h"

#include <algorithm>

namespace moraine {

ContextSizes context_sizes(const ModelConfig& c, const ContextOptions& o) {
  return {.variant = o.variant,
          .layers = c.layers,
          .tokens = o.most.most_rows(),
          .rows = o.most.rows(),
          .ranks = o.most.ranks,
          .sequences = o.most.sequences,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .cca = c.cca(),
          .dtype = o.compute,
          .training = o.training};
}

ContextSizes larger_of(const ContextSizes& a, const ContextSizes& b) {
  ContextSizes most = a;
  most.tokens = std::max(a.tokens, b.tokens);
  most.rows = std::max(a.rows, b.rows);
  most.ranks = std::max(a.ranks, b.ranks);
  most.sequences = std::max(a.sequences, b.sequences);
  return most;
}

ContextBatch context_batch(const ContextRows& mine, std::span<const int32_t> tokens,
                           std::span<const int32_t> targets, const ContextBatchMemory& memory) {
  const int64_t T = mine.rows();
  MR_CHECK(
      static_cast<int64_t>(tokens.size()) == mine.layout.rows() && tokens.size() == targets.size(),
      "%zu tokens, %zu targets, %ld rows", tokens.size(), targets.size(), long(mine.layout.rows()));
  ContextBatch out;
  out.batch = {.token = memory.token.rows(0, T),
               .position = memory.position.rows(0, T),
               .segments = mine.segments};
  out.target = memory.target.rows(0, T);
  for (int64_t t = 0; t < T; ++t) {
    const auto row = static_cast<size_t>(mine.row[static_cast<size_t>(t)]);
    out.batch.token.as<int32_t>()[t] = tokens[row];
    out.target.as<int32_t>()[t] = targets[row];
    out.num_targets += targets[row] >= 0 ? 1 : 0;
  }
  for (const Segment& s : mine.segments) {
    for (int64_t t = 0; t < s.rows; ++t) {
      out.batch.position.as<int32_t>()[s.row_begin + t] =
          static_cast<int32_t>(s.position_begin + t);
    }
  }
  return out;
}

}  // namespace moraine
