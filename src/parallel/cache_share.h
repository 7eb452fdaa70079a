// CacheShare: which positions of every sequence a rank's cache holds, if several ranks share one.
//
//   position p is in block p / block; block b is held by member b mod members, one behind the other:
//   position p is then the  held_before(p)-th  that its member holds
//
// So a sequence is spread evenly from its beginning on, and who holds a position depends on nothing but the
// position: an answer has the same bits whatever else is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/segment.h"

namespace moraine {

struct CacheShare {
  int64_t members = 1, member = 0;
  int64_t block = 1;  // positions

  bool holds(int64_t position) const { return position / block % members == member; }
  // How many of the positions [0, position) are here.
  int64_t held_before(int64_t position) const {
    const int64_t round = block * members, rest = position % round - member * block;
    return position / round * block + std::clamp<int64_t>(rest, 0, block);
  }
};

// What the rows of a batch's segment see of the positions held here, in the form of kernels/attention_part.h:
// appended to `segments` and `keys`, a piece for each block that the rows touch; nothing for rows that see none.
void add_held_part(const CacheShare& share, const Segment& segment, std::vector<Segment>& segments,
                   std::vector<int64_t>& keys);

}  // namespace moraine
