// PlanCluster: `moraine plan cluster`: a run on more ranks than there are, from a description of the hosts.
#pragma once

#include <cstdint>
#include <string>

#include "cli/flags.h"
#include "train/run_config.h"

namespace moraine {

struct PlanClusterFlags {
  std::string cluster_path, sizes = "8,48,384,10000", chart;
  int64_t interruptions = 2000;
};
void declare_plan_cluster(Flags& flags, PlanClusterFlags* f);

struct ClusterAsked {
  double imbalance = 1;
  int64_t document = 0;
  bool json = false;
};
// On stdout, and the page. config: with vocabulary and type settled.
// Errors: kInvalidArgument for sizes, the description, or a config that no mesh can run.
void print_plan_cluster(const PlanClusterFlags& f, const RunConfig& config,
                        const ClusterAsked& asked);

}  // namespace moraine
