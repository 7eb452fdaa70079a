// Rendezvous: ranks that find each other, and those that do not. Breaks if a wrong rank, number or secret is let in or
// is not told so, if rank 0 does not say who is missing, or if a text comes out other than it went in.
#include "comm/rails/rendezvous.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <optional>

#include "base/error.h"
#include "comm/rails/rail_address.h"
#include "comm/rails/test_guest.h"

namespace moraine {
namespace {

using Texts = std::vector<std::string>;

struct Outcome {
  std::optional<Code> code;  // of the Error
  std::string text;
};

using Work = std::function<void(Rendezvous& rendezvous)>;

std::future<Outcome> come(const Rendezvous::Options& options, const Work& work = {}) {
  return std::async(std::launch::async, [options, work]() -> Outcome {
    try {
      Rendezvous rendezvous(options);
      rendezvous.meet();
      if (work) work(rendezvous);
      return {};
    } catch (const Error& e) {
      return {e.code(), e.what()};
    }
  });
}

Rendezvous::Options options_of(int rank, int ranks, const SocketAddress& address) {
  return {
      .member = rank, .members = ranks, .address = address, .secret = "of this job", .seconds = 30};
}

SocketAddress test_address() { return parse_address(free_local_address()); }

void expect_error(const Outcome& outcome, Code code, const std::string& part) {
  EXPECT_TRUE(outcome.code.has_value() && *outcome.code == code) << outcome.text;
  EXPECT_NE(outcome.text.find(part), std::string::npos) << outcome.text;
}

// Until somebody listens there.
TestGuest knock_until_open(const SocketAddress& address) {
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, address.data(), address.size()) == 0) return TestGuest(fd);
    close(fd);
    std::this_thread::yield();
  }
}

TEST(Rendezvous, EveryRankHearsEveryText) {
  for (const int ranks : {1, 2, 5}) {
    const SocketAddress address = test_address();
    const auto talk = [ranks](int rank, Rendezvous& r) {
      const std::string large(64 << 10, static_cast<char>('a' + rank));
      for (int round = 0; round < 3; ++round) {
        Texts short_ones, large_ones;
        for (int i = 0; i < ranks; ++i) {
          short_ones.push_back(i == round ? "12 text of " + std::to_string(i) : "");
          large_ones.emplace_back(64 << 10, static_cast<char>('a' + i));
        }
        EXPECT_EQ(r.exchange(short_ones[static_cast<size_t>(rank)]), short_ones);
        EXPECT_EQ(r.exchange(large), large_ones);
      }
      EXPECT_EQ(address_text(r.own_address()).substr(0, 10), "127.0.0.1:");
    };
    std::vector<std::future<Outcome>> outcomes;
    for (int rank = ranks - 1; rank >= 0; --rank)
      outcomes.push_back(
          come(options_of(rank, ranks, address), [rank, talk](Rendezvous& r) { talk(rank, r); }));
    for (std::future<Outcome>& o : outcomes) EXPECT_EQ(o.get().text, "");
  }
}

TEST(Rendezvous, AnotherNumberOfRanksIsSaidToWhoComes) {
  for (const int number : {2, 4}) {
    const SocketAddress address = test_address();
    auto host = come(options_of(0, 3, address)), two = come(options_of(2, 3, address));
    expect_error(come(options_of(1, number, address)).get(), Code::kInvalidArgument,
                 fmt::format("the job has another number of ranks than {}", number));
    EXPECT_EQ(come(options_of(1, 3, address)).get().text, "");
    EXPECT_EQ(host.get().text + two.get().text, "");
  }
}

TEST(Rendezvous, ARankThatIsTakenIsSaidToWhoComes) {
  for (int i = 0; i < 20; ++i) {
    const SocketAddress address = test_address();
    std::vector<std::future<Outcome>> twins;
    auto host = come(options_of(0, 3, address));
    for (int twin = 0; twin < 3; ++twin) twins.push_back(come(options_of(1, 3, address)));
    const auto has_been_told = [](const std::future<Outcome>& twin) {
      return twin.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
    };
    while (std::count_if(twins.begin(), twins.end(), has_been_told) < 2) continue;
    EXPECT_EQ(come(options_of(2, 3, address)).get().text, "");
    EXPECT_EQ(host.get().text, "");
    int let_in = 0;
    for (std::future<Outcome>& twin : twins) {
      const Outcome outcome = twin.get();
      let_in += !outcome.code.has_value();
      if (outcome.code.has_value())
        expect_error(outcome, Code::kInvalidArgument, "another process is rank 1 already");
    }
    EXPECT_EQ(let_in, 1);
  }
}

