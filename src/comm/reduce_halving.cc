// ReduceHalving: each round exchanges half of the partial sums, packed so that a half is one piece.
#include "comm/reduce_halving.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "comm/exchange.h"
#include "comm/tree_sum.h"

namespace moraine {
namespace {

// Place p of the packed sums is of the owner with p's bits reversed: owners that differ in bit 0
// are in different halves, of those that agree in it the ones that differ in bit 1 are in different
// quarters, and so on.
size_t owner_at(size_t place, size_t members) {
  size_t owner = 0;
  for (size_t bit = 1; bit < members; bit *= 2) owner = 2 * owner + ((place & bit) != 0 ? 1 : 0);
  return owner;
}

struct Packed {
  std::vector<size_t> begin;  // [places + 1] of each place's sums
  float* sums;

  std::span<float> places(size_t from, size_t to) const {
    return {sums + begin[from], begin[to] - begin[from]};
  }
};

Packed pack(const float* data, const Shares& merged, std::span<float> scratch) {
  Packed all{.begin = {0}, .sums = scratch.data()};
  for (size_t place = 0; place < merged.size(); ++place) {
    size_t at = all.begin.back();
    for (const Range& r : merged[owner_at(place, merged.size())]) {
      const size_t n = static_cast<size_t>(r.end - r.begin);
      MR_CHECK(2 * (at + n) <= scratch.size(), "%zu of %zu", at + n, scratch.size());
      std::memcpy(all.sums + at, data + r.begin, n * sizeof(float));
      at += n;
    }
    all.begin.push_back(at);
  }
  return all;
}

}  // namespace

void reduce_scatter_halving(Communicator& comm, const Tensor& data, const Shares& merged,
                            std::span<float> scratch) {
  const size_t me = static_cast<size_t>(comm.rank());
  const Packed packed = pack(data.as<float>(), merged, scratch);
  float* const theirs = packed.sums + packed.begin.back();
  Exchange exchange(comm, Operation::kReduceScatter);
  size_t from = 0, to = merged.size();  // places that are kept
  for (size_t bit = 1; bit < merged.size(); bit *= 2) {
    const int partner = static_cast<int>(me ^ bit);
    const size_t middle = (from + to) / 2;
    const bool low = (me & bit) == 0;
    const std::span<float> given = low ? packed.places(middle, to) : packed.places(from, middle);
    (low ? to : from) = middle;
    const std::span<float> mine = packed.places(from, to);
    exchange.send(partner, std::as_bytes(given));  // stays as it is from here on
    exchange.receive(partner, std::as_writable_bytes(std::span(theirs, mine.size())));
    add_floats(mine.data(), mine.data(), theirs, static_cast<int64_t>(mine.size()));
  }
  const float* sum = packed.places(from, to).data();
  for (const Range& r : merged[me]) {
    std::memcpy(data.as<float>() + r.begin, sum,
                static_cast<size_t>(r.end - r.begin) * sizeof(float));
    sum += r.end - r.begin;
  }
  exchange.wait_sent();
}

}  // namespace moraine
