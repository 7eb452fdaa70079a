// Mixture: which source sequence n comes from, as a function of n.
//
// The sources are the leaves of a binary tree (Huffman's, by weight). A node that has handed out m
// sequences has given L(m) = floor(m * p + 1/2) of them to its left child and the rest to the
// right, p being the left share of the node's weight. So after any n, a child of a node is within
// 1/2 of its share of the node's own count, and source i has count_i(n) = n * w_i up to
// error_bound(i): 1/2 for two sources, about 1 for many.
//
// Order:  integer arithmetic on p in 62 fractional bits: the same on every machine.
// Cost:   O(depth of the tree) for a look-up; nothing is stored but the tree.
// Errors: kInvalidArgument: no source, a weight that is not finite and positive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moraine {

class Mixture {
 public:
  explicit Mixture(const std::vector<double>& weights);  // any positive scale

  struct Draw {
    int64_t source;
    int64_t index;  // how many sequences before n came from this source
  };
  Draw at(int64_t n) const;                      // n >= 0
  std::vector<int64_t> counts(int64_t n) const;  // sequences of each source among the first n
  double weight(int64_t source) const { return weights_[static_cast<size_t>(source)]; }  // sum is 1
  double error_bound(int64_t source) const;  // |counts(n)[source] - n * weight| never exceeds it

 private:
  struct Node {
    int64_t left, right;  // nodes; -1: a leaf
    int64_t source;       // of a leaf
    uint64_t share;       // of the left child, in units of 2^-62
    double weight;
  };
  int64_t left_count(const Node& node, int64_t m) const;
  std::vector<double> weights_;
  std::vector<Node> nodes_;  // children before parents; the last is the root
};

}  // namespace moraine
