// RankProfiles: what every rank measured of the same steps, at the first one.
//
//   row of the table   least, median and most over the ranks of an operation's own time in a step, and whose the most
//                      is; a rank that has no such row counts 0
//
// Order: ranks ascending; rows by kind, then by the most of any rank, then by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/profile.h"

namespace moraine {

struct RankProfile {
  int64_t host = 0;    // as Transport::host_of
  double start = 0;    // now_seconds() behind a barrier: clocks of hosts begin anywhere
  int64_t traced = 0;  // steps that are whole in `events`
  std::vector<Profile::Row> rows;
  std::vector<Profile::Event> events;
  std::shared_ptr<const std::vector<std::string>> names = {};  // of both; null: they are literals
};

// Of all ranks, at rank 0; elsewhere nothing. Collective.
std::vector<RankProfile> gather_profiles(Communicator& world, const RankProfile& mine);

// `steps`: that were measured.
std::string rank_table(std::span<const RankProfile> ranks, int64_t steps);

}  // namespace moraine
