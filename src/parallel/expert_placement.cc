// ExpertPlacement: tables, and what they come to.
#include "parallel/expert_placement.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace moraine {

bool PlacementShape::may_serve(int64_t member, int64_t expert) const {
  if (hosts.empty()) return true;
  return hosts[static_cast<size_t>(member)] == hosts[static_cast<size_t>(home(expert))];
}

ExpertPlacement static_placement(const PlacementShape& shape) {
  ExpertPlacement placement;
  for (int64_t s = 0; s < shape.members; ++s) {
    for (int64_t e = 0; e < shape.experts; ++e)
      placement.server.push_back(static_cast<int32_t>(shape.home(e)));
  }
  return placement;
}

std::vector<int32_t> guests_of(const PlacementShape& shape, const ExpertPlacement& placement,
                               int64_t member) {
  std::vector<int32_t> guests;
  for (int64_t e = 0; e < shape.experts; ++e) {
    if (shape.home(e) == member) continue;
    for (int64_t s = 0; s < shape.members; ++s) {
      if (placement.server[static_cast<size_t>(s * shape.experts + e)] != member) continue;
      guests.push_back(static_cast<int32_t>(e));
      break;
    }
  }
  return guests;
}

bool is_valid(const PlacementShape& shape, const ExpertPlacement& placement) {
  if (static_cast<int64_t>(placement.server.size()) != shape.members * shape.experts) return false;
  for (size_t i = 0; i < placement.server.size(); ++i) {
    const int64_t member = placement.server[i], e = static_cast<int64_t>(i) % shape.experts;
    if (member < 0 || member >= shape.members) return false;
    if (!shape.may_serve(member, e)) return false;
  }
  for (int64_t m = 0; m < shape.members; ++m) {
    if (static_cast<int64_t>(guests_of(shape, placement, m).size()) > shape.slots) return false;
  }
  return true;
}

std::vector<int64_t> member_work(const PlacementShape& shape, const PlacementLoad& load,
                                 const ExpertPlacement& placement) {
  MR_CHECK(load.rows.size() == placement.server.size(), "%zu loads for %zu servers",
           load.rows.size(), placement.server.size());
  std::vector<int64_t> work(static_cast<size_t>(shape.members), 0);
  for (size_t i = 0; i < load.rows.size(); ++i) {
    const size_t member = static_cast<size_t>(placement.server[i]);
    work[member] += load.rows[i] * load.cost[member];
  }
  return work;
}

int64_t busiest_work(const PlacementShape& shape, const PlacementLoad& load,
                     const ExpertPlacement& placement) {
  const std::vector<int64_t> work = member_work(shape, load, placement);
  return *std::max_element(work.begin(), work.end());
}

// rows = sum over members of level / cost.
int64_t level_work(const PlacementLoad& load) {
  int64_t rows = 0;
  double rate = 0;
  for (const int64_t r : load.rows) rows += r;
  for (const int64_t c : load.cost) rate += 1 / static_cast<double>(c);
  return static_cast<int64_t>(static_cast<double>(rows) / rate);
}

double busiest_over_mean(std::span<const int64_t> work) {
  int64_t sum = 0, most = 0;
  for (const int64_t w : work) sum += w, most = std::max(most, w);
  if (sum == 0) return 1;
  return static_cast<double>(most) * static_cast<double>(work.size()) / static_cast<double>(sum);
}

int64_t new_guests(const PlacementShape& shape, const ExpertPlacement& now,
                   const ExpertPlacement& next) {
  int64_t count = 0;
  for (int64_t m = 0; m < shape.members; ++m) {
    const std::vector<int32_t> had = guests_of(shape, now, m), has = guests_of(shape, next, m);
    std::vector<int32_t> fresh;
    std::set_difference(has.begin(), has.end(), had.begin(), had.end(), std::back_inserter(fresh));
    count += static_cast<int64_t>(fresh.size());
  }
  return count;
}

int64_t guest_count(const PlacementShape& shape, const ExpertPlacement& placement) {
  return new_guests(shape, static_placement(shape), placement);
}

}  // namespace moraine
