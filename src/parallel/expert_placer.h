// ExpertPlacer: decides after a step who serves which experts in the next ones.
//
//   observe   this rank's rows of each expert, and the time it took to compute what it served
//   place     every so many steps: all members learn what all have seen, plan the same
//             (parallel/plan_placement.h), and change the layers that the change pays for
//
// Rows are running averages over steps (a quarter of each new step). Members that are slow
// (parallel/member_speed.h) are found by the least time of a row in the forward passes of a step.
// The gate: seconds of the busiest member saved in a step, less those that more guests cost to send, must be
// more than `gate` of the busiest member's seconds in the layer. None of this has a bit in any answer.
//
// Errors: kPeerLost. Collective: all members of the group.
// Cost:   8 * (L*E + 3) bytes to each member; the plans.
#pragma once

#include <optional>
#include <vector>

#include "parallel/expert_exchange.h"
#include "parallel/member_speed.h"
#include "parallel/placement_change.h"

namespace moraine {

struct PlacerOptions {
  PlacementMode mode = PlacementMode::kBalanced;
  int64_t layers = 0;
  int64_t every_steps = 1;
  double gate = 0;                // share of a layer's busiest seconds
  double bytes_per_second = 5e9;  // between members
  int64_t weight_bytes = 0;       // of a guest, each step
  int64_t gradient_bytes = 0;     // of a guest, for each source, each step
};

class ExpertPlacer {
 public:
  // Both outlive it. comm: of the exchange's members.
  ExpertPlacer(ExpertExchange& exchange, Communicator& comm, const PlacerOptions& options);

  // load: [L, classes] i64, this rank's own rows of the step. work: of the exchange.
  void observe(const Tensor& load, const ExpertWork& work);
  // After `step`, with no exchange or guest under way. Nothing: as it was.
  std::optional<PlacementChange> place(int64_t step);

  // Of the last plan, [M]: 1 as the others, 2 twice as long for a row.
  const std::vector<double>& slowness() const { return slowness_; }

 private:
  struct Seen;  // by all members
  Seen gather() const;
  PlacementLoad layer_load(const Seen& seen, int64_t layer) const;
  double traffic_bytes(const ExpertPlacement& placement) const;
  bool place_layer(const Seen& seen, int64_t layer, PlacementChange& change);
  PlacementChange shuffle(int64_t step);
  void count_guests(PlacementChange& change) const;

  ExpertExchange* exchange_;
  Communicator* comm_;
  PlacerOptions options_;
  bool seen_any_ = false;
  std::vector<int64_t> rows_;        // [L, E] average of this rank's rows, times kRowUnit
  RowTime row_time_, forward_time_;  // of this rank
  double all_served_ = 0;            // rows of all members in a step's passes, average
  std::vector<double> slowness_;
};

}  // namespace moraine
