// AllRanks: the group of all ranks of a transport.
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

}  // namespace moraine
