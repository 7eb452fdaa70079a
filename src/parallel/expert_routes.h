// ExpertRoutes: a placement of one layer as one member of the group sees it.
//
//   as a sender  its rows stand in the order of `order`: member after member, and at each its own
//                experts, then its guests, ascending
//   as a server  group j of sender s's rows here is expert served[s, j], or nobody's: first the experts
//                held here, then guests by slot
//
// Pure: a function of shape, placement and member.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/expert_placement.h"

namespace moraine {

struct ExpertRoutes {
  bool is_static = true;          // order is that of the experts, nobody has guests
  std::vector<int32_t> position;  // [E+1] of an expert's rows among those of this sender; [E] = E
  std::vector<int64_t> member_begin;         // [M+1] positions
  std::vector<int32_t> served;               // [M, El + C] expert, or -1
  std::vector<std::vector<int32_t>> guests;  // of each member, ascending: slot after slot
};

ExpertRoutes make_routes(const PlacementShape& shape, const ExpertPlacement& placement,
                         int64_t member);

}  // namespace moraine
