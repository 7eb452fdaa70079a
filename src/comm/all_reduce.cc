// All-reduce of a few numbers: every member reads all of them and adds in member order.
#include <algorithm>
#include <vector>

#include "comm/collectives.h"

namespace moraine {
namespace {

template <class T>
void sum_of_all(Communicator& comm, std::span<T> values) {
  if (values.empty()) return;
  std::vector<T> all(values.size() * static_cast<size_t>(comm.size()));
  all_gather_equal(comm, std::as_bytes(values), std::as_writable_bytes(std::span(all)));
  std::fill(values.begin(), values.end(), T{0});
  for (size_t i = 0; i < all.size(); ++i) values[i % values.size()] += all[i];
}

}  // namespace

void all_reduce_sum(Communicator& comm, std::span<int64_t> values) { sum_of_all(comm, values); }

void all_reduce_disjoint(Communicator& comm, std::span<double> values) { sum_of_all(comm, values); }

}  // namespace moraine
