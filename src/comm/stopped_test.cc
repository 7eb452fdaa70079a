// Ranks that are all stopped for longer than their deadline, and go on. Breaks if one gives up for the time in which
// nobody could send.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "comm/host_region.h"
#include "comm/host_transport.h"
#include "comm/test_rails.h"
#include "comm/test_stopped.h"
#include "comm/test_work.h"
#include "comm/watchdog.h"

namespace moraine {
namespace {

using testing::expect_to_go_on_when_stopped;
using OpenRank = std::function<std::unique_ptr<Transport>(int rank)>;

// Rank 0 waits for a message of rank 1.
void expect_that_ranks_go_on(const OpenRank& open) {
  constexpr int kChannel = 1, kLabel = 7;
  const auto wait = [&](StopBoard& board) {
    const std::unique_ptr<Transport> t = open(0);
    Communicator all = world(*t);
    barrier(all);
    ++board.waiting;
    std::byte word[8];
    t->receive(1, kChannel, kLabel, word, kStoppedDeadline);
  };
  const auto send = [&](StopBoard& board) {
    const std::unique_ptr<Transport> t = open(1);
    Communicator all = world(*t);
    barrier(all);
    board.await_go();
    const std::byte word[8] = {};
    t->wait_sent(t->send(0, kChannel, kLabel, word, kTestDeadline), kTestDeadline);
  };
  expect_to_go_on_when_stopped({wait, send});
}

TEST(Stopped, RanksOfAHostGoOn) {
  const auto region = HostRegion::make_private(2);
  expect_that_ranks_go_on([&](int rank) {
    HostTransport::Options options;
    options.region = region;
    options.kind = RankKind::kProcesses;
    options.local = rank;
    options.ranks = {0, 1};
    return std::make_unique<HostTransport>(options);
  });
}

TEST(Stopped, RanksOverRailsGoOn) {
  setenv("MORAINE_HOST_MEMORY", "off", 1);
  const std::string rendezvous = free_local_address();
  expect_that_ranks_go_on(
      [&](int rank) { return open_rails_transport(test_rails(rank, 2, 2, rendezvous)); });
  unsetenv("MORAINE_HOST_MEMORY");
}

TEST(Stopped, AWatchdogWaitsForACallThatCouldNotComeBack) {
  expect_to_go_on_when_stopped({[](StopBoard& board) {
    const Watchdog watchdog(kStoppedDeadline, "the call did not come back");
    ++board.waiting;
    board.await_go();
  }});
}

}  // namespace
}  // namespace moraine
