// Share: fails if an element has two owners or none, if a cut leaves the block grid, or if work
// piles up.
#include "optim/share.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

using Rule = ParameterSpec::Rule;

std::vector<ParameterSpec> some_specs() {
  std::vector<ParameterSpec> specs;
  int64_t at = 0;
  const auto add = [&](const char* name, Rule rule, int64_t n, int64_t rows, int64_t cols) {
    specs.push_back({.name = name,
                     .offset = at,
                     .count = n * rows * cols,
                     .matrices = n,
                     .rows = rows,
                     .cols = cols,
                     .rule = rule});
    at += n * rows * cols;
  };
  add("embedding", Rule::kAdamW, 1, 3000, 64);
  for (const char* name : {"q", "k", "v", "o"}) add(name, Rule::kMuon, 1, 64, 48);
  add("big", Rule::kMuon, 1, 256, 64);
  add("up", Rule::kMuon, 6, 96, 64);
  add("down", Rule::kMuon, 5, 64, 48);
  add("stacked", Rule::kAdamW, 3, 700, 100);  // units of 70000: a block and a rest
  add("norm", Rule::kAdamW, 1, 1, 64);
  add("frozen", Rule::kFrozen, 1, 1, 7);
  add("bias", Rule::kBalance, 1, 1, 9);
  return specs;
}

TEST(Share, EveryElementHasOneOwner) {
  const std::vector<ParameterSpec> specs = some_specs();
  const int64_t n = specs.back().offset + specs.back().count;
  for (const int ranks : {1, 2, 3, 4, 8, 16}) {
    std::vector<double> costs(static_cast<size_t>(ranks), 0.0);
    const std::vector<OptimizerShare> shares = assign_shares(specs, ranks, 5, costs);
    std::vector<int> owners(static_cast<size_t>(n), 0);
    for (const OptimizerShare& share : shares) {
      int64_t before = -1;
      for (const OwnedRange& r : owned_ranges(specs, share)) {
        EXPECT_LE(before, r.begin);
        before = r.end;
        const ParameterSpec& s = specs[static_cast<size_t>(r.spec)];
        const int64_t unit = unit_count(s), in_unit = (r.begin - s.offset) % unit;
        EXPECT_EQ(in_unit % kShareBlock, 0) << s.name;
        EXPECT_LE(in_unit + r.end - r.begin, unit) << s.name;
        if (s.rule == Rule::kMuon) {
          EXPECT_EQ(r.end - r.begin, unit) << s.name;
        }
        for (int64_t i = r.begin; i < r.end; ++i) ++owners[static_cast<size_t>(i)];
      }
    }
    for (const ParameterSpec& s : specs) {
      const int want = s.rule == Rule::kMuon || s.rule == Rule::kAdamW ? 1 : 0;
      for (int64_t i = s.offset; i < s.offset + s.count; ++i)
        ASSERT_EQ(owners[static_cast<size_t>(i)], want) << s.name << " on " << ranks;
    }
  }
}

TEST(Share, CostIsLevelUpToOneMatrix) {
  const std::vector<ParameterSpec> specs = some_specs();
  double largest = 0;
  for (const ParameterSpec& s : specs) {
    if (s.rule == Rule::kMuon) largest = std::max(largest, muon_flops(s.rows, s.cols, 5));
  }
  for (const int ranks : {2, 3, 4}) {
    std::vector<double> costs(static_cast<size_t>(ranks), 0.0);
    assign_shares(specs, ranks, 5, costs);
    const auto [low, high] = std::minmax_element(costs.begin(), costs.end());
    EXPECT_LE(*high - *low, largest) << ranks;
    EXPECT_GT(*low, 0);
  }
  // What a rank has already counts: the loaded one gets no more than it must.
  std::vector<double> costs = {1e12, 0.0};
  const std::vector<OptimizerShare> shares = assign_shares(specs, 2, 5, costs);
  EXPECT_LT(shares[0].matrices.size(), shares[1].matrices.size());
}

// A rank's part of a tensor is one range of rows: a checkpoint part.
TEST(Share, ExpertsAreCutInRuns) {
  const std::vector<ParameterSpec> specs = some_specs();
  const OptimizerLayout layout = optimizer_layout(specs);
  for (const int ranks : {2, 3, 4, 8}) {
    std::vector<double> costs(static_cast<size_t>(ranks), 0.0);
    for (const OptimizerShare& share : assign_shares(specs, ranks, 5, costs)) {
      for (size_t i = 1; i < share.matrices.size(); ++i) {
        const auto spec = [&](size_t k) {
          return layout.matrix_spec[static_cast<size_t>(share.matrices[k])];
        };
        if (spec(i) == spec(i - 1)) {
          EXPECT_EQ(share.matrices[i], share.matrices[i - 1] + 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace moraine
