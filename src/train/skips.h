// Skips: which data rollbacks left out, in the order in which they did.
//
// The order matters where a rollback went back over the border of two phases, and another one followed in the earlier:
// what the later phase left out came first, and the earlier must not read it as it now ends later (run_data.h).
#pragma once

#include <cstdint>
#include <vector>

namespace moraine {

struct Skip {
  int64_t phase = 0;
  int64_t sequences = 0;  // of those that its phase had still to read
  bool operator==(const Skip&) const = default;
};
using Skips = std::vector<Skip>;

inline void add_skip(Skips* skips, const Skip& more) {
  if (!skips->empty() && skips->back().phase == more.phase)
    skips->back().sequences += more.sequences;
  else
    skips->push_back(more);
}

}  // namespace moraine
