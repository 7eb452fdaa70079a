// RunConfig: what it says to the layers below: types, layouts of phases, optimizers.
#include "base/check.h"
#include "train/run_config.h"

namespace moraine {

namespace {
DType dtype_of(Precision p) {
  MR_CHECK(p != Precision::kAuto);  // settled before anything asks
  return p == Precision::kBF16 ? DType::kBF16 : DType::kF32;
}
}  // namespace

DType compute_dtype(const RunConfig& c) { return dtype_of(c.train.dtype); }

int64_t phase_context(const RunConfig& c, int64_t phase) {
  const int64_t own = c.phases[static_cast<size_t>(phase)].context;
  return own > 0 ? own : c.parallel.context;
}

int64_t phase_expert(const RunConfig& c, int64_t phase) {
  const int64_t own = c.phases[static_cast<size_t>(phase)].expert;
  return own > 0 ? own : c.parallel.expert;
}

Recompute phase_recompute(const RunConfig& c, int64_t phase) {
  const PhaseRecompute own = c.phases[static_cast<size_t>(phase)].recompute;
  if (own == PhaseRecompute::kAsTrain) return c.train.recompute;
  return own == PhaseRecompute::kLayer ? Recompute::kLayer : Recompute::kNone;
}

bool moves(const RunConfig& c) {
  for (size_t i = 1; i < c.phases.size(); ++i) {
    if (!same_layout(c, 0, static_cast<int64_t>(i))) return true;
  }
  return false;
}

bool replans(const RunConfig& c) {
  return c.parallel.plan != PlanChoice::kGiven && c.parallel.replan_every_steps > 0;
}

bool same_layout(const RunConfig& c, int64_t a, int64_t b) {
  return phase_expert(c, a) == phase_expert(c, b) && phase_recompute(c, a) == phase_recompute(c, b);
}

OptimizerOptions optimizer_options(const RunConfig& config) {
  const OptimizerConfig& c = config.optimizer;
  OptimizerOptions o;
  o.muon.lr = c.learning_rate;
  o.muon.momentum = c.momentum;
  o.muon.nesterov = c.nesterov;
  o.muon.coefficients = c.coefficients;
  o.muon.ns_steps = static_cast<int>(c.newton_schulz_steps);
  o.muon.ns_dtype = dtype_of(c.newton_schulz_dtype);
  o.muon.momentum_dtype = dtype_of(c.momentum_dtype);
  o.muon.weight_decay = c.weight_decay;
  o.adamw = {.lr = c.adamw_learning_rate > 0 ? c.adamw_learning_rate : c.learning_rate,
             .beta1 = c.beta1,
             .beta2 = c.beta2,
             .eps = c.eps,
             .weight_decay = c.weight_decay};
  o.balance = {.lr = c.balance_learning_rate,
               .beta1 = c.balance_beta1,
               .beta2 = c.balance_beta2,
               .warmup_steps = c.balance_warmup_steps,
               .skip = config.model.has_skip()};
  return o;
}

Schedule learning_rate_schedule(const RunConfig& c) {
  return {.shape = c.optimizer.schedule,
          .decay = c.optimizer.decay,
          .warmup = 0,
          .total = 0,
          .decay_fraction = c.optimizer.decay_fraction,
          .floor = c.optimizer.floor};
}

std::vector<ParameterSpec> optimizer_specs(const RunConfig& c, const ParameterTable& table) {
  using Kind = Parameter::Kind;
  using Rule = ParameterSpec::Rule;
  std::vector<ParameterSpec> specs;
  for (const Parameter& p : table.all) {
    ParameterSpec s;
    s.name = p.name;
    s.offset = p.offset;
    s.count = p.count();
    const bool matrix = p.kind == Kind::kMatrix || p.kind == Kind::kExperts;
    s.rule = p.kind == Kind::kBalance                              ? Rule::kBalance
             : matrix && c.optimizer.matrices == MatrixRule::kMuon ? Rule::kMuon
                                                                   : Rule::kAdamW;
    s.weight_decay = matrix || p.kind == Kind::kEmbedding;
    if (p.kind == Kind::kEmbedding) s.lr_scale = c.optimizer.embedding_lr_scale;
    if (p.kind == Kind::kMatrix) s.matrices = 1, s.rows = p.dims[0], s.cols = p.dims[1];
    if (p.kind == Kind::kExperts) s.matrices = p.dims[0], s.rows = p.dims[1], s.cols = p.dims[2];
    if (p.kind == Kind::kBalance) s.matrices = 1, s.rows = 1, s.cols = p.dims[0];
    specs.push_back(s);
  }
  return specs;
}

}  // namespace moraine
