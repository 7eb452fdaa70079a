// ExpertRoutes: the same walk over members and their experts on both sides.
#include "parallel/expert_routes.h"

#include "base/check.h"

namespace moraine {

ExpertRoutes make_routes(const PlacementShape& shape, const ExpertPlacement& placement,
                         int64_t member) {
  MR_CHECK(is_valid(shape, placement));
  const int64_t E = shape.experts, M = shape.members, held = shape.held(),
                groups = held + shape.slots;
  const auto serves = [&](int64_t server, int64_t sender, int64_t expert) {
    return placement.server[static_cast<size_t>(sender * E + expert)] == server;
  };
  ExpertRoutes r;
  r.position.assign(static_cast<size_t>(E + 1), static_cast<int32_t>(E));
  r.served.assign(static_cast<size_t>(M * groups), -1);
  // The senders whose rows come here.
  const auto receive = [&](size_t group, int32_t expert) {
    for (int64_t s = 0; s < M; ++s)
      if (serves(member, s, expert)) r.served[static_cast<size_t>(s * groups) + group] = expert;
  };
  int32_t at = 0;
  for (int64_t m = 0; m < M; ++m) {
    r.guests.push_back(guests_of(shape, placement, m));
    std::vector<int32_t> here;
    for (int64_t e = m * held; e < (m + 1) * held; ++e) here.push_back(static_cast<int32_t>(e));
    here.insert(here.end(), r.guests.back().begin(), r.guests.back().end());
    r.member_begin.push_back(at);
    for (size_t j = 0; j < here.size(); ++j) {
      if (serves(m, member, here[j])) r.position[static_cast<size_t>(here[j])] = at++;
      if (m == member) receive(j, here[j]);
    }
  }
  r.member_begin.push_back(at);
  MR_CHECK(at == E, "%d of %ld experts have a place", at, long(E));
  r.is_static = placement == static_placement(shape);
  return r;
}

}  // namespace moraine
