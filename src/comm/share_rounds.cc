// ShareRounds: checks shares and merges ranges that touch.
#include "comm/share_rounds.h"

#include <algorithm>

#include "base/check.h"

namespace moraine {

void check_shares(const Shares& shares, int members, int64_t count) {
  MR_CHECK(static_cast<int>(shares.size()) == members, "%zu shares for %d members", shares.size(),
           members);
  for (const std::vector<Range>& ranges : shares) {
    int64_t end = 0;
    for (const Range& r : ranges) {
      MR_CHECK(r.begin >= end && r.end >= r.begin && r.end <= count, "range [%ld, %ld) of %ld",
               long(r.begin), long(r.end), long(count));
      end = r.end;
    }
  }
}

Shares merge_shares(const Shares& shares) {
  Shares merged(shares.size());
  for (size_t member = 0; member < shares.size(); ++member) {
    std::vector<Range>& out = merged[member];
    for (const Range& r : shares[member]) {
      if (r.begin == r.end) continue;
      if (!out.empty() && out.back().end == r.begin) {
        out.back().end = r.end;
      } else {
        out.push_back(r);
      }
    }
  }
  return merged;
}

Shares cut_shares(const Shares& shares, Range part) {
  Shares cut(shares.size());
  for (size_t m = 0; m < shares.size(); ++m) {
    for (const Range& r : shares[m]) {
      const Range common = {std::max(r.begin, part.begin), std::min(r.end, part.end)};
      if (common.begin < common.end) cut[m].push_back(common);
    }
  }
  return cut;
}

int64_t round_count(const Shares& merged) {
  size_t most = 0;
  for (const std::vector<Range>& ranges : merged) most = std::max(most, ranges.size());
  return static_cast<int64_t>(most);
}

}  // namespace moraine
