// TreeSum: recursion over the tree, with plain loops that the compiler vectorises.
#include "comm/tree_sum.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace moraine {

// ivdep: `out` being `a` hides that no element needs another, and the sum would go one by one.
void add_floats(float* out, const float* a, const float* b, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void widen_bf16(float* out, const BF16* in, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(in[i]);
}

void round_to_bf16(BF16* out, const float* in, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_bf16(in[i]);
}

int64_t TreeSum::floats(int members, int64_t most) {
  const int levels = std::bit_width(static_cast<unsigned>(members)) + 1;
  return 2 * levels * most;
}

void TreeSum::add(const Source& source, float* out, int64_t count) {
  MR_CHECK(count <= most_, "%ld of %ld", long(count), long(most_));
  const float* sum = subtree(source, {0, members_, 0}, out, count);
  if (sum != out) std::memcpy(out, sum, static_cast<size_t>(count) * sizeof(float));
}

const float* TreeSum::subtree(const Source& source, const Node& node, float* out, int64_t count) {
  const int n = node.end - node.begin;
  if (n == 1) return source(node.begin, out, count);
  const int middle = node.begin + static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)) / 2);
  float* pieces = levels_ + 2 * node.level * most_;
  const int below = node.level + 1;
  const float* left = subtree(source, {node.begin, middle, below}, pieces, count);
  const float* right = subtree(source, {middle, node.end, below}, pieces + most_, count);
  add_floats(out, left, right, count);
  return out;
}

}  // namespace moraine
