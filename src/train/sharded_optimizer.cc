// ShardedOptimizer: turns shares into ranges of the flat buffer; collectives do the rest.
#include "train/sharded_optimizer.h"

#include <algorithm>

#include "base/fault_point.h"

namespace moraine {
namespace {

std::vector<Range> merged(const std::vector<OwnedRange>& owned) {
  std::vector<Range> ranges;
  for (const OwnedRange& r : owned) {
    if (!ranges.empty() && ranges.back().end == r.begin) {
      ranges.back().end = r.end;
    } else {
      ranges.push_back({r.begin, r.end});
    }
  }
  return ranges;
}

Shares inside(const Shares& shares, Range part) {
  Shares cut(shares.size());
  for (size_t m = 0; m < shares.size(); ++m) {
    for (const Range& r : shares[m]) {
      const Range common = {std::max(r.begin, part.begin), std::min(r.end, part.end)};
      if (common.begin < common.end) cut[m].push_back(common);
    }
  }
  return cut;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(Arena& arena, std::vector<ParameterSpec> specs,
                                   const ShardedOptimizerOptions& options, Communicator& comm,
                                   std::vector<double>& load)
    : specs_(std::move(specs)), options_(options), comm_(&comm) {
  const std::vector<OptimizerShare> shares =
      assign_shares(specs_, comm.size(), options.rules.muon.ns_steps, load);
  for (const OptimizerShare& share : shares) shares_.push_back(merged(owned_ranges(specs_, share)));
  const OptimizerShare& own = shares[static_cast<size_t>(comm.rank())];
  owned_ = owned_ranges(specs_, own);
  optimizer_ = std::make_unique<Optimizer>(specs_, options.rules, options.threads, arena, own);
}

void ShardedOptimizer::reduce(const Tensor& gradients, Range part) {
  if (comm_->size() == 1 || part.begin == part.end) return;
  reduce_scatter(*comm_, gradients, inside(shares_, part), options_.wire);
}

void ShardedOptimizer::step(Context& ctx, const OptimizerStep& a) {
  fault_point("step.optimizer");
  optimizer_->step(ctx, a);
}

void ShardedOptimizer::gather(Context& ctx, const Tensor& weights) {
  fault_point("step.weights_gather");
  const OpTimer timer(ctx.profile, "ranks: weights (gather)", 0, 0);
  if (comm_->size() > 1) all_gather(*comm_, weights, shares_);
}

}  // namespace moraine
