// AllRanks: the ranks of a transport, this one's place among those of its host, and its end.
#pragma once

#include <numeric>
#include <vector>

#include "base/error.h"
#include "comm/transport.h"

namespace moraine {

inline std::vector<int> all_ranks(const Transport& transport) {
  std::vector<int> all(static_cast<size_t>(transport.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Which of the ranks of this host this one is.
inline int rank_of_host(const Transport& transport) {
  int before = 0;
  for (int r = 0; r < transport.rank(); ++r)
    before += transport.host_of(r) == transport.host_of(transport.rank());
  return before;
}

// This rank ends by an Error, and the others hear of it: at once, unless it is one by which all end at the same place
// (a signal, a run that diverged).
inline void end_by(Transport& transport, const Error& e) {
  const bool all_end = e.code() == Code::kInterrupted || e.code() == Code::kDiverged;
  all_end ? transport.end_together() : transport.fail(e.what());
}

}  // namespace moraine
