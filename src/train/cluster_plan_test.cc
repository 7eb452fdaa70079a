// ClusterPlan: fails if one measured host is planned other than by itself, or what was not measured is not marked.
#include "train/cluster_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "testing/rig.h"
#include "train/run_memory.h"

namespace moraine {
namespace {

RunConfig config_of(int64_t slots) {
  RunConfig c;
  c.model.vocab_size = 500;
  c.model.hidden = 64, c.model.layers = 2, c.model.heads = 4, c.model.kv_heads = 2;
  c.model.head_dim = 16, c.model.experts = 8, c.model.expert_hidden = 64;
  c.model.router_hidden = 16;
  c.train.slots = slots, c.train.sequence = 256, c.train.batch_tokens = slots * 2 * 256;
  c.phases.push_back({.steps = 3});
  return c;
}

Machine measured() {
  Machine m = nominal_machine(8);
  m.measured_utc = "2026-01-02T03:04:05Z";
  m.comm.ranks = 2;
  m.comm.transport = "process";
  m.comm.message_latency_us = 2, m.comm.message_gb_s = 6;
  m.comm.bucket_latency_us = 30, m.comm.bucket_gb_s = 3;
  m.operations = {
      {.name = "linear_forward", .bf16 = true, .threads = 1, .call_us = 2, .factor = 1.3}};
  m.calibration = {.plans = 40,
                   .ranks_most = 8,
                   .rank_correlation = 0.9,
                   .error_median = 0.125,
                   .error_largest = 0.5};
  return m;
}

Cluster cluster_of(const std::string& text) {
  const testing::TempFolder folder;
  FileSystem& fs = posix_file_system();
  save_machine(fs, join_path(folder.path(), "m.json"), measured());
  const std::string path = join_path(folder.path(), "cluster.toml");
  fs.write_atomic(path, text);
  return read_cluster(fs, path);
}

TEST(ClusterPlan, OneMeasuredHostIsPlannedAsThatHost) {
  const RunConfig config = config_of(8);
  const Machine machine = measured();
  for (const int ranks : {1, 2, 4, 8}) {
    const Cluster cluster =
        cluster_of("[host]\nmachine = \"m.json\"\nranks = " + std::to_string(ranks) + "\n");
    const ClusterPlan plan = plan_cluster(config, cluster, ranks, {.interruptions = 100});
    const auto alone = plan_meshes(config, place_on_machine(machine, ranks), machine, ranks, {});
    ASSERT_EQ(plan.meshes.size(), alone.size());
    EXPECT_EQ(plan.ranks, ranks);
    EXPECT_EQ(plan.best.time.seconds, alone.front().time.seconds);
    EXPECT_EQ(plan.best.bytes, alone.front().bytes);
    EXPECT_EQ(plan.best.mesh.expert, alone.front().mesh.expert);
    EXPECT_EQ(plan.best.mesh.context, alone.front().mesh.context);
    EXPECT_EQ(plan.best.time.bytes_far, 0);
    EXPECT_FALSE(plan.is_extrapolated);
  }
}

TEST(ClusterPlan, MarksWhatIsBeyondWhatWasMeasured) {
  const std::string host = "[host]\nmachine = \"m.json\"\nranks = 8\n";
  const ClusterPlan more = plan_cluster(config_of(8), cluster_of(host), 16, {.interruptions = 100});
  EXPECT_TRUE(more.is_extrapolated);
  EXPECT_EQ(more.error, 0.125);
  EXPECT_GT(more.best.time.bytes_far, 0);
  EXPECT_TRUE(
      plan_cluster(config_of(8), cluster_of(host + "speed = 2\n"), 8, {.interruptions = 100})
          .is_extrapolated);
  EXPECT_TRUE(plan_cluster(config_of(8), cluster_of("[host]\nmachine = \"m.json\"\nranks = 16\n"),
                           16, {.interruptions = 100})
                  .is_extrapolated);
}

TEST(ClusterPlan, UsesTheMostRanksThatAMeshCanHave) {
  const Cluster cluster = cluster_of("[host]\nmachine = \"m.json\"\nranks = 8\n");
  const ClusterPlan plan = plan_cluster(config_of(8), cluster, 48, {.interruptions = 100});
  EXPECT_EQ(plan.ranks_asked, 48);
  EXPECT_EQ(plan.ranks, 48);
  EXPECT_EQ(plan.batch_tokens, 48 * 2 * 256);  // a slot for each rank
  EXPECT_EQ(plan_cluster(config_of(8), cluster, 12, {.interruptions = 100}).ranks, 12);
  EXPECT_EQ(plan_cluster(config_of(64), cluster, 48, {.interruptions = 100}).ranks, 32);
  EXPECT_EQ(plan_cluster(config_of(64), cluster, 8, {.interruptions = 100}).batch_tokens,
            64 * 2 * 256);  // enough slots: the config's own batch
}

TEST(ClusterPlan, WhatTheConfigDividesByBoundsNothing) {
  const Cluster cluster = cluster_of("[host]\nmachine = \"m.json\"\nranks = 8\n");
  RunConfig c = config_of(8);
  c.parallel.expert = 8;
  EXPECT_EQ(plan_cluster(c, cluster, 2, {.interruptions = 100}).ranks, 2);
  EXPECT_EQ(plan_cluster(c, cluster, 12, {.interruptions = 100}).ranks, 12);
  c.parallel.expert = 1;
  c.phases.front().context = 4;
  EXPECT_EQ(plan_cluster(c, cluster, 2, {.interruptions = 100}).ranks, 2);
}

TEST(ClusterPlan, FasterLinksNeverHurt) {
  const std::string host = "[host]\nmachine = \"m.json\"\nranks = 4\n";
  double last = 0;
  for (const char* far : {"[far]\ngb_s = 100\n", "[far]\ngb_s = 10\n", "[far]\ngb_s = 1\n",
                          "[far]\ngb_s = 1\nrails = 1\n"}) {
    const double seconds =
        plan_cluster(config_of(16), cluster_of(host + far), 16, {.interruptions = 100})
            .best.time.seconds;
    EXPECT_GE(seconds, last) << far;
    last = seconds;
  }
}

TEST(ClusterPlan, WrongDescriptionsAreRefusedByName) {
  const auto refused = [](const std::string& text, const std::string& why) {
    try {
      cluster_of(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  refused("", "machine");
  refused("[host]\nmachine = \"n.json\"\n", "n.json");
  refused("[host]\nmachine = \"m.json\"\nranks = 0\n", "ranks");
  refused("[host]\nmachine = \"m.json\"\n[fra]\n", "fra");
  refused("[host]\nmachine = \"m.json\"\n[stragglers]\nfactor = 0.5\n", "factor");
}

}  // namespace
}  // namespace moraine
