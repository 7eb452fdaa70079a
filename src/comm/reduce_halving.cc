// ReduceHalving: each round exchanges half of the partial sums, packed in order of owner.
#include "comm/reduce_halving.h"

#include <cstring>
#include <vector>

#include "comm/exchange.h"
#include "comm/tree_sum.h"

namespace moraine {
namespace {

struct Partial {
  std::vector<size_t> owners;
  std::vector<float> sums;  // of their ranges, in this order
};

size_t elements(const std::vector<Range>& ranges) {
  size_t n = 0;
  for (const Range& r : ranges) n += static_cast<size_t>(r.end - r.begin);
  return n;
}

Partial pack(const float* data, const Shares& merged) {
  Partial all;
  for (size_t owner = 0; owner < merged.size(); ++owner) {
    all.owners.push_back(owner);
    for (const Range& r : merged[owner])
      all.sums.insert(all.sums.end(), data + r.begin, data + r.end);
  }
  return all;
}

// The owners whose number has `bit` as `member` has it.
Partial side_of(const Partial& from, const Shares& merged, size_t member, size_t bit) {
  Partial side;
  auto at = from.sums.begin();
  for (const size_t owner : from.owners) {
    const auto end = at + static_cast<std::ptrdiff_t>(elements(merged[owner]));
    if (((owner ^ member) & bit) == 0) {
      side.owners.push_back(owner);
      side.sums.insert(side.sums.end(), at, end);
    }
    at = end;
  }
  return side;
}

}  // namespace

void reduce_scatter_halving(Communicator& comm, const Tensor& data, const Shares& merged) {
  Partial given;  // outlives the exchange that sends it
  Exchange exchange(comm, Operation::kReduceScatter);
  const size_t me = static_cast<size_t>(comm.rank());
  float* const memory = data.as<float>();
  Partial mine = pack(memory, merged);
  for (size_t bit = 1; bit < merged.size(); bit *= 2) {
    const size_t partner = me ^ bit;
    given = side_of(mine, merged, partner, bit);
    mine = side_of(mine, merged, me, bit);
    std::vector<float> theirs(mine.sums.size());
    exchange.send(static_cast<int>(partner), std::as_bytes(std::span(given.sums)));
    exchange.receive(static_cast<int>(partner), std::as_writable_bytes(std::span(theirs)));
    add_floats(mine.sums.data(), mine.sums.data(), theirs.data(),
               static_cast<int64_t>(theirs.size()));
    exchange.wait_sent();
  }
  const float* from = mine.sums.data();
  for (const Range& r : merged[me]) {
    std::memcpy(memory + r.begin, from, static_cast<size_t>(r.end - r.begin) * sizeof(float));
    from += r.end - r.begin;
  }
}

}  // namespace moraine
