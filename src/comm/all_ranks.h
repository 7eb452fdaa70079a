// AllRanks: the ranks of a transport, with this one's place among those of its host.
#pragma once

#include <numeric>
#include <vector>

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

}  // namespace moraine