TEST(Rendezvous, BothSidesMustKnowTheSecret) {
  const std::pair<const char*, const char*> pairs[] = {{"one", "two"}, {"one", ""}, {"", "two"}};
  for (const auto& [of_host, of_guest] : pairs) {
    const SocketAddress address = test_address();
    Rendezvous::Options host = options_of(0, 2, address), guest = options_of(1, 2, address);
    host.secret = of_host;
    host.seconds = 3;  // for its guest to come
    guest.secret = of_guest;
    ::testing::internal::CaptureStderr();
    auto outcome = come(host);
    expect_error(come(guest).get(), Code::kInvalidArgument, "does not know the secret of this job");
    expect_error(outcome.get(), Code::kPeerLost, "missing: 1;");
    EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                  "rails.refused rank=1 ranks=2 reason=\"it left"),
              std::string::npos);
  }
}

TEST(Rendezvous, StrangersAreDroppedAndTheRanksMeet) {
  const SocketAddress address = test_address();
  auto host = come(options_of(0, 2, address));
  TestGuest silent = knock_until_open(address), garbage(address), browser(address);
  garbage.send_text(std::string(1000, '\xff'));
  browser.send_text("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_TRUE(garbage.is_closed());
  EXPECT_TRUE(browser.is_closed());
  { TestGuest knock(address); }
  TestGuest liar(address);  // says that it is rank 1, and does not prove it
  const struct {
    Join join = {.member = 1, .members = 2, .generation = 0, .nonce = {}};
    RailProof proof = {};
  } join;
  liar.send(join);
  EXPECT_TRUE(liar.is_closed());
  EXPECT_EQ(come(options_of(1, 2, address)).get().text, "");
  EXPECT_EQ(host.get().text, "");
  EXPECT_TRUE(silent.is_closed());
}

TEST(Rendezvous, WhoWaitsForNobodySaysWhoIsMissing) {
  for (const int ranks : {2, 4, 100}) {
    const SocketAddress address = test_address();
    Rendezvous::Options options = options_of(0, ranks, address);
    options.seconds = ranks == 4 ? 3 : 0.3;  // for rank 2 to come
    auto two = ranks == 4 ? come(options_of(2, 4, address)) : std::future<Outcome>();
    const char* wanted = ranks == 2   ? "1 of 2 ranks are here; missing: 1;"
                         : ranks == 4 ? "2 of 4 ranks are here; missing: 1, 3;"
                                      : "15, 16, ... (99 ranks)";
    expect_error(come(options).get(), Code::kPeerLost, wanted);
    if (two.valid()) expect_error(two.get(), Code::kPeerLost, "rank 0 left");
  }
}

TEST(Rendezvous, WhoFindsNobodySaysSo) {
  Rendezvous::Options options = options_of(1, 2, test_address());
  options.seconds = 0.3;
  expect_error(come(options).get(), Code::kPeerLost,
               "nobody answers since 0 seconds; wanted rank 0");
}

// The system accepts no more connections there, and drops what asks for one: as a host behind a broken link.
TEST(Rendezvous, AHostThatIsSilentHoldsUpNobodyForEver) {
  SocketAddress address = SocketAddress::ipv4(INADDR_LOOPBACK, 0);
  socklen_t bytes = SocketAddress::kMostSize;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, address.data(), address.size()), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  ASSERT_EQ(getsockname(listener, address.data(), &bytes), 0);
  TestGuest only(address);
  Rendezvous::Options options = options_of(1, 2, address);
  options.seconds = 0.3;
  auto outcome = come(options);
  const auto state = outcome.wait_for(std::chrono::seconds(TestGuest::kGuestSeconds));
  close(listener);
  ASSERT_EQ(state, std::future_status::ready);
  expect_error(outcome.get(), Code::kPeerLost, "nobody answers");
}

