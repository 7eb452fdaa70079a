// TreeSum: adds one piece of every member's data in the fixed binary tree of collectives.h.
//
// A tree over n members is a tree over the first 2^k < n plus a tree over the rest:
// ((0+1)+(2+3))+4. Sources are asked for in member order, a leaf at a time, so at most two pieces
// per level are in memory.
#pragma once

#include <cstdint>
#include <functional>

#include "tensor/dtype.h"

namespace moraine {

// out[i] = a[i] + b[i]. `out` may be `a` or `b`.
void add_floats(float* out, const float* a, const float* b, int64_t count);
void widen_bf16(float* out, const BF16* in, int64_t count);
void round_to_bf16(BF16* out, const float* in, int64_t count);

class TreeSum {
 public:
  // A member's piece: memory of its own, or filled into `staging`.
  using Source = std::function<const float*(int member, float* staging, int64_t count)>;

  // Pieces of up to `most` elements. `scratch`: floats(members, most) of them.
  TreeSum(int members, int64_t most, float* scratch)
      : members_(members), most_(most), levels_(scratch) {}
  static int64_t floats(int members, int64_t most);

  // out[0..count) = the sum. `out` may be the memory that a source returns.
  void add(const Source& source, float* out, int64_t count);

 private:
  struct Node {
    int begin, end;  // members
    int level;
  };
  // Sum of a node's members: in `out`, or where a single source keeps it.
  const float* subtree(const Source& source, const Node& node, float* out, int64_t count);

  const int members_;
  const int64_t most_;
  float* const levels_;  // two pieces per level
};

}  // namespace moraine
