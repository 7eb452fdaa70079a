// Share: divides an optimizer's state among ranks (ZeRO-1): matrices whole, AdamW in slices.
//
// Every Muon matrix has one owner, so that it is orthogonalised once in the whole run; ranks get
// equal Newton-Schulz cost, as near as whole matrices allow: most expensive first, each to the
// rank that has least. The experts of one parameter are cut into runs, so that a rank's part of a tensor is
// one range of rows. AdamW elements are cut evenly, at borders of kShareBlock elements.
//
// A pure function of the list: every rank computes the same.
// Source: ZeRO, arXiv:1910.02054 (stage 1); Moonlight, arXiv:2502.16982 (distributed Muon).
#pragma once

#include <algorithm>
#include <vector>

#include "optim/optimizer.h"

namespace moraine {

// Elements, from the start of a matrix or a parameter. Sums over gradients are taken in these
// blocks, so that their order does not depend on who owns what.
constexpr int64_t kShareBlock = 65536;

// One share for each of `ranks`. costs[r] is the cost that rank r has already; the new is added.
std::vector<OptimizerShare> assign_shares(const std::vector<ParameterSpec>& specs, int ranks,
                                          int newton_schulz_steps, std::vector<double>& costs);

// Elements [begin, end) of the flat buffer, inside one unit: a matrix, or a whole parameter that
// has none.
struct OwnedRange {
  int64_t spec = 0;  // index in the list
  int64_t begin = 0, end = 0;
};
// What a share moves by gradients: ascending in the flat buffer.
std::vector<OwnedRange> owned_ranges(const std::vector<ParameterSpec>& specs,
                                     const OptimizerShare& share);

// Elements of a spec's unit.
inline int64_t unit_count(const ParameterSpec& s) {
  return s.count / std::max<int64_t>(1, s.matrices);
}

}  // namespace moraine
