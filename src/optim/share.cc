// Share: matrices to the rank with the least work, experts in runs, AdamW in aligned slices.
#include "optim/share.h"

#include <algorithm>
#include <numeric>

namespace moraine {
namespace {

int64_t lightest(const std::vector<double>& costs) {
  return std::min_element(costs.begin(), costs.end()) - costs.begin();
}

// Ranks by cost, lightest first; equal ones by number.
std::vector<int64_t> by_cost(const std::vector<double>& costs) {
  std::vector<int64_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return costs[static_cast<size_t>(a)] < costs[static_cast<size_t>(b)];
  });
  return order;
}

// Neighbouring matrices of one parameter, [first, first + n) of the layout's.
struct Stack {
  int64_t first = 0, n = 0;
  double cost = 0;  // of one
};

std::vector<Stack> stacks(const OptimizerLayout& layout, int newton_schulz_steps) {
  std::vector<Stack> all;
  for (size_t i = 0; i < layout.matrices.size(); ++i) {
    if (i > 0 && layout.matrix_spec[i] == layout.matrix_spec[i - 1]) {
      ++all.back().n;
      continue;
    }
    const MuonMatrix& m = layout.matrices[i];
    all.push_back({static_cast<int64_t>(i), 1, muon_flops(m.rows, m.cols, newton_schulz_steps)});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Stack& a, const Stack& b) { return a.cost > b.cost; });
  return all;
}

// Every rank floor(n / ranks) of them, the lightest ranks one more, in runs by rank number.
void cut_stack(const Stack& stack, std::vector<OptimizerShare>& shares,
               std::vector<double>& costs) {
  const int64_t ranks = static_cast<int64_t>(shares.size()), extra = stack.n % ranks;
  std::vector<int64_t> count(shares.size(), stack.n / ranks);
  const std::vector<int64_t> order = by_cost(costs);
  for (int64_t i = 0; i < extra; ++i) ++count[static_cast<size_t>(order[static_cast<size_t>(i)])];
  int64_t next = stack.first;
  for (size_t r = 0; r < shares.size(); ++r) {
    for (int64_t k = 0; k < count[r]; ++k) shares[r].matrices.push_back(next++);
    costs[r] += stack.cost * static_cast<double>(count[r]);
  }
}

// Where AdamW's elements may be cut: state offsets of block borders, ascending, with both ends.
std::vector<int64_t> borders(const std::vector<ParameterSpec>& specs,
                             const OptimizerLayout& layout) {
  std::vector<int64_t> all;
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const ParameterSpec& s = specs[static_cast<size_t>(layout.range_spec[i])];
    const int64_t unit = unit_count(s), begin = layout.ranges[i].state_offset;
    for (int64_t u = 0; u < layout.ranges[i].count; u += unit) {
      for (int64_t b = 0; b < unit; b += kShareBlock) all.push_back(begin + u + b);
    }
  }
  all.push_back(layout.adamw_elements);
  return all;
}

}  // namespace

std::vector<OptimizerShare> assign_shares(const std::vector<ParameterSpec>& specs, int ranks,
                                          int newton_schulz_steps, std::vector<double>& costs) {
  const OptimizerLayout layout = optimizer_layout(specs);
  std::vector<OptimizerShare> shares(static_cast<size_t>(ranks));
  for (OptimizerShare& s : shares) s.everything = false;
  for (const Stack& stack : stacks(layout, newton_schulz_steps)) {
    if (stack.n > 1) {
      cut_stack(stack, shares, costs);
      continue;
    }
    const size_t r = static_cast<size_t>(lightest(costs));
    shares[r].matrices.push_back(stack.first);
    costs[r] += stack.cost;
  }
  const std::vector<int64_t> cuts = borders(specs, layout);
  int64_t begin = 0;
  for (int r = 0; r < ranks; ++r) {
    OptimizerShare& share = shares[static_cast<size_t>(r)];
    std::sort(share.matrices.begin(), share.matrices.end());
    const int64_t ideal = layout.adamw_elements / ranks * (r + 1);
    const int64_t end =
        r + 1 == ranks ? layout.adamw_elements : *std::lower_bound(cuts.begin(), cuts.end(), ideal);
    share.adamw_begin = begin;
    share.adamw_end = begin = std::max(begin, end);
  }
  return shares;
}

std::vector<OwnedRange> owned_ranges(const std::vector<ParameterSpec>& specs,
                                     const OptimizerShare& share) {
  const OptimizerLayout layout = optimizer_layout(specs);
  std::vector<OwnedRange> all;
  for (const int64_t index : share.matrices) {
    const MuonMatrix& m = layout.matrices[static_cast<size_t>(index)];
    all.push_back(
        {layout.matrix_spec[static_cast<size_t>(index)], m.offset, m.offset + m.rows * m.cols});
  }
  for (size_t i = 0; i < layout.ranges.size(); ++i) {
    const AdamWRange& range = layout.ranges[i];
    const int64_t begin = std::max(range.state_offset, share.adamw_begin);
    const int64_t end = std::min(range.state_offset + range.count, share.adamw_end);
    const ParameterSpec& s = specs[static_cast<size_t>(layout.range_spec[i])];
    const int64_t unit = unit_count(s);
    for (int64_t at = begin; at < end;) {  // unit by unit
      const int64_t in_range = at - range.state_offset;
      const int64_t stop = std::min(end, range.state_offset + (in_range / unit + 1) * unit);
      all.push_back({layout.range_spec[i], range.offset + in_range,
                     range.offset + stop - range.state_offset});
      at = stop;
    }
  }
  std::sort(all.begin(), all.end(),
            [](const OwnedRange& a, const OwnedRange& b) { return a.begin < b.begin; });
  return all;
}

}  // namespace moraine
