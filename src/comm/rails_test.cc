// Collectives over rails between ranks on addresses of this host. Breaks if a byte lands elsewhere, a rank that ends
// is not named, or a stranger is let in.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "comm/rails/rendezvous.h"
#include "comm/stream.h"
#include "comm/test_rails.h"
#include "comm/test_work.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

void expect_no_errors(const std::vector<std::string>& texts) {
  for (size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], "") << "rank " << r;
}

TEST(Rails, CollectivesOfAllSizesOverOneToThreeRails) {
  for (const int rails : {1, 2, 3}) {
    for (const int ranks : {2, 3, 4}) {
      expect_no_errors(run_on_rails(ranks, rails, [](Transport& t) {
        Communicator comm = world(t);
        for (const int64_t count : {1, 7, 5000, 300000, 3000000}) work(comm, {count});
      }));
    }
  }
}

bool has_ipv6() {
  RailAddress loopback;
  if (!parse_host("::1", &loopback.address)) return false;
  try {
    close(listen_on(&loopback));
  } catch (const Error&) {
    return false;
  }
  return true;
}

RailsOptions over_ipv6(int rank, const std::string& rendezvous, const std::string& rail) {
  RailsOptions options = test_rails(rank, 2, 0, rendezvous);
  if (!rail.empty()) options.rails = {rail};
  return options;
}

TEST(Rails, RanksMeetAndTalkOverIPv6) {
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no ::1";
  for (const char* rail : {"", "::1", "::1/128"}) {  // "": as the rendezvous
    const std::string port = free_local_address().substr(10);
    expect_no_errors(run_with_rails(
        2, [&](int rank) { return over_ipv6(rank, "[::1]:" + port, rail); },
        [](Transport& t) {
          Communicator comm = world(t);
          for (const int64_t count : {1, 300000}) work(comm, {count});
        }));
  }
}

TEST(Rails, RailsOfDifferentKindsAreNamed) {
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no ::1";
  const std::string rendezvous = free_local_address();
  const auto texts = run_with_rails(
      2, [&](int rank) { return over_ipv6(rank, rendezvous, rank == 0 ? "::1" : "127.0.0.1"); },
      [](Transport& t) { world(t); });
  EXPECT_NE(texts[0].find("rail 0 is ::1 here and 127.0.0.1 on rank 1"), std::string::npos)
      << texts[0];
}

// Without a secret anybody may be rank 0.
TEST(Rails, AFalseRankZeroThatSaysNonsenseIsNamed) {
  constexpr const char *kRun = "the number of this run", *kOften = "how often it met in vain",
                       *kWhere = "where rank 0";
  const std::pair<const char*, const char*> kNonsense[] = {
      {"", kRun},
      {"x 0 127.0.0.1:9", kRun},
      {"-1 0 127.0.0.1:9", kRun},
      {"99999999999999999999 0 127.0.0.1:9", kRun},
      {"7x 0 127.0.0.1:9", kRun},
      {"7 x 127.0.0.1:9", kOften},
      {"7 127.0.0.1:9", kOften},
      {"7 0 nowhere", kWhere},
      {"7 0 127.0.0.1:0", kWhere}};
  for (const auto& [nonsense, part] : kNonsense) {
    const std::string rendezvous = free_local_address(), text = nonsense;
    std::thread stranger([&] {
      Rendezvous rank_zero(
          {.member = 0, .members = 2, .address = parse_address(rendezvous), .secret = ""});
      rank_zero.meet();
      rank_zero.exchange(text);
    });
    std::string said;
    try {
      open_rails_transport(test_rails(1, 2, 0, rendezvous));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      said = e.what();
    }
    stranger.join();
    for (const std::string& wanted :
         {fmt::format("rank 0 (rendezvous at {})", rendezvous), std::string(part)})
      EXPECT_NE(said.find(wanted), std::string::npos) << said << " for " << nonsense;
  }
}

