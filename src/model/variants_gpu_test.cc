// Gradients of every block that a model may be made of, on an emulated GPU: fails if one is not what the reference
// computes in double, within what roundings of f32 and of bf16 come to.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/ref/element.h"
#include "model/test_golden_gradients.h"
#include "model/test_gpu_model.h"

namespace moraine {
namespace {

using namespace testing;
using gpu::Emulation;
using gpu::MatrixRule;

struct Variant {
  const char* name;
  std::function<void(ModelConfig&)> change;
};

// Each differs from ZAYA's block in one part, or has them all changed.
const Variant kVariants[] = {
    {"dense", [](ModelConfig& c) { c.experts = 0; }},
    {"gqa", [](ModelConfig& c) { c.attention = AttentionKind::kGqa; }},
    {"linear router", [](ModelConfig& c) { c.router = RouterKind::kLinear; }},
    {"top 2 of all, skip is zero",
     [](ModelConfig& c) { c.experts_per_token = 2, c.skip = SkipKind::kZero; }},
    {"nothing of ZAYA's",
     [](ModelConfig& c) {
       c.attention = AttentionKind::kGqa, c.router = RouterKind::kLinear;
       c.residual = ResidualKind::kPlain, c.skip = SkipKind::kNone, c.experts_per_token = 2;
     }},
};

ModelConfig config_of(const Variant& variant) {
  ModelConfig c;
  c.vocab_size = 37, c.hidden = 16, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 4;
  c.experts = 3, c.expert_hidden = 8, c.router_hidden = 8, c.init_std = 0.3, c.max_positions = 64;
  variant.change(c);
  return c;
}

// The reference in double. Weights are far from initial ones, so that no term hides, and are bf16's.
struct Reference {
  explicit Reference(const ModelConfig& config) : rig(Backend::kRef) {
    const ParameterTable table = build_parameters(config);
    weights = rig.zeros({table.total_count}, DType::kF32);
    initialize_parameters(table, config, 3, weights);
    for (const Parameter& p : table.all) {
      const Tensor t = view(p, weights);
      const bool balances = p.kind == Parameter::Kind::kBalance;
      const Tensor noise =
          rig.normal({t.count()}, DType::kF64, static_cast<uint64_t>(p.offset), balances ? 0 : 0.2);
      for (int64_t i = 0; i < t.count(); ++i) ref::add(t, i, ref::get(noise, i));
      if (balances && config.has_skip()) ref::set(t, t.count() - 1, 0.15);  // skip is used
    }
    weights = rig.copy_as(rig.copy_as(weights, DType::kBF16), DType::kF32);
    master = rig.copy_as(weights, DType::kF64);
    gradients = rig.zeros({table.total_count}, DType::kF64);
    model.emplace(
        arena, config,
        ModelOptions{.compute = DType::kF64, .tokens = kRows, .positions = 64, .training = true},
        master);
    model->refresh(rig.ctx);
    rows.token = rig.integers({kRows}, config.vocab_size, 5);
    rows.position = rig.zeros({kRows}, DType::kI32);
    set_documents(rows, {0, 9, 10});
    target = rig.integers({kRows}, config.vocab_size, 6);
    target.as<int32_t>()[3] = -1;
  }
  Batch batch(int64_t) const { return rows; }

  static constexpr int64_t kRows = 20;
  Rig rig;
  Arena arena{Arena::Mode::kReal};
  Tensor weights, master, gradients, target;
  Batch rows;
  std::optional<Model> model;
};

void expect_gradients_on_gpu(Reference& want, const Conditions& conditions, const Emulation& e,
                             DType compute) {
  const ModelConfig& config = want.model->config();
  GpuModel on(config, want.weights, e,
              {.compute = compute, .tokens = Reference::kRows, .positions = 64, .training = true});
  const Tensor there = on.arena.take("gradients", "gradients", DType::kF32, {want.weights.count()});
  on.model->loss_and_gradients(on.ctx, want.rows, want.target, {there}, {});
  const Tensor got = want.rig.zeros({want.weights.count()}, DType::kF32);
  copy_out(on.ctx, got, there);
  const double tolerance =
      compute == DType::kF32 ? kF32Gradient : bf16_gradient_tolerance(config.layers);
  for (const Parameter& p : on.model->table().all) {
    if (p.kind == Parameter::Kind::kBalance) continue;
    const Tensor mine = view(p, got), its = view(p, want.gradients);
    if (rms(its) == 0) {
      EXPECT_EQ(rms(mine), 0) << p.name;
      continue;
    }
    const Condition& c = conditions.at(p.name);
    const double spread = p.count() < kFew ? c.alike : c.independent;
    EXPECT_LE(relative_distance(mine, its), spread * tolerance) << p.name << ": " << spread;
  }
}

TEST(GpuTraining, GradientsOfEveryBlockAreTheReferences) {
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    Reference want(config_of(variant));
    const Conditions conditions = conditions_of(want);
    expect_gradients_on_gpu(want, conditions, {.wave = 32, .rule = MatrixRule::kSm90}, DType::kF32);
    expect_gradients_on_gpu(want, conditions, {.wave = 64, .rule = MatrixRule::kCdna3},
                            DType::kBF16);
  }
}

}  // namespace
}  // namespace moraine
