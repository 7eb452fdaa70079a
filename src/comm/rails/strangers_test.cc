// Strangers: fails if a flood is told for each that came, one is never told, or the heartbeat counts one twice.
#include "comm/rails/strangers.h"

#include <gtest/gtest.h>

#include "base/heartbeat.h"
#include "comm/rails/door.h"
#include "comm/rails/rail_address.h"
#include "comm/rails/test_guest.h"

namespace moraine {
namespace {

TEST(Strangers, AFloodIsToldNowAndThen) {
  const int64_t before = heartbeat().strangers;
  Strangers strangers;
  EXPECT_EQ(strangers.note(0, 0), 0);
  EXPECT_EQ(strangers.note(3, 0), 3) << "the first at once";
  int64_t told = 0, times = 0;
  for (int64_t total = 4; total <= 1000; ++total) {
    const int64_t news = strangers.note(total, 0.015 * static_cast<double>(total));
    told += news;
    times += news > 0;
  }
  EXPECT_EQ(times, 1) << "in 15 s";
  EXPECT_EQ(told + strangers.note(1000, 40), 997);
  EXPECT_EQ(strangers.note(1000, 60), 0);
  EXPECT_EQ(heartbeat().strangers - before, 1000);
}

// A guest that another process is already is none, if it proves to be of this job: it waits for that to be known as
// gone.
TEST(Strangers, AreCountedAtTheDoor) {
  const SocketAddress address = parse_address(free_local_address());
  Door door({.members = 3, .address = address, .secret = "of this job"});
  const auto work_until = [&](int64_t strangers) {
    for (int times = 0; times < 10000 && door.strangers() < strangers; ++times) door.work(0.001);
    return door.strangers();
  };
  const int64_t before = heartbeat().strangers;
  ::testing::internal::CaptureStderr();
  TestGuest garbage(address);
  garbage.send_text(std::string(1000, 'x'));
  EXPECT_EQ(work_until(1), 1);
  TestGuest other_number(address);
  other_number.send(Join{.member = 1, .members = 4});
  EXPECT_EQ(work_until(2), 2);
  door.links()[1] = {};
  const auto come_as_taken = [&](const std::string& secret) {
    TestGuest guest(address);
    const Join join{.member = 1, .members = 3};
    guest.send(join);
    Welcome welcome;
    for (int times = 0; times < 200; ++times) door.work(0.001);
    if (!guest.receive(&welcome)) return JoinAnswer::kOtherNumber;
    MemberLink link;
    link.nonce_host = welcome.nonce;
    link.nonce_guest = join.nonce;
    guest.send(prove_text(secret, link, 'J', join_text(join)));
    Verdict verdict{.answer = JoinAnswer::kWelcome, .proof = {}};
    for (int times = 0; times < 200; ++times) door.work(0.001);
    return guest.receive(&verdict) ? verdict.answer : welcome.answer;
  };
  EXPECT_EQ(come_as_taken("of this job"), JoinAnswer::kTaken);
  EXPECT_EQ(door.strangers(), 2);
  EXPECT_EQ(come_as_taken("of another"), JoinAnswer::kWelcome) << "it is not told who is here";
  EXPECT_EQ(door.strangers(), 3);
  EXPECT_EQ(heartbeat().strangers - before, 3);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("rails.strangers at=rendezvous dropped=1 refused=0 garbage=1"),
            std::string::npos)
      << log;
}

}  // namespace
}  // namespace moraine
