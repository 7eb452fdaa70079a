// ShapePlans: fails if a proposed shape misses its budget, the rules it stands for, or what the trainer takes.
#include "train/shape_plans.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/parameters.h"
#include "train/run_memory.h"

namespace moraine {
namespace {

RunConfig planned_config() {
  RunConfig c;
  c.model.vocab_size = 4096;
  c.train.slots = 2, c.train.sequence = 256, c.train.batch_tokens = 2 * 4 * 256;
  c.train.steps = 1000;
  c.phases.push_back({.steps = 1000});
  c.data.train = {{"nowhere", 1}};
  c.phases.front().train = c.data.train;
  return c;
}

TEST(ShapePlans, KeepTheirBudgetAndTheRules) {
  const Machine machine = nominal_machine(2);
  for (const int64_t budget : {5'000'000, 50'000'000, 1'000'000'000}) {
    double last = 1e9;
    for (const ShapePlan& p : plan_shapes(planned_config(), machine, 2, {.parameters = budget})) {
      const ModelConfig& m = p.model;
      EXPECT_EQ(p.parameters.total, count_parameters(m).total);
      EXPECT_NEAR(static_cast<double>(p.parameters.total), static_cast<double>(budget),
                  0.05 * static_cast<double>(budget));
      EXPECT_EQ(m.hidden % 64, 0);
      EXPECT_EQ(m.expert_hidden, m.hidden);
      EXPECT_TRUE(m.head_dim == 64 || m.head_dim == 128);
      EXPECT_EQ(m.router_hidden % 32, 0);
      EXPECT_LE(p.peak_share, last);
      last = p.peak_share;
    }
  }
}

// A config that is written is one that train reads, with that shape and what it plans to take.
TEST(ShapePlans, WriteAConfigThatTrainTakes) {
  const Machine machine = nominal_machine(2);
  const RunConfig base = planned_config();
  const ShapePlan plan = plan_shapes(base, machine, 2, {.parameters = 8'000'000}).front();
  const RunConfig read =
      read_run_config(SettingsTable::parse(print_run_config(with_shape(base, plan)), "shape.toml"));
  EXPECT_EQ(read.model.hidden, plan.model.hidden);
  EXPECT_EQ(read.model.layers, plan.model.layers);
  EXPECT_EQ(read.model.heads, plan.model.heads);
  EXPECT_EQ(read.train.micro_sequences, plan.micro_sequences);
  EXPECT_EQ(count_parameters(read.model).total, plan.parameters.total);
  Arena arena(Arena::Mode::kDry);
  plan_run_memory(arena, read, {2}, machine);
  EXPECT_EQ(arena.bytes(), plan.bytes);
}

TEST(ShapePlans, MoreTimeNeverMakesASmallerModel) {
  const Machine machine = nominal_machine(2);
  int64_t last = 0;
  for (const double hours : {0.2, 1.0, 5.0}) {
    const std::vector<ShapePlan> plans =
        plan_shapes(planned_config(), machine, 2, {.seconds = hours * 3600});
    for (const ShapePlan& p : plans) EXPECT_LE(p.run_seconds, hours * 3600);
    EXPECT_GE(plans.front().parameters.active, last) << hours;
    last = plans.front().parameters.active;
  }
}

TEST(ShapePlans, RefuseWhatNothingFits) {
  const Machine machine = nominal_machine(2);
  EXPECT_THROW(plan_shapes(planned_config(), machine, 2, {}), Error);
  EXPECT_THROW(plan_shapes(planned_config(), machine, 2, {.parameters = 1, .seconds = 1}), Error);
  EXPECT_THROW(plan_shapes(planned_config(), machine, 2, {.parameters = 1000}), Error);
  EXPECT_THROW(plan_shapes(planned_config(), machine, 2, {.seconds = 1e-3}), Error);
}

}  // namespace
}  // namespace moraine