TEST(Rendezvous, ARankThatLeavesIsNamedByTheHost) {
  const SocketAddress address = test_address();
  const auto talk = [](Rendezvous& r) { r.exchange("once"); };
  auto host = come(options_of(0, 3, address), [&talk](Rendezvous& r) {
    talk(r);
    r.exchange("twice");
  });
  auto one = come(options_of(1, 3, address), [](Rendezvous& r) {
    r.exchange("once");
    r.exchange("twice");
  });
  EXPECT_EQ(come(options_of(2, 3, address), talk).get().text, "");
  expect_error(host.get(), Code::kPeerLost, "rank 2 left while the ranks were joining");
  expect_error(one.get(), Code::kPeerLost, "rank 0 left while the ranks were joining");
}

// A job whose lost ranks are replaced ----------------------------------------------------------------

Rendezvous::Options lasting_options(int member, int members, const SocketAddress& address) {
  Rendezvous::Options options = options_of(member, members, address);
  options.replace_seconds = 20;
  options.most_ranks = [](int present) { return present >= 4 ? 4 : present >= 2 ? 2 : 0; };
  return options;
}

// Meets until it is in a group of `ranks`; which generation and members that has, as text.
std::string meet_until(Rendezvous& rendezvous, size_t ranks) {
  for (;;) {
    const Rendezvous::Group group = rendezvous.meet();
    std::string text = fmt::format("{}:", group.generation);
    for (const int member : group.members) text += fmt::format(" {}", member);
    const Texts all = rendezvous.exchange(text);
    EXPECT_EQ(all, Texts(group.members.size(), text));
    rendezvous.part();
    if (group.members.size() == ranks) return text;
  }
}

TEST(Rendezvous, AnyLostMemberIsReplacedUnderANewGeneration) {
  constexpr int kMembers = 4;
  for (int lost = 0; lost < kMembers; ++lost) {
    const SocketAddress address = test_address();
    std::vector<std::future<Outcome>> outcomes;
    for (int m = 0; m < kMembers; ++m) {
      outcomes.push_back(come(lasting_options(m, kMembers, address), [m, lost](Rendezvous& r) {
        r.exchange("first");
        r.part();
        if (m == lost) return;  // its process is gone
        EXPECT_EQ(meet_until(r, kMembers), "2: 0 1 2 3");
      }));
    }
    EXPECT_EQ(outcomes[static_cast<size_t>(lost)].get().text, "");
    outcomes[static_cast<size_t>(lost)] =
        come(lasting_options(lost, kMembers, address), [](Rendezvous& r) {
          EXPECT_EQ(r.exchange("2: 0 1 2 3"), Texts(kMembers, "2: 0 1 2 3"));
          r.part();
        });
    for (std::future<Outcome>& o : outcomes) EXPECT_EQ(o.get().text, "");
  }
}

// A host that was cut off for a while: its rank is in the group of now by another process, which must not be the one
// that is refused when both come again.
TEST(Rendezvous, AMemberThatWasReplacedIsRefusedWhenItComesBack) {
  constexpr int kMembers = 4;
  const SocketAddress address = test_address();
  std::promise<void> has_left, is_replaced, is_answered;
  const std::shared_future<void> answered = is_answered.get_future().share();
  const auto go_on = [&](Rendezvous& r) {
    EXPECT_EQ(meet_until(r, kMembers), "2: 0 1 2 3");
    if (r.group().rank == 0) is_replaced.set_value();
    answered.wait();
  };
  std::vector<std::future<Outcome>> outcomes;
  for (int m = 0; m < kMembers; ++m) {
    outcomes.push_back(come(lasting_options(m, kMembers, address), [&, m](Rendezvous& r) {
      r.exchange("first");
      r.part();
      if (m != 2) return go_on(r);
      has_left.set_value();
      is_replaced.get_future().wait();
      r.meet();
    }));
  }
  has_left.get_future().wait();
  auto successor = come(lasting_options(2, kMembers, address), [&](Rendezvous& r) {
    EXPECT_EQ(r.exchange("2: 0 1 2 3"), Texts(kMembers, "2: 0 1 2 3"));
    r.part();
    answered.wait();
  });
  expect_error(outcomes[2].get(), Code::kInvalidArgument, "another process is rank 2 already");
  is_answered.set_value();
  EXPECT_EQ(successor.get().text, "");
  for (const size_t m : {size_t{0}, size_t{1}, size_t{3}}) EXPECT_EQ(outcomes[m].get().text, "");
}

