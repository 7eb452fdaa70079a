// ReplicateAndPack: EPLB, experts on devices where any device may hold any expert: what free slots could reach.
//
//   balanced_packing   items by falling weight, each into the lightest pack that is not full; all packs
//                      get equally many
//   replicate          one replica each, then again and again one more of the expert with the most
//                      load for each replica
//   replicate_and_pack groups of experts into nodes by load, replicas within each node, replicas into its
//                      devices; with one node (or groups that nodes do not divide) all at once
//
// Every replica of an expert counts load / replicas, as if its rows could be split anywhere. Moraine's own
// planner (parallel/plan_placement.h) keeps homes and whole senders; this is what `bench experts` prints beside it.
//
// Source: github.com/deepseek-ai/EPLB, eplb.py (balanced_packing, replicate_experts,
//         rebalance_experts_hierarchical).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moraine {

// The pack of each item. items % packs == 0.
std::vector<int64_t> balanced_packing(std::span<const double> weight, int64_t packs);

struct PackingShape {
  int64_t replicas = 0;  // of all experts together, a multiple of devices, >= experts
  int64_t groups = 1;    // consecutive experts, equally many
  int64_t nodes = 1;
  int64_t devices = 1;  // of all nodes
};

// Load of each device.
std::vector<double> replicate_and_pack(std::span<const double> load, const PackingShape& shape);

}  // namespace moraine
