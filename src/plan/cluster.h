// Cluster: a description of many hosts, and what of it the planner computes with.
//
// File: TOML, docs/formats/cluster.md. Rates of a host come from a machine file that was measured on one like it (or
// scaled: then everything that follows is marked as extrapolated); what was not measured, the links between hosts and
// how often parts fail, is said in the file.
//
// Errors: kInvalidArgument with file, line and key; those of load_machine.
#pragma once

#include <string>

#include "base/file_system.h"
#include "base/settings.h"
#include "plan/place.h"
#include "plan/simulate_cluster.h"

namespace moraine {

struct Cluster {
  std::string machine_path;  // as in the file
  Machine machine;           // of a host, scaled by `speed` and `memory_speed`
  double speed = 1, memory_speed = 1;
  int64_t ranks_per_host = 1, cores = 0;      // 0: the machine's threads
  double memory_gib = 0;                      // of a host; 0: any plan fits
  double near_latency_us = 0, near_gb_s = 0;  // 0: as measured
  double far_latency_us = 50, far_gb_s = 1;   // of one rail
  double write_gb_s = 1;                      // of a host, to where checkpoints are kept
  double slow_mtbf_hours = 0, slow_minutes = 10, slow_factor = 1.3;
  double rank_mtbf_hours = 50000, host_mtbf_hours = 3700, rail_mtbf_hours = 2000,
         rail_repair_hours = 4;
  double gap_seconds = 0.15, detect_seconds = 5, restart_seconds = 60;
  int64_t rails = 2;
};

// The tables of the file, for reading, printing and docs/formats/cluster.md.
struct ClusterTable {
  std::string name;
  Fields fields;
};
std::vector<ClusterTable> cluster_tables(Cluster& cluster);

// A relative path of the machine file is one beside the description.
Cluster read_cluster(FileSystem& fs, const std::string& path);

// Ranks on the first hosts of it: as few hosts as hold them.
Place place_in_cluster(const Cluster& cluster, int64_t ranks);

// Faults of so many ranks; a checkpoint of `state_bytes` over all hosts, of which a rank copies `copy_bytes`.
ClusterFaults cluster_faults(const Cluster& cluster, int64_t ranks, double state_bytes,
                             double copy_bytes);

}  // namespace moraine