TEST(Rendezvous, WithoutAReplacementTheGroupShrinksAndGrowsAgain) {
  constexpr int kMembers = 4;
  const SocketAddress address = test_address();
  std::vector<std::future<Outcome>> outcomes;
  std::promise<void> has_shrunk;
  for (int m = 0; m < kMembers; ++m) {
    Rendezvous::Options options = lasting_options(m, kMembers, address);
    if (m == 0) options.replace_seconds = 3;  // for those to come who are left
    outcomes.push_back(come(options, [m, &has_shrunk](Rendezvous& r) {
      r.exchange("first");
      r.part();
      if (m == 1) return;
      if (m == 3) {  // not needed until the group is whole again
        EXPECT_EQ(meet_until(r, kMembers), "3: 0 1 2 3");
        return;
      }
      EXPECT_EQ(meet_until(r, 2), "2: 0 2");
      if (m == 0) has_shrunk.set_value();
      while (m == 0 && !r.has_newcomers()) std::this_thread::yield();
      EXPECT_EQ(meet_until(r, kMembers), "3: 0 1 2 3");
    }));
  }
  EXPECT_EQ(outcomes[1].get().text, "");
  has_shrunk.get_future().wait();
  outcomes[1] = come(lasting_options(1, kMembers, address), [](Rendezvous& r) {
    EXPECT_EQ(r.exchange("3: 0 1 2 3"), Texts(kMembers, "3: 0 1 2 3"));
    r.part();
  });
  for (std::future<Outcome>& o : outcomes) EXPECT_EQ(o.get().text, "");
}

TEST(Rendezvous, ASuccessorMayBeFoundAtAnotherPlace) {
  const SocketAddress places[] = {test_address(), test_address()};
  std::atomic<int> place{0};
  auto first = come(lasting_options(0, 2, places[0]), [](Rendezvous& r) {
    r.exchange("first");
    r.part();
  });
  Rendezvous::Options options = lasting_options(1, 2, places[0]);
  options.find_address = [&] { return places[place.load()]; };
  auto survivor = come(options, [](Rendezvous& r) {
    r.exchange("first");
    r.part();
    EXPECT_EQ(meet_until(r, 2), "2: 0 1");
  });
  EXPECT_EQ(first.get().text, "");
  place = 1;
  auto second = come(lasting_options(0, 2, places[1]), [](Rendezvous& r) {
    EXPECT_EQ(r.exchange("2: 0 1"), Texts(2, "2: 0 1"));
    r.part();
  });
  EXPECT_EQ(survivor.get().text + second.get().text, "");
}

TEST(Rendezvous, WhoWaitsHearsASignal) {
  const SocketAddress address = test_address();
  std::atomic<int> signal{0};
  std::vector<std::future<Outcome>> outcomes;
  for (const int member : {0, 1}) {
    Rendezvous::Options options = lasting_options(member, 3, address);
    options.stop_signal = &signal;
    outcomes.push_back(come(options));
  }
  signal = SIGTERM;
  for (std::future<Outcome>& o : outcomes)
    expect_error(o.get(), Code::kInterrupted, "signal while waiting");
}

TEST(Rendezvous, TooFewSurvivorsEndTheJobByName) {
  const SocketAddress address = test_address();
  Rendezvous::Options options = lasting_options(0, 2, address);
  options.replace_seconds = 0.3;
  auto host = come(options, [](Rendezvous& r) {
    r.exchange("first");
    r.part();
    r.meet();
  });
  EXPECT_EQ(come(lasting_options(1, 2, address),
                 [](Rendezvous& r) {
                   r.exchange("first");
                   r.part();
                 })
                .get()
                .text,
            "");
  expect_error(host.get(), Code::kPeerLost, "1 of 2 ranks are here; missing: 1;");
}

}  // namespace
}  // namespace moraine
