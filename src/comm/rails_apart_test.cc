// Ranks that live and have no rail to each other. Breaks if they meet again for ever, or end for meetings that failed
// by something else; or if a rank that ends waits for one that is silent for longer than it is patient.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "comm/host_share.h"
#include "comm/label.h"
#include "comm/rails/rails_messages.h"
#include "comm/rails/rendezvous.h"
#include "comm/test_rails.h"

namespace moraine {
namespace {

constexpr const char* kNowhere = "127.0.9.9:1";  // nobody listens there, nor ever did
constexpr double kShortPatience = 0.3;

RailTimes patient_for(double seconds) {
  RailTimes times;
  times.hold_seconds = seconds;
  times.interval_seconds = 0;
  times.resends = 1;
  return times;
}

// Member 1 of two: it meets, and its rail leads nowhere. In meeting `leaves_in` (from 1 on) it leaves before there are
// rails. Returns how many meetings apart rank 0 told of in each, until it has told of three.
std::vector<int> meet_without_rails(const std::string& rendezvous, int leaves_in) {
  Rendezvous member({.member = 1,
                     .members = 2,
                     .address = parse_address(rendezvous),
                     .secret = "",
                     .replace_seconds = 60});
  std::vector<int> told;
  while (told.empty() || told.back() < 3) {
    member.meet();
    const TextExchange exchange = [&member](const std::string& mine) {
      return member.exchange(mine);
    };
    std::istringstream words(exchange(fmt::format("0 0 {}", kNowhere))[0]);
    std::string run;
    words >> run >> told.emplace_back();
    if (told.back() >= 3 || static_cast<int>(told.size()) == leaves_in) continue;
    try {
      join_host(exchange, 1, find_hosts(exchange), {});
      exchange("met");
    } catch (const Error&) {  // rank 0 has given up the meeting
    }
  }
  return told;
}

// What ended rank 0.
std::string told_by_rank_0(int leaves_in, std::vector<int>* told) {
  setenv("MORAINE_HOST_MEMORY", "off", 1);
  const std::string rendezvous = free_local_address();
  std::string other_text;
  std::thread other([&] {
    try {
      *told = meet_without_rails(rendezvous, leaves_in);
    } catch (const std::exception& e) {
      other_text = e.what();
    }
  });
  RailsOptions options = test_rails(0, 2, 1, rendezvous);
  options.replace_seconds = 60;
  options.times = patient_for(kShortPatience);
  std::string text;
  try {
    RailsJob(options).meet();
  } catch (const Error& e) {
    text = e.what();
    EXPECT_EQ(e.code(), Code::kPeerLost);
  }
  other.join();
  EXPECT_EQ(other_text, "");
  unsetenv("MORAINE_HOST_MEMORY");
  return text;
}

TEST(RailsApart, RanksThatReachEachOtherNowhereEndAfterThreeMeetingsHoweverPatientTheyAre) {
  std::vector<int> told;
  const std::string text = told_by_rank_0(0, &told);
  EXPECT_EQ(told, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_NE(text.find("ranks met 3 times in a row"), std::string::npos) << text;
}

TEST(RailsApart, AMeetingThatFailsBySomethingElseIsNone) {
  std::vector<int> told;
  const std::string text = told_by_rank_0(3, &told);
  EXPECT_EQ(told, (std::vector<int>{0, 1, 2, 0, 1, 2, 3}));
  EXPECT_NE(text.find("ranks met 3 times in a row"), std::string::npos) << text;
}

// Rank 0 of two, alone.
class LonelyMessages {
 public:
  explicit LonelyMessages(const RailTimes& times)
      : host_(join_host(
            [](const std::string& mine) {
              return std::vector{mine, mine};
            },
            0, {0, 1}, {.idle = {}, .on_fault = [](const std::string&) {}})),
        messages_(*host_, sockets(times)) {}
  RailsMessages* operator->() { return &messages_; }

 private:
  static RailSockets::Options sockets(const RailTimes& times) {
    RailSockets::Options o;
    o.place = {.run = 1, .generation = 1, .rank = 0, .ranks = 2, .rails = 1};
    o.local = {find_rail_address("127.0.1.1")};
    o.listeners = {listen_on(&o.local[0])};
    o.peers[1] = {parse_address(kNowhere)};
    o.times = times;
    return o;
  }
  std::unique_ptr<HostTransport> host_;
  RailsMessages messages_;
};

TEST(RailsApart, WhoEndsWaitsForASilentRankNoLongerThanItIsPatient) {
  constexpr double kSeconds = 120;
  LonelyMessages messages(patient_for(kShortPatience));
  messages->send(1, 0, make_label(0, 0, Operation::kBarrier), std::vector<std::byte>(8), 1);
  const double begin = now_seconds();
  EXPECT_FALSE(messages->finish(kSeconds));
  EXPECT_LT(now_seconds() - begin, kSeconds);
}

// All have agreed to end, and one is stopped before it can say that it has heard so.
TEST(RailsApart, RanksThatEndTogetherWaitShortlyForOneThatIsStopped) {
  setenv("MORAINE_HOST_MEMORY", "off", 1);
  const std::string rendezvous = free_local_address();
  const auto open = [&](int rank) {
    RailsOptions options = test_rails(rank, 2, 1, rendezvous);
    options.times = patient_for(1e6);
    return open_rails_transport(options);
  };
  const pid_t parent = getpid(), other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // whatever becomes of the test
    if (getppid() != parent) _exit(1);
    const std::unique_ptr<Transport> transport = open(1);
    for (;;) pause();
  }
  std::unique_ptr<Transport> transport = open(0);
  unsetenv("MORAINE_HOST_MEMORY");
  ::kill(other, SIGSTOP);
  int status = 0;
  waitpid(other, &status, WUNTRACED);
  transport->send(1, 0, 7, std::vector<std::byte>(8), 1);
  transport->end_together();
  const double begin = now_seconds();
  transport.reset();
  EXPECT_LT(now_seconds() - begin, 40);  // one that ends its work waits for 60 s
  ::kill(other, SIGKILL);
  waitpid(other, &status, 0);
}

TEST(RailsApart, ATimeToMeetThatIsShorterThanPatienceCountsAsWell) {
  for (const double patience : {kShortPatience, 1e6}) {
    LonelyMessages messages(patient_for(patience));
    EXPECT_FALSE(messages->is_apart());
    EXPECT_THROW(messages->meet(2 * kShortPatience), Error);
    EXPECT_TRUE(messages->is_apart());
  }
}

}  // namespace
}  // namespace moraine
