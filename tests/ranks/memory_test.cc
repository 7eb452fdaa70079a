// Memory: what a rank takes falls with the ranks as planned: optimizer state by data parallel
// ranks, experts by expert ranks.
//
// Fails if a rank keeps state that another owns, holds experts of another, or takes what was not
// planned.
#include <gtest/gtest.h>

#include <map>

#include "tests/tiny_run.h"
#include "train/run_memory.h"

namespace moraine {
namespace {

RunConfig config_of(int64_t expert) {
  RunConfig c;
  c.model.vocab_size = 5000;
  c.model.hidden = 64, c.model.layers = 3, c.model.heads = 4, c.model.kv_heads = 2;
  c.model.head_dim = 16, c.model.experts = 8, c.model.expert_hidden = 96;
  c.model.router_hidden = 16;
  c.train.slots = 8, c.train.sequence = 64, c.train.batch_tokens = 512, c.train.threads = 1;
  c.phases.push_back({.tokens = 512});
  c.parallel.expert = expert;
  return c;
}

using Bytes =
    std::map<std::string, int64_t>;  // by category, of the copy for saving, and all together

Bytes plan(int ranks, int rank, int64_t expert) {
  Arena arena(Arena::Mode::kDry);
  plan_run_memory(arena, config_of(expert), ranks, rank);
  Bytes bytes;
  for (const Arena::Entry& e : arena.entries()) {
    bytes[e.category] += e.bytes;
    if (e.name.starts_with("checkpoint.")) bytes["saved"] += e.bytes;
  }
  bytes["all"] = arena.bytes();
  return bytes;
}

TEST(RankMemory, OptimizerStateIsDividedByTheRanksThatShareIt) {
  const int64_t whole = plan(1, 0, 1)["optimizer"];
  const ModelConfig model = config_of(1).model;
  const int64_t biases = 2 * 4 * model.layers * model.classes();      // every rank has these
  const int64_t matrix = 4 * 2 * model.expert_hidden * model.hidden;  // largest that stays whole
  const int64_t blocks = 2 * 4 * kShareBlock;                         // AdamW's grid
  for (const int ranks : {2, 4, 8}) {
    for (int64_t expert = 1; expert <= ranks; expert *= 2) {
      int64_t sum = 0;
      for (int r = 0; r < ranks; ++r) {
        const int64_t mine = plan(ranks, r, expert)["optimizer"];
        sum += mine;
        EXPECT_LE(mine, whole / ranks + 2 * matrix + blocks + biases)
            << ranks << " ranks, experts over " << expert;
      }
      EXPECT_EQ(sum, whole + (ranks - 1) * biases) << ranks << " ranks, experts over " << expert;
    }
  }
}

TEST(RankMemory, ExpertsAreDividedByTheExpertRanks) {
  const ParameterTable table = build_parameters(config_of(1).model);
  const int64_t master = 4 * table.expert_count();
  for (const int64_t expert : {2, 4, 8}) {
    const int64_t saved = plan(8, 0, 1)["weights"] - plan(8, 0, expert)["weights"];
    // The master copy, and the packs on top.
    EXPECT_GE(saved, master - master / expert);
  }
}

TEST(RankMemory, TheCopyForSavingIsOnlyThisRanksPart) {
  int64_t sum = 0;
  for (int r = 0; r < 4; ++r) sum += plan(4, r, 2)["saved"];
  const int64_t whole = plan(1, 0, 1)["saved"];
  EXPECT_EQ(sum, whole);
  EXPECT_LT(plan(4, 1, 2)["saved"], whole / 3);
}

TEST(RankMemory, TakenIsPlanned) {
  for (const int64_t expert : {1, 4}) {
    const RunConfig config = config_of(expert);
    const Timeline timeline(config);
    for (const int rank : {0, 3}) {
      Pool pool(1);
      Arena arena(Arena::Mode::kReal);
      PlannedRanks planned(make_mesh(4, rank, expert, 1, config.train.slots, config.model.experts));
      const Trainer trainer(arena, pool, config, timeline, planned.ranks());
      EXPECT_EQ(arena.bytes(), plan(4, rank, expert)["all"]);
    }
  }
}

}  // namespace
}  // namespace moraine