std::string said_of(const std::string& text) {
  try {
    return address_text(parse_address(text));
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(RailAddress, OfBothKindsAreReadAsTheyAreWritten) {
  for (const char* text : {"10.77.0.2:4711", "[fd77::2]:4711", "[::]:65535"})
    EXPECT_EQ(said_of(text), text);
  for (const char* text : {"::1:7070", "[::1]", "[::1]7070", "10.77.0.2", ":7070", "[]:7070",
                           "10.77.0.2:0", "10.77.0.2:65536", "[10.77.0.2:7070"})
    EXPECT_NE(said_of(text).find("wanted HOST:PORT"), std::string::npos) << said_of(text);
  EXPECT_NE(said_of("[fe80::1]:7070").find("fe80::1 is link-local"), std::string::npos);
}

// The window of a message that is taken in pieces is 2 MiB: the second goes around it, the third has small pieces.
TEST(Rails, AMessageIsTakenInOddPieces) {
  for (const int rails : {1, 3}) {
    expect_no_errors(run_on_rails(3, rails, [](Transport& t) {
      stream_around(t);
      stream_around(t, 7000003, 300007);
      stream_around(t, 300001, 11);
      stream_around(t, 5000001, 5000001);
      stream_around(t, 1, 1);
    }));
  }
}

TEST(Rails, ChannelsAreUsedAtOnce) {
  expect_no_errors(run_on_rails(3, 2, [](Transport& t) {
    Communicator one = world(t, 0), two = world(t, 1), three = world(t, 2);
    CommStream first, second;
    std::vector<CommHandle> handles;
    for (int i = 0; i < 10; ++i) {
      handles.push_back(first.submit([&two] { work(two, {70000}); }));
      handles.push_back(second.submit([&three] { work(three, {500}); }));
      work(one, {20000});
    }
    for (CommHandle& h : handles) h.wait();
  }));
}

TEST(Rails, AnErrorOfOneRankEndsAllAndNamesIt) {
  const auto texts = run_on_rails(3, 2, [](Transport& t) {
    Communicator comm = world(t);
    barrier(comm);
    if (t.rank() == 1) throw_error(Code::kDiverged, "loss is no number");
    barrier(comm);
  });
  EXPECT_EQ(texts[1], "loss is no number");
  for (const size_t r : {size_t{0}, size_t{2}})
    EXPECT_NE(texts[r].find("because of rank 1: loss is no number"), std::string::npos) << texts[r];
}

// One has gone, by an exception, when the others are not yet where it was.
TEST(Rails, RanksThatEndTogetherAreNotLostForThoseThatComeLater) {
  setenv("MORAINE_HOST_MEMORY", "off", 1);
  const std::string rendezvous = free_local_address();
  constexpr double kSeconds = 20;
  std::vector<std::string> texts(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      std::byte word[8] = {};
      try {
        const std::unique_ptr<Transport> t =
            open_rails_transport(test_rails(rank, 3, 2, rendezvous));
        if (rank == 0) t->receive(2, 0, 7, word, kSeconds);
        if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (rank == 2) t->wait_sent(t->send(0, 0, 7, word, kSeconds), kSeconds);
        t->end_together();
        throw_error(Code::kInterrupted, "all stop");
      } catch (const Error& e) {
        texts[static_cast<size_t>(rank)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  unsetenv("MORAINE_HOST_MEMORY");
  for (const std::string& text : texts) EXPECT_EQ(text, "all stop");
}

TEST(Rails, ARankThatEndedItsWorkIsNamed) {
  const auto texts = run_on_rails(2, 2, [](Transport& t) {
    Communicator comm = world(t);
    barrier(comm);
    if (t.rank() == 0) barrier(comm);
  });
  EXPECT_NE(texts[0].find("rank 1, which left: it has ended its work"), std::string::npos)
      << texts[0];
  EXPECT_EQ(texts[1], "");
}

TEST(Rails, RanksThatDoDifferentThingsAreFoundByTheFirstMessage) {
  const auto texts = run_on_rails(2, 1, [](Transport& t) {
    Communicator comm = world(t);
    std::vector<int64_t> value(1, 3);
    if (t.rank() == 0) barrier(comm);
    if (t.rank() == 1) all_reduce_sum(comm, value);
  });
  EXPECT_NE((texts[0] + texts[1]).find("do different things"), std::string::npos) << texts[0];
}

TEST(Rails, ADeadlineNamesTheRankAndItsRails) {
  std::atomic<bool> ended{false};
  const auto texts = run_on_rails(2, 2, [&ended](Transport& t) {
    Communicator early = world(t, 1), comm = world(t, 0, 0.3);
    try {
      barrier(early);  // both are there
      while (t.rank() == 1 && !ended) std::this_thread::yield();
      if (t.rank() == 1) return;
      barrier(comm);
    } catch (const Error&) {
      ended = true;
      throw;
    }
    ended = true;
  });
  EXPECT_NE(texts[0].find("rank 1, which gives nothing since 0."), std::string::npos) << texts[0];
  EXPECT_NE(texts[0].find("rail 1 (lo, 127.0.2.2:"), std::string::npos) << texts[0];
}

}  // namespace
}  // namespace moraine
