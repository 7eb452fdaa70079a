// Rendezvous: ranks that find each other, and those that do not. Breaks if a wrong rank, number or secret is let in or
// is not told so, if rank 0 does not say who is missing, or if a text comes out other than it went in.
#include "comm/rails/rendezvous.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <optional>

#include "base/error.h"
#include "comm/rails/rail_address.h"
#include "comm/rails/test_guest.h"
#include "comm/test_rails.h"

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
      if (work) work(rendezvous);
      return {};
    } catch (const Error& e) {
      return {e.code(), e.what()};
    }
  });
}

Rendezvous::Options options_of(int rank, int ranks, const sockaddr_in& address) {
  return {.rank = rank, .ranks = ranks, .address = address, .secret = "of this job", .seconds = 30};
}

sockaddr_in test_address() { return parse_address(test_rendezvous()); }

void expect_error(const Outcome& outcome, Code code, const std::string& part) {
  EXPECT_TRUE(outcome.code.has_value() && *outcome.code == code) << outcome.text;
  EXPECT_NE(outcome.text.find(part), std::string::npos) << outcome.text;
}

// Until somebody listens there.
TestGuest knock_until_open(const sockaddr_in& address) {
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return TestGuest(fd);
    close(fd);
    std::this_thread::yield();
  }
}

TEST(Rendezvous, EveryRankHearsEveryText) {
  for (const int ranks : {1, 2, 5}) {
    const sockaddr_in address = test_address();
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
    const sockaddr_in address = test_address();
    auto host = come(options_of(0, 3, address)), two = come(options_of(2, 3, address));
    expect_error(come(options_of(1, number, address)).get(), Code::kInvalidArgument,
                 fmt::format("the job has another number of ranks than {}", number));
    EXPECT_EQ(come(options_of(1, 3, address)).get().text, "");
    EXPECT_EQ(host.get().text + two.get().text, "");
  }
}

TEST(Rendezvous, ARankThatIsTakenIsSaidToWhoComes) {
  for (int i = 0; i < 20; ++i) {
    const sockaddr_in address = test_address();
    std::vector<std::future<Outcome>> twins;
    auto host = come(options_of(0, 3, address));
    for (int twin = 0; twin < 3; ++twin) twins.push_back(come(options_of(1, 3, address)));
    int let_in = 0;
    for (std::future<Outcome>& twin : twins) {
      const Outcome outcome = twin.get();
      let_in += !outcome.code.has_value();
      if (outcome.code.has_value())
        expect_error(outcome, Code::kInvalidArgument, "another process is rank 1 already");
    }
    EXPECT_EQ(let_in, 1);
    EXPECT_EQ(come(options_of(2, 3, address)).get().text, "");
    EXPECT_EQ(host.get().text, "");
  }
}

TEST(Rendezvous, BothSidesMustKnowTheSecret) {
  const std::pair<const char*, const char*> pairs[] = {{"one", "two"}, {"one", ""}, {"", "two"}};
  for (const auto& [of_host, of_guest] : pairs) {
    const sockaddr_in address = test_address();
    Rendezvous::Options host = options_of(0, 2, address), guest = options_of(1, 2, address);
    host.secret = of_host;
    host.seconds = 0.5;
    guest.secret = of_guest;
    auto outcome = come(host);
    expect_error(come(guest).get(), Code::kInvalidArgument, "does not know the secret of this job");
    expect_error(outcome.get(), Code::kPeerLost, "missing: 1;");
  }
}

TEST(Rendezvous, StrangersAreDroppedAndTheRanksMeet) {
  const sockaddr_in address = test_address();
  auto host = come(options_of(0, 2, address));
  TestGuest silent = knock_until_open(address), garbage(address), browser(address);
  garbage.send_text(std::string(1000, '\xff'));
  browser.send_text("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_TRUE(garbage.is_closed());
  EXPECT_TRUE(browser.is_closed());
  { TestGuest knock(address); }
  TestGuest liar(address);  // says that it is rank 1, and does not prove it
  const struct {
    uint64_t magic = 0x6e696f6a6e65724d;
    int32_t rank = 1, ranks = 2;
    RailNonce nonce = {}, proof[2] = {};
  } join;
  liar.send(join);
  EXPECT_TRUE(liar.is_closed());
  EXPECT_EQ(come(options_of(1, 2, address)).get().text, "");
  EXPECT_EQ(host.get().text, "");
  EXPECT_TRUE(silent.is_closed());
}

TEST(Rendezvous, WhoWaitsForNobodySaysWhoIsMissing) {
  for (const int ranks : {2, 4, 100}) {
    const sockaddr_in address = test_address();
    Rendezvous::Options options = options_of(0, ranks, address);
    options.seconds = 0.3;
    auto two = ranks == 4 ? come(options_of(2, 4, address)) : std::future<Outcome>();
    const char* wanted = ranks == 2   ? "1 of 2 ranks are here; missing: 1;"
                         : ranks == 4 ? "2 of 4 ranks are here; missing: 1, 3;"
                                      : "15, 16, ... (99 ranks)";
    expect_error(come(options).get(), Code::kPeerLost, wanted);
    EXPECT_EQ(two.valid() ? two.get().text : "", "");
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
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
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
  const sockaddr_in address = test_address();
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

}  // namespace
}  // namespace moraine
