// StepWork: fails if the planner counts an operation that a step does not do, or one that it does differently.
#include "train/step_work.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "comm/thread_ranks.h"
#include "train/mesh_plans.h"
#include "train/run_memory.h"
#include "train/run_mesh.h"

namespace moraine {
namespace {

RunConfig base_config() {
  RunConfig c;
  c.model.vocab_size = 300;
  c.model.hidden = 32, c.model.layers = 3, c.model.heads = 4, c.model.kv_heads = 2;
  c.model.head_dim = 16, c.model.experts = 4, c.model.expert_hidden = 24;
  c.model.router_hidden = 16;
  c.model.skip = SkipKind::kNone;  // every row goes to an expert, as the planner assumes
  c.train.slots = 4, c.train.sequence = 64, c.train.batch_tokens = 4 * 4 * 64;
  c.train.micro_sequences = 2, c.train.threads = 1;
  c.phases.push_back({.steps = 1});
  return c;
}

void read_tokens(int64_t length, int64_t vocab, int64_t first, int64_t count, SequenceBatch* out) {
  out->tokens.clear(), out->targets.clear(), out->segment_begin.clear();
  for (int64_t i = 0; i < count * length; ++i) {
    out->tokens.push_back(static_cast<int32_t>((7 * (first * length + i) + 3) % vocab));
    out->targets.push_back(static_cast<int32_t>((5 * (first * length + i) + 1) % vocab));
  }
  for (int64_t i = 0; i < count; ++i) out->segment_begin.push_back(i * length);
  out->num_targets = count * length;
}

using Rows = std::map<std::string, Profile::Row>;

// Operations of one step, all ranks together; and that each rank takes what was planned.
Rows measured(const RunConfig& config, int ranks) {
  std::vector<std::vector<Profile::Row>> of_rank(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](Transport& transport) {
    const Timeline timeline(config);
    Arena arena(Arena::Mode::kReal), planned(Arena::Mode::kDry);
    Ranks world(transport, run_mesh(config, ranks, transport.rank()), 60);
    Pool pool(1);
    Trainer trainer(arena, pool, config, timeline, world,
                    trainer_options(config, timeline, Machine()));
    plan_run_memory(planned, config, ranks, transport.rank());
    EXPECT_EQ(arena.bytes(), planned.bytes());
    trainer.initialize(1);
    trainer.refresh();
    Profile profile;
    trainer.ctx().profile = &profile;
    const StepPlan plan = timeline.at(0);
    SpikeDetector no_spikes(0);
    const auto read = [&](int64_t first, int64_t count, SequenceBatch* out) {
      read_tokens(plan.sequence, config.model.vocab_size, first, count, out);
    };
    trainer.step(plan, 1e-3, read, no_spikes);
    of_rank[static_cast<size_t>(transport.rank())] = profile.rows();
  });
  Rows rows;
  for (const auto& list : of_rank) {
    for (const Profile::Row& r : list) {
      if (r.span != Span::kOperation) continue;
      Profile::Row& sum = rows[r.name];
      sum.calls += r.calls, sum.flops += r.flops, sum.bytes += r.bytes;
    }
  }
  rows.erase("rope_table");  // made once
  return rows;
}

struct Counted {
  double calls = 0, flops = 0, bytes = 0;
};
std::map<std::string, Counted> counted(const RunConfig& config, const Mesh& mesh) {
  const Timeline timeline(config);
  const StepWork work =
      step_work(config, timeline.at(0), mesh, trainer_options(config, timeline, Machine()));
  std::map<std::string, Counted> rows;
  for (const StepOperation& o : step_operations(work.rank)) {
    Counted& sum = rows[o.name];
    sum.calls += o.calls, sum.flops += o.flops, sum.bytes += o.bytes;
  }
  return rows;
}

void expect_same(const RunConfig& config, const std::string& what) {
  SCOPED_TRACE(what);
  const Rows want = measured(config, 1);
  const auto have = counted(config, {});
  EXPECT_EQ(want.size(), have.size());
  for (const auto& [name, row] : want) {
    const auto found = have.find(name);
    if (found == have.end()) {
      ADD_FAILURE() << name << " is not counted";
      continue;
    }
    EXPECT_EQ(static_cast<double>(row.calls), found->second.calls) << name;
    EXPECT_NEAR(row.flops, found->second.flops, 1e-9 * row.flops) << name;
    EXPECT_NEAR(row.bytes, found->second.bytes, 1e-9 * row.bytes) << name;
  }
}

TEST(StepWork, CountsWhatAStepOfOneRankDoes) {
  expect_same(base_config(), "as given");
  RunConfig c = base_config();
  c.train.dtype = Precision::kF32;
  expect_same(c, "f32");
  c = base_config();
  c.model.attention = AttentionKind::kGqa, c.model.router = RouterKind::kLinear;
  c.model.experts_per_token = 2;
  expect_same(c, "plain attention and router, two experts");
  c = base_config();
  c.model.experts = 0, c.optimizer.matrices = MatrixRule::kAdamW;
  expect_same(c, "dense, AdamW");
  c = base_config();
  c.train.recompute = Recompute::kLayer, c.train.micro_sequences = 0, c.train.slots = 1;
  expect_same(c, "recomputed, one slot");
  c = base_config();
  c.model.sliding_window = 17, c.model.sliding_layers = {1};
  c.train.sequence = 256, c.train.batch_tokens = 4 * 4 * 256, c.train.micro_sequences = 0;
  c.optimizer.momentum_dtype = Precision::kBF16;
  expect_same(c, "a window, several blocks of the head, momentum in bf16");
}

// Flops of what is divided over the ranks add up to those of all of them. Rows go to experts as the router says, so
// only their sum is known.
TEST(StepWork, CountsTheFlopsOfAllRanksTogether) {
  for (const Mesh& mesh :
       {Mesh{.ranks = 2, .expert = 2}, Mesh{.ranks = 4, .expert = 2},
        Mesh{.ranks = 2, .context = 2}, Mesh{.ranks = 4, .context = 2, .expert = 4}}) {
    for (const AttentionExchange exchange :
         {AttentionExchange::kRing, AttentionExchange::kGather}) {
      RunConfig c = base_config();
      c.parallel.expert = mesh.expert, c.parallel.context = mesh.context;
      c.parallel.attention = exchange;
      const Rows want = measured(c, mesh.ranks);
      const auto have = counted(c, mesh);
      for (const auto& [name, row] : want) {
        if (name == "muon" || name == "squares_of_ranges") continue;  // the rank that has most
        ASSERT_TRUE(have.contains(name)) << name;
        EXPECT_NEAR(row.flops, mesh.ranks * have.at(name).flops, 0.002 * row.flops)
            << name << " context " << mesh.context << " expert " << mesh.expert;
      }
    }
  }
}

// Every mesh that the trainer's own checks let pass is listed, once, and no other.
TEST(MeshPlans, LeaveNoFeasiblePlanOut) {
  RunConfig c = base_config();
  c.train.slots = 8, c.train.batch_tokens = 8 * 2 * 64;
  c.train.micro_sequences = 0;
  const Machine machine = nominal_machine(2);
  for (int ranks = 1; ranks <= 9; ++ranks) {
    int64_t feasible = 0;
    for (int64_t context = 1; context <= ranks; ++context) {
      for (int64_t expert = 1; expert <= ranks; ++expert) {
        RunConfig at = c;
        at.parallel.context = context, at.parallel.expert = expert;
        try {
          Arena arena(Arena::Mode::kDry);
          plan_run_memory(arena, at, ranks, 0);
          feasible += 2 * 2;  // recomputed or not, one or two sequences at a time
        } catch (const Error&) {
        }
      }
    }
    if (feasible == 0) {
      EXPECT_THROW(plan_meshes(c, place_on_machine(machine, ranks), machine, ranks, {}), Error);
      continue;
    }
    const auto plans =
        plan_meshes(c, place_on_machine(machine, ranks), machine, ranks, {.micro_sequences = true});
    EXPECT_EQ(static_cast<int64_t>(plans.size()), feasible) << ranks;
    for (size_t i = 1; i < plans.size(); ++i)
      EXPECT_LE(plans[i - 1].time.seconds, plans[i].time.seconds);
  }
}

TEST(MeshPlans, BytesAreThoseThatATrainerTakes) {
  RunConfig c = base_config();
  const Machine machine = nominal_machine(2);
  for (const MeshPlan& plan : plan_meshes(c, place_on_machine(machine, 4), machine, 4, {})) {
    const RunConfig at = with_plan(c, plan);
    int64_t taken = 0;
    run_thread_ranks(4, [&](Transport& transport) {
      const Timeline timeline(at);
      Arena arena(Arena::Mode::kReal);
      Ranks world(transport, run_mesh(at, 4, transport.rank()), 60);
      Pool pool(1);
      Trainer trainer(arena, pool, at, timeline, world, trainer_options(at, timeline, machine));
      if (transport.rank() == 0) taken = arena.bytes();
    });
    EXPECT_EQ(plan.bytes, taken) << plan.mesh.context << " " << plan.mesh.expert;
  }
}

TEST(MeshPlans, WhatDoesNotFitComesLast) {
  const Machine machine = nominal_machine(2);
  const Place place = place_on_machine(machine, 2);
  const auto any = plan_meshes(base_config(), place, machine, 2, {});
  int64_t least = INT64_MAX;
  for (const MeshPlan& plan : any) least = std::min(least, plan.bytes);
  const auto limited = plan_meshes(base_config(), place, machine, 2, {.memory_bytes = 2 * least});
  ASSERT_EQ(limited.size(), any.size());
  EXPECT_EQ(limited.front().bytes, least);
  EXPECT_TRUE(limited.front().fits);
  EXPECT_FALSE(limited.back().fits);
}

}  // namespace
}  // namespace moraine
