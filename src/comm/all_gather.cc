// All-gather: every member reads every other's ranges, at the same place of its own buffer.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "comm/collectives.h"
#include "comm/exchange.h"
#include "comm/share_rounds.h"

namespace moraine {
namespace {

Bytes range_bytes(const Tensor& data, const Range& r) {
  const int64_t width = dtype_bytes(data.dtype);
  return {static_cast<std::byte*>(data.data) + r.begin * width,
          static_cast<size_t>((r.end - r.begin) * width)};
}

}  // namespace

void all_gather(Communicator& comm, const Tensor& data, const Shares& shares) {
  check_shares(shares, comm.size(), data.count());
  Exchange exchange(comm, Operation::kAllGather);
  if (comm.size() == 1) return;
  const Shares merged = merge_shares(shares);
  const auto& mine = merged[static_cast<size_t>(comm.rank())];
  for (size_t round = 0; static_cast<int64_t>(round) < round_count(merged); ++round) {
    for (int i = 1; i < comm.size() && round < mine.size(); ++i)
      exchange.send(member_after(comm, i), range_bytes(data, mine[round]));
    for (int i = 1; i < comm.size(); ++i) {
      const int m = member_before(comm, i);
      const auto& theirs = merged[static_cast<size_t>(m)];
      if (round < theirs.size()) exchange.receive(m, range_bytes(data, theirs[round]));
    }
  }
  exchange.wait_sent();
}

void all_gather_equal(Communicator& comm, ConstBytes mine, Bytes all) {
  const size_t each = mine.size();
  MR_CHECK(all.size() == each * static_cast<size_t>(comm.size()), "%zu bytes for %d times %zu",
           all.size(), comm.size(), each);
  Exchange exchange(comm, Operation::kAllGatherEqual);
  const auto place = [&](int m) { return all.subspan(static_cast<size_t>(m) * each, each); };
  if (each > 0 && place(comm.rank()).data() != mine.data())
    std::memmove(place(comm.rank()).data(), mine.data(), each);
  const ConstBytes kept = place(comm.rank());
  for (int i = 1; i < comm.size(); ++i) exchange.send(member_after(comm, i), kept);
  for (int i = 1; i < comm.size(); ++i) {
    const int m = member_before(comm, i);
    exchange.receive(m, place(m));
  }
  exchange.wait_sent();
}

}  // namespace moraine
