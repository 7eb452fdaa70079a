// ExpertPlacement: which member of an expert group serves which rows of one layer.
//
//   home of expert e   the member that holds its weights, optimizer state and checkpoint rows: e / (E / M)
//   server of (s, e)   the member that computes sender s's rows of expert e: the home, or one that has
//                      a copy of e's weights as a guest. All rows of a (sender, expert) go to one member.
//
// A placement moves work, never state: sums of gradients are kept by (sender, expert) whoever computes
// them (parallel/expert_exchange.h), so no bit depends on it.
//
// Shapes: E experts, M members, each of which is also a sender of rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moraine {

struct PlacementShape {
  int64_t experts = 0;          // E, a multiple of M
  int64_t members = 1;          // M
  int64_t slots = 0;            // guests that a member can hold beside its own experts
  std::vector<int> hosts = {};  // of each member: guests stay on their home's host; empty: anywhere

  int64_t held() const { return experts / members; }
  int64_t home(int64_t expert) const { return expert / held(); }
  bool may_serve(int64_t member, int64_t expert) const;  // by host
};

struct ExpertPlacement {
  std::vector<int32_t> server;  // [M, E] by sender, then expert

  friend bool operator==(const ExpertPlacement&, const ExpertPlacement&) = default;
};

// Everybody serves its own experts.
ExpertPlacement static_placement(const PlacementShape& shape);

// The experts that a member serves for others, ascending: at most shape.slots.
std::vector<int32_t> guests_of(const PlacementShape& shape, const ExpertPlacement& placement,
                               int64_t member);

// Empty, or what is wrong: a server that does not exist, too many guests, another host.
bool is_valid(const PlacementShape& shape, const ExpertPlacement& placement);

// What a step of one layer is expected to ask for. Integers: all members plan the same.
struct PlacementLoad {
  std::vector<int64_t> rows;  // [M, E] by sender, then expert
  std::vector<int64_t> cost;  // [M] of one row at a member, in any unit; > 0
};

// Work of each member, rows * cost, [M].
std::vector<int64_t> member_work(const PlacementShape& shape, const PlacementLoad& load,
                                 const ExpertPlacement& placement);
int64_t busiest_work(const PlacementShape& shape, const PlacementLoad& load,
                     const ExpertPlacement& placement);
// The least that any division of the rows could have: all members end together.
int64_t level_work(const PlacementLoad& load);
// Busiest over mean; 1 without rows.
double busiest_over_mean(std::span<const int64_t> work);

// Pairs of (guest, member) that `next` has and `now` has not: copies of weights that must travel.
int64_t new_guests(const PlacementShape& shape, const ExpertPlacement& now,
                   const ExpertPlacement& next);
int64_t guest_count(const PlacementShape& shape, const ExpertPlacement& placement);

}  // namespace moraine
