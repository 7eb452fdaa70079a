// ReplicateAndPack: three greedy steps.
#include "parallel/replicate_and_pack.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace moraine {
namespace {

// The load of each of `replicas` replicas of these experts.
std::vector<double> replicate(std::span<const double> load, int64_t replicas) {
  std::vector<double> count(load.size(), 1);
  for (int64_t r = static_cast<int64_t>(load.size()); r < replicas; ++r) {
    size_t most = 0;
    for (size_t e = 1; e < load.size(); ++e)
      if (load[e] / count[e] > load[most] / count[most]) most = e;
    count[most] += 1;
  }
  std::vector<double> of;
  for (size_t e = 0; e < load.size(); ++e)
    of.insert(of.end(), static_cast<size_t>(count[e]), load[e] / count[e]);
  return of;
}

std::vector<double> pack_sums(std::span<const double> weight, int64_t packs) {
  const std::vector<int64_t> pack = balanced_packing(weight, packs);
  std::vector<double> sums(static_cast<size_t>(packs), 0);
  for (size_t i = 0; i < weight.size(); ++i) sums[static_cast<size_t>(pack[i])] += weight[i];
  return sums;
}

}  // namespace

std::vector<int64_t> balanced_packing(std::span<const double> weight, int64_t packs) {
  const int64_t items = static_cast<int64_t>(weight.size());
  MR_CHECK(packs > 0 && items % packs == 0, "%ld items, %ld packs", long(items), long(packs));
  std::vector<size_t> order(weight.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weight[a] > weight[b]; });
  std::vector<double> sum(static_cast<size_t>(packs), 0);
  std::vector<int64_t> count(sum.size(), 0), pack(weight.size(), 0);
  for (const size_t item : order) {
    int64_t lightest = -1;
    for (int64_t p = 0; p < packs; ++p) {
      if (count[static_cast<size_t>(p)] == items / packs) continue;
      if (lightest < 0 || sum[static_cast<size_t>(p)] < sum[static_cast<size_t>(lightest)])
        lightest = p;
    }
    pack[item] = lightest;
    sum[static_cast<size_t>(lightest)] += weight[item];
    ++count[static_cast<size_t>(lightest)];
  }
  return pack;
}

std::vector<double> replicate_and_pack(std::span<const double> load, const PackingShape& shape) {
  PackingShape s = shape;
  if (s.groups % s.nodes != 0) s.groups = s.nodes = 1;
  const int64_t experts = static_cast<int64_t>(load.size()), each = experts / s.groups;
  MR_CHECK(each * s.groups == experts && s.replicas >= experts && s.devices % s.nodes == 0 &&
           s.replicas % s.devices == 0);
  std::vector<double> group_load(static_cast<size_t>(s.groups), 0);
  for (int64_t e = 0; e < experts; ++e)
    group_load[static_cast<size_t>(e / each)] += load[static_cast<size_t>(e)];
  const std::vector<int64_t> node_of = balanced_packing(group_load, s.nodes);
  std::vector<double> devices;
  for (int64_t node = 0; node < s.nodes; ++node) {
    std::vector<double> here;
    for (int64_t e = 0; e < experts; ++e)
      if (node_of[static_cast<size_t>(e / each)] == node)
        here.push_back(load[static_cast<size_t>(e)]);
    const std::vector<double> sums =
        pack_sums(replicate(here, s.replicas / s.nodes), s.devices / s.nodes);
    devices.insert(devices.end(), sums.begin(), sums.end());
  }
  return devices;
}

}  // namespace moraine
