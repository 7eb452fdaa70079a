// CacheShare: rows of one block at a time.
#include "parallel/cache_share.h"

namespace moraine {

void add_held_part(const CacheShare& share, const Segment& s, std::vector<Segment>& segments,
                   std::vector<int64_t>& keys) {
  for (int64_t done = 0; done < s.rows;) {
    const int64_t position = s.position_begin + done, inside = position % share.block,
                  rows = std::min(s.rows - done, share.block - inside),
                  visible = share.held_before(position + rows);
    // Positions of the block are here, and each row sees up to its own; or the rows see all that is here, as
    // rows further back would.
    if (visible > 0) {
      segments.push_back(
          {.row_begin = s.row_begin + done,
           .rows = rows,
           .position_begin = share.holds(position) ? visible - rows : visible + inside,
           .key_begin = s.key_begin});
      keys.push_back(visible);
    }
    done += rows;
  }
}

}  // namespace moraine
