// Buckets: finds each layer's parameters by name and joins layers up to the wanted size.
#include "train/buckets.h"

#include <algorithm>
#include <string>

namespace moraine {
namespace {

// Elements of a layer's parameters in [begin, end) of the flat buffer.
Range layer_range(const ParameterTable& table, int64_t layer, int64_t begin, int64_t end) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  Range range = {end, begin};
  for (const Parameter& p : table.all) {
    if (p.offset < begin || p.offset >= end || p.name.compare(0, prefix.size(), prefix) != 0)
      continue;
    range.begin = std::min(range.begin, p.offset);
    range.end = std::max(range.end, p.offset + p.count());
  }
  return range.begin < range.end ? range : Range{begin, begin};
}

Range joined(const Range& low, const Range& high) {
  if (high.begin == high.end) return low;
  return low.begin == low.end ? high : Range{low.begin, high.end};
}

}  // namespace

std::vector<Bucket> gradient_buckets(const ParameterTable& table, int64_t layers,
                                     int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  bool open = false;
  for (int64_t i = layers - 1; i >= 0; --i) {
    const Range shared = layer_range(table, i, 0, table.expert_begin),
                experts = layer_range(table, i, table.expert_begin, table.matrix_count);
    if (!open) buckets.push_back({});
    Bucket& b = buckets.back();
    b = {i, joined(shared, b.shared), joined(experts, b.experts)};
    const int64_t elements = b.shared.end - b.shared.begin + b.experts.end - b.experts.begin;
    open = elements * 4 < bucket_bytes;
  }
  return buckets;
}

std::vector<Range> rest_of_gradients(const ParameterTable& table, int64_t layers) {
  int64_t first = table.expert_begin;
  for (int64_t i = 0; i < layers; ++i) {
    const Range r = layer_range(table, i, 0, table.expert_begin);
    if (r.begin < r.end) first = std::min(first, r.begin);
  }
  return {{0, first}, {table.matrix_count, table.total_count}};
}

}  // namespace moraine
