// StepWork: shares, buckets and blocks as the trainer would make them, counted.
#include "train/step_work.h"

#include <algorithm>

#include "optim/share.h"
#include "train/buckets.h"
#include "train/step_layout.h"

namespace moraine {
namespace {

std::vector<ParameterSpec> specs_of(const RunConfig& c, const ParameterTable& table, bool experts) {
  std::vector<ParameterSpec> group;
  const std::vector<ParameterSpec> specs = optimizer_specs(c, table);
  for (size_t i = 0; i < specs.size(); ++i) {
    if ((table.all[i].kind == Parameter::Kind::kExperts) == experts) group.push_back(specs[i]);
  }
  return group;
}

// What one rank owns of one group, added.
void add_share(OptimizerWork& work, const std::vector<ParameterSpec>& specs,
               const OptimizerShare& share, int newton_schulz_steps) {
  const OptimizerLayout layout = optimizer_layout(specs);
  for (const int64_t index : share.matrices) {
    const MuonMatrix& m = layout.matrices[static_cast<size_t>(index)];
    work.muon_flops += muon_flops(m.rows, m.cols, newton_schulz_steps);
    work.muon_elements += m.rows * m.cols;
  }
  work.adamw_elements += share.adamw_end - share.adamw_begin;
  work.muon_calls += share.matrices.empty() ? 0 : 1;
  work.adamw_calls += share.adamw_end > share.adamw_begin ? 1 : 0;
}

// As OptimizerGroups divides them: experts first, then what is shared evens out.
OptimizerWork most_optimizer_work(const RunConfig& c, const ParameterTable& table,
                                  const Mesh& mesh) {
  const int steps = static_cast<int>(c.optimizer.newton_schulz_steps);
  const std::vector<ParameterSpec> expert_specs = specs_of(c, table, true),
                                   shared_specs = specs_of(c, table, false);
  std::vector<double> expert_cost(static_cast<size_t>(mesh.ranks / mesh.expert), 0.0), cost;
  std::vector<OptimizerShare> experts;
  if (!c.model.dense())
    experts = assign_shares(expert_specs, mesh.ranks / mesh.expert, steps, expert_cost);
  for (int r = 0; r < mesh.ranks; ++r)
    cost.push_back(expert_cost[static_cast<size_t>(r / mesh.expert)]);
  const std::vector<OptimizerShare> shared = assign_shares(shared_specs, mesh.ranks, steps, cost);
  const size_t most =
      static_cast<size_t>(std::max_element(cost.begin(), cost.end()) - cost.begin());
  OptimizerWork work{.muon_calls = 0, .adamw_calls = 0};
  work.momentum_bytes = dtype_bytes(optimizer_options(c).muon.momentum_dtype);
  add_share(work, shared_specs, shared[most], steps);
  if (!experts.empty())
    add_share(work, expert_specs, experts[most / static_cast<size_t>(mesh.expert)], steps);
  work.owned_elements = work.muon_elements + work.adamw_elements;
  return work;
}

std::vector<GradientBucket> buckets_of(const RunConfig& c, const ParameterTable& table,
                                       int64_t bucket_bytes) {
  std::vector<GradientBucket> buckets;
  const auto count = [](const Range& r) { return r.end - r.begin; };
  for (const Bucket& b : gradient_buckets(table, c.model.layers, bucket_bytes)) {
    buckets.push_back(
        {.layers_left = static_cast<double>(b.layer) / static_cast<double>(c.model.layers),
         .shared_elements = count(b.shared),
         .expert_elements = count(b.experts)});
  }
  for (const Range& r : rest_of_gradients(table, c.model.layers))
    buckets.push_back({.shared_elements = count(r)});
  return buckets;
}

// Numbers of the sums that all ranks make of the norm.
int64_t norm_blocks(const ParameterTable& table) {
  int64_t blocks = 0;
  for (const Parameter& p : table.all) {
    const bool experts = p.kind == Parameter::Kind::kExperts;
    const int64_t each = experts ? p.count() / p.dims[0] : p.count();
    blocks += (experts ? p.rows_all : 1) * ((each + kShareBlock - 1) / kShareBlock);
  }
  return blocks;
}

}  // namespace

StepWork step_work(const RunConfig& c, const StepPlan& plan, const Mesh& mesh,
                   const TrainerOptions& options) {
  const ParameterTable table =
      build_parameters(c.model, {.begin = 0, .end = c.model.experts / mesh.expert});
  const int64_t micro = micro_sequences(c, plan);
  StepWork work;
  work.rank = {.model = c.model,
               .compute = compute_dtype(c),
               .recompute = phase_recompute(c, plan.phase),
               .slots = c.train.slots / mesh.data(),
               .micro_batches = slot_sequences(c, plan) / micro,
               .sequences = micro,
               .length = plan.sequence,
               .context = mesh.context,
               .expert = mesh.expert,
               .variant = options.variant,
               .parameters = table.total_count,
               .expert_parameters = table.expert_count(),
               .vector_parameters = table.total_count - table.matrix_count,
               .optimizer = most_optimizer_work(c, table, mesh)};
  if (mesh.ranks > 1) work.buckets = buckets_of(c, table, options.bucket_bytes);
  work.reduce_bytes = c.parallel.reduce_dtype == ReduceDType::kF32 ? 4 : 2;
  work.norm_blocks = norm_blocks(table);
  work.counts = c.model.layers * c.model.classes() + c.train.slots * mesh.context + 1;
  return work;
}

}  // namespace moraine
