// Mixture: a tree of two-way splits, each of which is exact in integers.
#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace moraine {
namespace {

constexpr int kShareBits = 62;  // share <= 2^62 keeps m * share + 1/2 inside 128 bits for every m

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) : weights_(weights) {
  if (weights.empty()) throw_error(Code::kInvalidArgument, "mix data: no source is given");
  double sum = 0;
  for (const double w : weights) {
    if (!(w > 0) || !std::isfinite(w)) {
      throw_error(Code::kInvalidArgument,
                  "mix data: a source has weight {}, want a positive number", w);
    }
    sum += w;
  }
  if (!std::isfinite(sum))
    throw_error(Code::kInvalidArgument, "mix data: the weights' sum is not finite");
  std::set<std::pair<double, int64_t>> open;  // (weight, node), lightest first
  for (size_t i = 0; i < weights.size(); ++i) {
    weights_[i] = weights[i] / sum;
    nodes_.push_back({-1, -1, static_cast<int64_t>(i), 0, weights_[i]});
    open.insert({weights_[i], static_cast<int64_t>(i)});
  }
  while (open.size() > 1) {
    const auto [light, right] = *open.begin();
    open.erase(open.begin());
    const auto [heavy, left] = *open.begin();
    open.erase(open.begin());
    const double both = light + heavy;
    const double share = both > 0 ? heavy / both : 0.5;  // weights may underflow to 0
    nodes_.push_back({left, right, -1, static_cast<uint64_t>(std::ldexp(share, kShareBits)), both});
    open.insert({both, static_cast<int64_t>(nodes_.size()) - 1});
  }
}

int64_t Mixture::left_count(const Node& node, int64_t m) const {
  const unsigned __int128 half = static_cast<unsigned __int128>(1) << (kShareBits - 1);
  const unsigned __int128 scaled = static_cast<unsigned __int128>(m) * node.share + half;
  return static_cast<int64_t>(scaled >> kShareBits);
}

Mixture::Draw Mixture::at(int64_t n) const {
  MR_CHECK(n >= 0);
  const Node* node = &nodes_.back();
  while (node->left >= 0) {
    const int64_t left = left_count(*node, n);
    if (left_count(*node, n + 1) > left) {
      n = left;
      node = &nodes_[static_cast<size_t>(node->left)];
    } else {
      n -= left;
      node = &nodes_[static_cast<size_t>(node->right)];
    }
  }
  return {node->source, n};
}

std::vector<int64_t> Mixture::counts(int64_t n) const {
  MR_CHECK(n >= 0);
  std::vector<int64_t> of_node(nodes_.size(), 0), counts(weights_.size(), 0);
  of_node.back() = n;
  for (int64_t i = static_cast<int64_t>(nodes_.size()) - 1; i >= 0; --i) {
    const Node& node = nodes_[static_cast<size_t>(i)];
    const int64_t m = of_node[static_cast<size_t>(i)];
    if (node.left < 0) {
      counts[static_cast<size_t>(node.source)] = m;
      continue;
    }
    of_node[static_cast<size_t>(node.left)] = left_count(node, m);
    of_node[static_cast<size_t>(node.right)] = m - left_count(node, m);
  }
  return counts;
}

double Mixture::error_bound(int64_t source) const {
  // From the leaf up: error(child) <= share(child) * error(parent) + 1/2; the root has none.
  std::vector<double> bound(nodes_.size(), 0);
  for (int64_t i = static_cast<int64_t>(nodes_.size()) - 1; i >= 0; --i) {
    const Node& node = nodes_[static_cast<size_t>(i)];
    if (node.left < 0) {
      if (node.source == source) return bound[static_cast<size_t>(i)];
      continue;
    }
    const double share = std::ldexp(static_cast<double>(node.share), -kShareBits);
    bound[static_cast<size_t>(node.left)] = share * bound[static_cast<size_t>(i)] + 0.5;
    bound[static_cast<size_t>(node.right)] = (1 - share) * bound[static_cast<size_t>(i)] + 0.5;
  }
  MR_CHECK(false, "source=%ld", long(source));
  return 0;
}

}  // namespace moraine
