// Checks that the keys which a segment sees are rows of k and v.
#pragma once

#include "base/check.h"
#include "kernels/segment.h"

namespace moraine {

// Positions [0, keys) of the segment's document lie in the R rows of k and v.
inline void check_keys(const Segment& s, int64_t keys, const KeyPages& pages, int64_t R) {
  MR_CHECK(s.key_begin >= 0, "keys begin at %ld", long(s.key_begin));
  if (pages.page.empty()) {
    MR_CHECK(s.key_begin + keys <= R, "keys [%ld, %ld) of %ld rows", long(s.key_begin),
             long(s.key_begin + keys), long(R));
    return;
  }
  constexpr int64_t kUnit = 16;  // keys that are packed together
  MR_CHECK(pages.rows > 0 && pages.rows % kUnit == 0, "pages of %ld rows", long(pages.rows));
  const int64_t last = s.key_begin + (keys + pages.rows - 1) / pages.rows;
  MR_CHECK(last <= static_cast<int64_t>(pages.page.size()), "pages [%ld, %ld) of %zu",
           long(s.key_begin), long(last), pages.page.size());
  for (int64_t i = s.key_begin; i < last; ++i) {
    const int64_t page = pages.page[static_cast<size_t>(i)];
    MR_CHECK(page >= 0 && (page + 1) * pages.rows <= R, "page %ld of %ld rows", long(page),
             long(R));
  }
}

}  // namespace moraine
