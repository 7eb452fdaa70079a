// What a routed transport says of itself. Breaks if ranks of one job name it differently, or name memory not shared.
#include "comm/routed_transport.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moraine {
namespace {

// Of rank 'rank': its region has the ranks of its host, or it alone where they could not share one.
std::string name_of(int rank, const std::vector<int>& hosts, bool shares) {
  RoutedTransport transport(rank, hosts, "rails");
  std::vector<int> members;
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    const bool is_near = hosts[static_cast<size_t>(r)] == transport.host_of(rank);
    if (r == rank || (shares && is_near)) members.push_back(r);
  }
  HostTransport::Options options;
  options.region = HostRegion::make_private(static_cast<int>(members.size()));
  options.kind = RankKind::kProcesses;
  options.local =
      static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  options.ranks = members;
  options.hosts = hosts;
  transport.set_routes(std::make_unique<HostTransport>(options), nullptr);
  return transport.name();
}

TEST(RoutedTransport, ANameSpeaksOfMemoryIfAnyHostHasSeveralRanks) {
  const std::string shared = "rails (shared memory)", far = "rails";
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(name_of(rank, {0, 0, 0}, true), shared) << "rank " << rank;
    EXPECT_EQ(name_of(rank, {0, 0, 1}, true), shared) << "rank " << rank;
    EXPECT_EQ(name_of(rank, {0, 1, 1}, true), shared) << "rank " << rank;
    EXPECT_EQ(name_of(rank, {0, 1, 0}, true), shared) << "rank " << rank;
    EXPECT_EQ(name_of(rank, {0, 1, 2}, true), far) << "rank " << rank;
    EXPECT_EQ(name_of(rank, {0, 0, 0}, false), far) << "rank " << rank;
  }
}

}  // namespace
}  // namespace moraine
