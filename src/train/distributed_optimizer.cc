// DistributedOptimizer: turns shares into ranges of the flat buffer; collectives do the rest.
#include "train/distributed_optimizer.h"

#include <algorithm>

#include "base/fault_point.h"
#include "comm/share_rounds.h"
#include "kernels/gpu/runtime.h"

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

}  // namespace

DistributedOptimizer::DistributedOptimizer(Arena& arena, std::vector<ParameterSpec> specs,
                                           const DistributedOptimizerOptions& options,
                                           Communicator& comm, std::vector<double>& costs)
    : specs_(std::move(specs)), options_(options), comm_(&comm) {
  const std::vector<OptimizerShare> shares =
      assign_shares(specs_, comm.size(), options.rules.muon.ns_steps, costs);
  for (const OptimizerShare& share : shares) shares_.push_back(merged(owned_ranges(specs_, share)));
  const OptimizerShare& own = shares[static_cast<size_t>(comm.rank())];
  owned_ = owned_ranges(specs_, own);
  optimizer_ = std::make_unique<Optimizer>(specs_, options.rules, options.threads, arena, own);
}

void DistributedOptimizer::reduce(const Tensor& gradients, Range part, Bytes scratch) {
  if (!is_divided() || part.begin == part.end) return;
  reduce_scatter(*comm_, gradients, cut_shares(shares_, part),
                 {.dtype = options_.reduce_dtype, .scratch = scratch});
}

void DistributedOptimizer::reduce(Context& ctx, DeviceCollectives& links, const Tensor& gradients,
                                  Range part, const Tensor& scratch) {
  if (part.begin < part.end)
    links.reduce_scatter(ctx, gradients, cut_shares(shares_, part), scratch);
}

int64_t DistributedOptimizer::reduce_bytes(Range part) const {
  if (!is_divided()) return 0;
  return reduce_scatter_scratch(comm_->size(), part.end - part.begin, options_.reduce_dtype);
}

void DistributedOptimizer::step(Context& ctx, const OptimizerStep& a) {
  fault_point("step.optimizer");
  optimizer_->step(ctx, a);
}

void DistributedOptimizer::take_reduced(Context& ctx, const Tensor& gradients, Staging& staging) {
  if (is_divided()) staging.copy_in(ctx, gradients, share());
}

void DistributedOptimizer::gather(Context& ctx, const Tensor& weights, const DeviceWay& way) {
  fault_point("step.weights_gather");
  if (!is_divided()) return;
  const OpTimer timer(ctx.profile, Span::kRanks, "ranks: weights (gather)");
  if (way.links != nullptr) {
    way.links->all_gather(weights, shares_);
    return way.links->wait();
  }
  Staging* const staging = way.staging;
  if (staging == nullptr) return all_gather(*comm_, weights, shares_);
  staging->copy_out(ctx, weights, share());
  ctx.gpu->wait();
  all_gather(*comm_, staging->host(), shares_);
  for (int m = 0; m < comm_->size(); ++m) {
    if (m != comm_->rank()) staging->copy_in(ctx, weights, shares_[static_cast<size_t>(m)]);
  }
}

}  // namespace moraine
