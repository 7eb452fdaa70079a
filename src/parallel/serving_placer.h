// ServingPlacer: decides between the steps of a server which experts are guests where, and brings them there.
//
//   end_step   every so many steps all members plan the same guests from the rows that all have seen and the
//              time that each took (parallel/plan_guests.h); layers in which that pays get them in the background
//              (parallel/serving_guests.h), while steps go on with the guests that stay. A later step, when all
//              of it has arrived everywhere, begins to use them.
//
// Rows, or the reading of weights where that takes longer (work_of_rows), are summed over the steps between two plans;
// a new sum is a quarter of the average. Members that are slow (parallel/member_speed.h) get fewer rows; passes of few
// rows say nothing of that, and are not looked at.
// The gate: seconds of the busiest member saved in a step, less the new guests' bytes over the steps until the next
// plan, must be more than `gate` of the busiest member's seconds in the layer. None of this has a bit in any answer.
//
// Errors: kPeerLost. Collective: all members of the group, after each step.
// Cost:   16 bytes to each member at a plan, 8 for each step while weights are under way; the plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/expert_gather.h"
#include "parallel/member_speed.h"
#include "parallel/placement_change.h"
#include "parallel/serving_guests.h"

namespace moraine {

struct ServingPlacement {
  PlacementMode mode = PlacementMode::kStatic;
  int64_t slots = 2;         // experts of each layer that a rank can serve for others
  int64_t every_steps = 32;  // between plans
  double gate = 0.05;        // share of a layer's busiest seconds
  bool across_hosts = true;
  // Of a row, in plans. 0: as measured, and slow members get fewer rows; given, plans are those of the rows alone.
  double row_seconds = 0;
};
// "static", "balanced", "shuffled". Errors: kInvalidArgument.
PlacementMode placement_mode(const std::string& name);

// The slots there are: none while static, and no more than there are experts elsewhere.
GatherPlaces gather_places(const Communicator& comm, const ServingPlacement& placement,
                           int64_t layers, int64_t experts);

struct ServingLoad {
  // Work of recent steps, of the busiest rank over the mean at home: as rows were split, and as it would be at home.
  double rank_load_over_mean = 1, home_load_over_mean = 1;
  int64_t guests = 0;      // in use
  int64_t placed = 0;      // changes since the start
  int64_t bytes_sent = 0;  // of weights, by this rank
};

class ServingPlacer {
 public:
  // Both outlive it; guests: null while static.
  ServingPlacer(ExpertGather& gather, ServingGuests* guests, const ServingPlacement& options);

  void end_step();
  // Guests that came into use since it was last called.
  std::optional<PlacementChange> take_change();
  // Weights are under way: a change that is not in use yet.
  bool sends() const { return coming_.has_value(); }
  const ServingLoad& load() const { return load_; }

 private:
  struct Sums {  // busiest member's work over layers, and level
    double before = 0, after = 0, level = 0;
  };
  void observe();
  void find_costs();
  void plan();
  void plan_layer(int64_t layer, PlacementChange& change, Sums& sums);
  double busiest(std::span<const int64_t> rows, const GuestTable& table) const;
  void send(int64_t layer, const GuestTable& next);
  bool arrived_everywhere();
  void use();
  void shuffle();

  ExpertGather* gather_;
  ServingGuests* guests_;
  ServingPlacement options_;
  int64_t layers_;
  int64_t steps_ = 0;
  bool seen_any_ = false;
  std::vector<int64_t>
      rows_;  // [L, E] by work_of_rows, of the steps between two plans, average, times kRowUnit
  double recent_busiest_ = 0, recent_home_ = 0, recent_all_ = 0;
  RowTime row_time_;              // of this rank, the least between two plans
  double pass_seconds_ = 0;       // of this rank, a row of any pass since the last plan
  std::vector<double> slowness_;  // [P]
  double row_seconds_ = 0;        // of the middle member, a row of any pass
  std::optional<PlacementChange> coming_, came_;
  ServingLoad load_;
};

}  // namespace moraine
