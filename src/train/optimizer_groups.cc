// The list of parameters, divided by who has them.
#include "train/optimizer_groups.h"

#include <algorithm>

namespace moraine {
namespace {

std::vector<ParameterSpec> group_specs(const RunConfig& c, const ParameterTable& table,
                                       bool experts) {
  std::vector<ParameterSpec> group;
  const std::vector<ParameterSpec> specs = optimizer_specs(c, table);
  for (size_t i = 0; i < specs.size(); ++i) {
    if ((table.all[i].kind == Parameter::Kind::kExperts) == experts) group.push_back(specs[i]);
  }
  return group;
}

}  // namespace

OptimizerGroups::OptimizerGroups(Arena& arena, const RunConfig& config, const ParameterTable& table,
                                 Ranks& ranks, int threads) {
  const Mesh& mesh = ranks.mesh;
  const DistributedOptimizerOptions options{.rules = optimizer_options(config),
                                            .threads = threads,
                                            .reduce_dtype = config.parallel.reduce_dtype};
  std::vector<double> cost(static_cast<size_t>(mesh.ranks / mesh.expert), 0.0);
  if (!config.model.dense()) {
    experts_ = std::make_unique<DistributedOptimizer>(arena, group_specs(config, table, true),
                                                      options, ranks.replicas, cost);
  }
  // Every expert group has the same costs, so rank r's is that of replica r / expert.
  std::vector<double> shared_cost;
  for (int r = 0; r < mesh.ranks; ++r)
    shared_cost.push_back(cost[static_cast<size_t>(r / mesh.expert)]);
  shared_ = std::make_unique<DistributedOptimizer>(arena, group_specs(config, table, false),
                                                   options, ranks.shared, shared_cost);
  all_.push_back(shared_.get());
  if (experts_ != nullptr) all_.push_back(experts_.get());
}

void OptimizerGroups::reduce(const Tensor& gradients, const Bucket& bucket, Bytes scratch) {
  shared_->reduce(gradients, bucket.shared, scratch);
  if (experts_ != nullptr) experts_->reduce(gradients, bucket.experts, scratch);
}

void OptimizerGroups::reduce(Context& ctx, DeviceCollectives& links, const Tensor& gradients,
                             const Bucket& bucket, const Tensor& scratch) {
  shared_->reduce(ctx, links, gradients, bucket.shared, scratch);
  if (experts_ != nullptr) experts_->reduce(ctx, links, gradients, bucket.experts, scratch);
}

std::vector<Range> OptimizerGroups::leaving(const Bucket& bucket) const {
  std::vector<Range> parts;
  if (shared_->is_divided()) parts.push_back(bucket.shared);
  if (experts_ != nullptr && experts_->is_divided()) parts.push_back(bucket.experts);
  return parts;
}

int64_t OptimizerGroups::reduce_bytes(const Bucket& bucket) const {
  return std::max(shared_->reduce_bytes(bucket.shared),
                  experts_ == nullptr ? 0 : experts_->reduce_bytes(bucket.experts));
}

}  // namespace moraine
