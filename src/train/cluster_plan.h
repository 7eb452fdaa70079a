// ClusterPlan: a run's step, and its days, on ranks of a described cluster (plan/cluster.h).
//
// Where the config has fewer slots than there are ranks, slots and batch grow together (weak scaling): one slot for
// each rank; the run is then another run, and its batch is said. Of the ranks that are asked for, all are used, or so
// many that larger groups of experts divide them, whichever computes most tokens in a second; the rest are spares.
//
// Extrapolated: more hosts or more ranks than were measured, or a scaled machine. Its times carry the calibration
// error of the machine file.
#pragma once

#include <vector>

#include "plan/cluster.h"
#include "train/mesh_plans.h"

namespace moraine {

struct ClusterPlan {
  int64_t ranks_asked = 0, ranks = 0;
  MeshPlan best = {};
  std::vector<MeshPlan> meshes = {};  // all that were priced, best first; memory of the best only
  int64_t batch_tokens = 0;
  bool is_extrapolated = false;
  double error = 0;  // of the time, as a share; less than 0: not known
  Reliability reliability = {};
  SimulatedCluster simulated = {};
  double tokens_per_day = 0;  // with what is lost
};

struct ClusterSearch {
  double imbalance = 1;
  int64_t document = 0;
  int64_t interruptions = 2000;  // to simulate
};

// The config with enough slots and batch for so many ranks.
RunConfig grow_batch(const RunConfig& config, int64_t ranks);

ClusterPlan plan_cluster(const RunConfig& config, const Cluster& cluster, int64_t ranks,
                         const ClusterSearch& search);

}  // namespace moraine
