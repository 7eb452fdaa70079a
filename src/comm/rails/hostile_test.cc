// Rails among strangers: ranks 1 and 2 of a job work while a third process says all that it should not, without and
// with the secret (then as rank 0). Breaks if a stranger disturbs the job, is not counted, is not thrown out, or ends
// it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "comm/collectives.h"
#include "comm/host_transport.h"
#include "comm/rails/rails_messages.h"
#include "comm/rails/test_guest.h"
#include "comm/routed_transport.h"

namespace moraine {
namespace {

constexpr int kRanks = 3, kRails = 2;
constexpr uint64_t kRun = 4711;
constexpr uint32_t kGeneration = 5;
constexpr double kDeadline = 60;
const char kSecret[] = "of this job";

struct Place {  // where a rank listens
  std::vector<RailAddress> rails;
  std::vector<int> listeners;
};

Place make_place(int rank) {
  Place place;
  for (int rail = 0; rail < kRails; ++rail) {
    place.rails.push_back(find_rail_address(fmt::format("127.0.{}.{}", rail + 1, rank + 1)));
    place.listeners.push_back(listen_on(&place.rails.back()));
  }
  return place;
}

// Ranks 1 and 2, that do collectives until stop(), by threads.
class AttackedJob {
 public:
  explicit AttackedJob(const std::string& secret = kSecret) : secret_(secret) {
    for (int rank = 0; rank < kRanks; ++rank) places_[rank] = make_place(rank);
  }
  ~AttackedJob() {
    if (threads_[1].joinable()) stop();
    for (const int fd : places_[0].listeners) close(fd);
  }

  // In place of rail `rail` of `rank`, others are told this one.
  void move_address(int rank, int rail, const SocketAddress& to) {
    moved_ = [=](int r, int i, const SocketAddress& a) { return r == rank && i == rail ? to : a; };
  }
  void start() {
    for (int rank = 1; rank < kRanks; ++rank)
      threads_[rank] = std::thread([this, rank] { run(rank); });
    EXPECT_TRUE(reaches([this] { return std::min(rounds_[1].load(), rounds_[2].load()) >= 3; }));
  }
  // Errors of the ranks, in one text.
  std::string stop() {
    stop_ = true;
    for (int rank = 1; rank < kRanks; ++rank) threads_[rank].join();
    return texts_[1] + texts_[2];
  }

  const SocketAddress& address(int rank, int rail) const {
    return places_[rank].rails[static_cast<size_t>(rail)].address;
  }
  RailCounters counters(int rank) { return messages_[rank].load()->counters(); }
  RailCounts counts(int rank, int peer, int rail) {
    return messages_[rank].load()->counts(peer, rail);
  }
  // Waits until the counter is at least so high.
  bool counts_to(int rank, int64_t RailCounters::*counter, int64_t least) {
    return reaches([=, this] { return counters(rank).*counter >= least; });
  }
  // The ranks do three rounds more.
  bool goes_on() {
    const int64_t one = rounds_[1], two = rounds_[2];
    return reaches([=, this] { return rounds_[1] >= one + 3 && rounds_[2] >= two + 3; });
  }
  static bool reaches(const std::function<bool()>& is_so) {
    const double end = now_seconds() + TestGuest::kGuestSeconds;
    while (!is_so() && now_seconds() < end) std::this_thread::yield();
    return is_so();
  }

 private:
  RailSockets::Options options(int rank) {
    RailSockets::Options options;
    options.place = {kRun, kGeneration, rank, kRanks, kRails};
    options.secret = secret_;
    options.local = places_[rank].rails;
    options.listeners = places_[rank].listeners;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      for (int rail = 0; rail < kRails; ++rail)
        options.peers[peer].push_back(moved_(peer, rail, address(peer, rail)));
    }
    return options;
  }

  void run(int rank) {
    HostTransport::Options alone;
    alone.region = HostRegion::make_private(1);
    alone.kind = RankKind::kProcesses;
    alone.ranks = {rank};
    alone.hosts = {0, 1, 2};
    auto host = std::make_unique<HostTransport>(alone);
    auto messages = std::make_unique<RailsMessages>(*host, options(rank));
    messages_[rank] = messages.get();
    RoutedTransport transport(rank, alone.hosts, "rails");
    transport.set_routes(std::move(host), std::move(messages));
    try {
      work(transport);
    } catch (const Error& e) {
      texts_[rank] = fmt::format("rank {}: {}\n", rank, e.what());
      transport.fail(e.what());
    }
    ++ended_;
    while (ended_ < 2) std::this_thread::yield();  // neither leaves under the other's feet
  }

  void work(Transport& transport) {
    const int rank = transport.rank();
    Communicator comm(transport, {1, 2}, 0, "honest", kDeadline);
    for (bool last = false; !last; ++rounds_[rank]) {
      const size_t bytes = rounds_[rank] % 8 == 0 ? 1 << 20 : 3000;
      std::vector<std::byte> out(bytes, std::byte(rank)), in(2 * bytes);
      all_gather_equal(comm, out, in);
      const bool right = std::count(in.begin(), in.end(), std::byte{1}) == int64_t(bytes) &&
                         in.front() == std::byte{1} && in.back() == std::byte{2};
      if (!right) throw_error(Code::kCorrupt, "round {} is wrong", rounds_[rank].load());
      std::vector<int64_t> stop(1, rank == 1 && stop_ ? 1 : 0);
      all_reduce_sum(comm, stop);
      last = stop[0] > 0;
    }
  }

  const std::string secret_;
  Place places_[kRanks];
  std::function<SocketAddress(int rank, int rail, const SocketAddress& address)> moved_ =
      [](int, int, const SocketAddress& address) { return address; };
  std::thread threads_[kRanks];
  std::atomic<RailsMessages*> messages_[kRanks] = {};
  std::atomic<int64_t> rounds_[kRanks] = {};
  std::atomic<int> ended_{0};
  std::atomic<bool> stop_{false};
  std::string texts_[kRanks];
};

Hello hello_of(int from, int to, int rail) {
  Hello hello;
  hello.run = kRun;
  hello.generation = kGeneration;
  hello.from = from;
  hello.to = to;
  hello.rail = rail;
  hello.nonce = make_nonce();
  hello.connection = 99;
  return hello;
}

struct Case {
  const char* what;
  std::function<void(TestGuest& guest)> say;
  int64_t RailCounters::*counter;  // of rank 1
};

// Each guest is thrown out, and counted once.
void try_cases(AttackedJob& job, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const int64_t before = job.counters(1).*c.counter;
    TestGuest guest(job.address(1, 0));
    c.say(guest);
    EXPECT_TRUE(guest.is_closed()) << c.what;
    EXPECT_TRUE(job.counts_to(1, c.counter, before + 1)) << c.what;
    EXPECT_EQ(job.counters(1).*c.counter, before + 1) << c.what;
  }
}

void say_hello(TestGuest& guest, const std::function<void(Hello& hello)>& change) {
  Hello hello = hello_of(0, 1, 0);
  change(hello);
  guest.shake_hands(hello, kSecret);
}

TEST(RailsHostile, HellosThatDoNotFitAreCountedByTheirKind) {
  AttackedJob job;
  job.start();
  const int64_t before = heartbeat().strangers;
  using C = RailCounters;
  try_cases(
      job,
      {{"garbage", [](TestGuest& g) { g.send_text(std::string(5000, 'x')); }, &C::garbage},
       {"a web browser",
        [](TestGuest& g) {
          g.send_text(
              "GET / HTTP/1.1\r\nHost: rail.example.com\r\n"
              "User-Agent: of some kind\r\nAccept: */*\r\n\r\n");
        },
        &C::garbage},
       {"another run", [](TestGuest& g) { say_hello(g, [](Hello& h) { ++h.run; }); },
        &C::other_run},
       {"an old generation", [](TestGuest& g) { say_hello(g, [](Hello& h) { --h.generation; }); },
        &C::old_generation},
       {"a later generation", [](TestGuest& g) { say_hello(g, [](Hello& h) { ++h.generation; }); },
        &C::old_generation},
       {"from a rank past the last",
        [](TestGuest& g) { say_hello(g, [](Hello& h) { h.from = kRanks; }); }, &C::other_rank},
       {"from a rank below 0", [](TestGuest& g) { say_hello(g, [](Hello& h) { h.from = -1; }); },
        &C::other_rank},
       {"from itself", [](TestGuest& g) { say_hello(g, [](Hello& h) { h.from = 1; }); },
        &C::other_rank},
       {"to another rank", [](TestGuest& g) { say_hello(g, [](Hello& h) { h.to = 2; }); },
        &C::other_rank},
       {"a rail past the last",
        [](TestGuest& g) { say_hello(g, [](Hello& h) { h.rail = kRails; }); }, &C::other_rank},
       {"a rail below 0", [](TestGuest& g) { say_hello(g, [](Hello& h) { h.rail = -1; }); },
        &C::other_rank},
       {"another rail than this one",
        [](TestGuest& g) { say_hello(g, [](Hello& h) { h.rail = 1; }); }, &C::other_rank},
       {"a rank that listens itself",
        [](TestGuest& g) { say_hello(g, [](Hello& h) { h.from = 2; }); }, &C::other_rank}});
  EXPECT_TRUE(job.goes_on());
  EXPECT_TRUE(AttackedJob::reaches([&] { return heartbeat().strangers >= before + 13; }));
  EXPECT_EQ(job.stop(), "");
}

TEST(RailsHostile, WhoDoesNotKnowTheSecretIsThrownOut) {
  AttackedJob job;
  job.start();
  const Hello hello = hello_of(0, 1, 0);
  RailProof old_proof;
  {
    TestGuest guest(job.address(1, 0));  // one that is let in, to use its proof again
    struct {
      Hello hello;
      RailProof proof;
    } answer;
    guest.send(hello);
    ASSERT_TRUE(guest.receive(&answer));
    old_proof = prove_hello(kSecret, HelloPart::kConnector, hello, answer.hello);
    guest.send(old_proof);
    FrameHead head;  // its probe
    ASSERT_TRUE(guest.receive(&head));
    EXPECT_EQ(head.kind, FrameKind::kProbe);
  }
  using C = RailCounters;
  try_cases(
      job, {{"another secret", [](TestGuest& g) { g.shake_hands(hello_of(0, 1, 0), "of another"); },
             &C::garbage},
            {"no secret", [](TestGuest& g) { g.shake_hands(hello_of(0, 1, 0), ""); }, &C::garbage},
            {"a proof of before",
             [&](TestGuest& g) {
               g.send(hello);
               g.send(old_proof);
             },
             &C::garbage},
            {"the acceptor's own proof",
             [](TestGuest& g) {
               struct {
                 Hello hello;
                 RailProof proof;
               } answer;
               g.send(hello_of(0, 1, 0));
               if (g.receive(&answer)) g.send(answer.proof);
             },
             &C::garbage}});
  EXPECT_TRUE(job.goes_on());
  EXPECT_EQ(job.stop(), "");
}

TEST(RailsHostile, WhoSaysNothingOrTooLittleIsThrownOut) {
  AttackedJob job;
  job.start();
  TestGuest silent(job.address(1, 1)), half(job.address(1, 1));
  half.send_text("mor");
  { TestGuest knock(job.address(1, 0)); }
  EXPECT_TRUE(job.counts_to(1, &RailCounters::knocks, 1));
  {
    TestGuest cut(job.address(1, 0));
    cut.send_text("moraine1");
  }
  EXPECT_TRUE(job.counts_to(1, &RailCounters::garbage, 1));
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(half.is_closed());
  EXPECT_TRUE(job.counts_to(1, &RailCounters::silent_guests, 2));
  EXPECT_TRUE(job.goes_on());
  EXPECT_EQ(job.stop(), "");
}

TEST(RailsHostile, AFloodOfGuestsTakesNoMoreThanItsPlaces) {
  AttackedJob job;
  job.start();
  std::vector<TestGuest> guests;
  for (int i = 0; i < 200; ++i) guests.emplace_back(job.address(1, i % kRails));
  EXPECT_TRUE(job.counts_to(1, &RailCounters::too_many, 200 - 64));
  EXPECT_TRUE(job.goes_on());
  // Their time passes, and there are places again.
  EXPECT_TRUE(job.counts_to(1, &RailCounters::silent_guests, 64));
  TestGuest guest(job.address(1, 0));
  EXPECT_TRUE(guest.shake_hands(hello_of(0, 1, 0), kSecret));
  EXPECT_EQ(job.stop(), "");
}

TEST(RailsHostile, WithoutAFileDescriptorToSpareGuestsAreRefused) {
  AttackedJob job;
  job.start();
  const int guest = socket(AF_INET, SOCK_STREAM, 0), lowest_free = dup(guest);
  close(lowest_free);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(lowest_free);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const SocketAddress address = job.address(1, 0);
  EXPECT_EQ(connect(guest, address.data(), address.size()), 0);
  EXPECT_TRUE(job.counts_to(1, &RailCounters::too_many, 1));
  EXPECT_TRUE(job.goes_on());
  setrlimit(RLIMIT_NOFILE, &before);
  close(guest);
  EXPECT_EQ(job.stop(), "");
}

// Frames of a job without a secret, whose frames have no tags ------------------------------------

FrameHead first_chunk(uint64_t message, int64_t bytes) {
  FrameHead head;
  head.generation = kGeneration;
  head.kind = FrameKind::kData;
  head.message = message;
  head.bytes = bytes;
  head.payload_bytes = static_cast<uint32_t>(std::min(bytes, kChunkBytes));
  return head;
}

void say_frame(TestGuest& guest, FrameHead head,
               const std::function<void(FrameHead& head)>& change) {
  guest.shake_hands(hello_of(0, 1, 0), "");
  change(head);
  const std::vector<std::byte> payload(kChunkBytes, std::byte{1});
  const bool carries = head.payload_bytes <= payload.size();
  FrameHead empty = head;
  empty.payload_bytes = carries ? head.payload_bytes : 0;
  seal_frame(empty, payload.data());
  head.payload_hash = empty.payload_hash;
  if (carries) {
    head = empty;
  } else {
    std::vector<std::byte> large(head.payload_bytes);
    seal_frame(head, large.data());
  }
  guest.send(head);
  guest.send_bytes(payload.data(), carries ? head.payload_bytes : payload.size());
}

void say_raw(TestGuest& guest, FrameHead head, const std::vector<std::byte>& payload) {
  guest.shake_hands(hello_of(0, 1, 0), "");
  guest.send(head);
  guest.send_bytes(payload.data(), payload.size());
}

Case frame_case(const char* what, const std::function<void(FrameHead& head)>& change) {
  return {what, [change](TestGuest& g) { say_frame(g, first_chunk(1, 100), change); },
          &RailCounters::garbage};
}

TEST(RailsHostile, FramesThatMayNotBeEndTheirConnection) {
  AttackedJob job("");
  job.start();
  FrameHead sealed = first_chunk(1, 100);
  const std::vector<std::byte> payload(100, std::byte{1});
  seal_frame(sealed, payload.data());
  FrameHead damaged = sealed;
  damaged.label ^= 1;
  std::vector<std::byte> other = payload;
  other[50] ^= std::byte{4};
  using H = FrameHead;
  try_cases(
      job,
      {{"a damaged head", [&](TestGuest& g) { say_raw(g, damaged, payload); },
        &RailCounters::damaged},
       {"a damaged payload", [&](TestGuest& g) { say_raw(g, sealed, other); },
        &RailCounters::damaged},
       {"garbage", [](TestGuest& g) { say_raw(g, {}, std::vector<std::byte>(9999, std::byte{9})); },
        &RailCounters::damaged},
       frame_case("another magic number", [](H& h) { h.magic ^= 1; }),
       frame_case("another generation", [](H& h) { --h.generation; }),
       frame_case("kind 0", [](H& h) { h.kind = FrameKind{0}; }),
       frame_case("a kind past the last", [](H& h) { h.kind = FrameKind{9}; }),
       frame_case("a channel past the last", [](H& h) { h.channel = kLanes; }),
       frame_case("message 0", [](H& h) { h.message = 0; }),
       frame_case("a message far ahead", [](H& h) { h.message = kOpenMessages + 1; }),
       frame_case("the last message there is", [](H& h) { h.message = UINT64_MAX; }),
       frame_case("a payload that is longer than its message", [](H& h) { h.bytes = 99; }),
       frame_case("a message below nothing", [](H& h) { h.bytes = -1; }),
       frame_case("a message above all", [](H& h) { h.bytes = INT64_MAX; }),
       frame_case("a chunk that was not granted",
                  [](H& h) {
                    h.bytes = 2 * kChunkBytes;
                    h.offset = h.payload_bytes = kChunkBytes;
                  }),
       frame_case("an offset between chunks", [](H& h) { h.offset = 1; }),
       frame_case("an offset below nothing", [](H& h) { h.offset = -kChunkBytes; }),
       frame_case("a payload above a chunk", [](H& h) { h.payload_bytes = kChunkBytes + 1; }),
       frame_case("a probe above a chunk",
                  [](H& h) {
                    h.kind = FrameKind::kProbe;
                    h.payload_bytes = 2 * kChunkBytes;
                  }),
       frame_case("an acknowledgement with a payload",
                  [](H& h) { h.kind = FrameKind::kAcknowledge; }),
       frame_case("an acknowledgement of what was never sent",
                  [](H& h) {
                    h.kind = FrameKind::kAcknowledge;
                    h.payload_bytes = 0;
                    h.received = 1000;
                  }),
       frame_case("a grant for what was never sent",
                  [](H& h) {
                    h.kind = FrameKind::kGrant;
                    h.payload_bytes = 0;
                  }),
       frame_case("thanks for what was never sent", [](H& h) {
         h.kind = FrameKind::kTaken;
         h.payload_bytes = 0;
       })});
  EXPECT_TRUE(job.goes_on());
  EXPECT_EQ(job.stop(), "");
}

TEST(RailsHostile, APeerOfManyMessagesThatNobodyTakesHoldsUpNobody) {
  AttackedJob job("");
  job.start();
  TestGuest guest(job.address(1, 0));
  ASSERT_TRUE(guest.shake_hands(hello_of(0, 1, 0), ""));
  const std::vector<std::byte> payload(kChunkBytes, std::byte{1});
  for (int channel = 0; channel < kMaxChannels; ++channel) {
    for (uint64_t message = 1; message <= kOpenMessages; ++message) {
      FrameHead head = first_chunk(message, kMostMessageBytes);
      head.channel = static_cast<uint8_t>(channel);
      seal_frame(head, payload.data());
      guest.send(head);
      guest.send_bytes(payload.data(), payload.size());
    }
  }
  EXPECT_TRUE(job.reaches([&job] {
    return job.counts(1, 0, 0).received_bytes == kMaxChannels * kOpenMessages * kChunkBytes;
  }));
  EXPECT_TRUE(job.goes_on());
  EXPECT_EQ(job.stop(), "");
}

// Somebody between both ends, who may say anything and does not know the secret.
TEST(RailsHostile, WithASecretNoFrameIsChangedRepeatedOrLeftOut) {
  AttackedJob job;
  job.start();
  FrameHead head = first_chunk(1, 100);
  const std::vector<std::byte> payload(100, std::byte{1}), other(100, std::byte{2});
  seal_frame(head, payload.data());
  FrameHead of_other = head, sign_of_life;
  seal_frame(of_other, other.data());
  sign_of_life.generation = kGeneration;
  seal_frame(sign_of_life, nullptr);
  using Tags = TestGuest::Tags;
  const auto say = [&](TestGuest& g, const FrameHead& h, const std::vector<std::byte>& bytes,
                       const Tags& tags) {
    g.send(h);
    g.send(tags);
    g.send_bytes(bytes.data(), bytes.size());
  };
  const auto greet = [](TestGuest& g) { g.shake_hands(hello_of(0, 1, 0), kSecret); };
  const auto C = &RailCounters::damaged;
  try_cases(job, {{"no tags",
                   [&](TestGuest& g) {
                     greet(g);
                     g.send(head);
                     g.send_bytes(payload.data(), payload.size());
                   },
                   C},
                  {"another head",
                   [&](TestGuest& g) {
                     greet(g);
                     say(g, of_other, other, g.tags_of(head, payload, 0));
                   },
                   C},
                  {"another payload",
                   [&](TestGuest& g) {
                     greet(g);
                     Tags tags = g.tags_of(of_other, payload, 0);
                     say(g, of_other, other, tags);
                   },
                   C},
                  {"a frame again",
                   [&](TestGuest& g) {
                     greet(g);
                     for (int i = 0; i < 2; ++i)
                       say(g, sign_of_life, {}, g.tags_of(sign_of_life, {}, 0));
                   },
                   C},
                  {"a frame left out",
                   [&](TestGuest& g) {
                     greet(g);
                     say(g, head, payload, g.tags_of(head, payload, 1));
                   },
                   C}});
  TestGuest knows(job.address(1, 0));
  greet(knows);
  for (uint64_t i = 0; i < 3; ++i) say(knows, sign_of_life, {}, knows.tags_of(sign_of_life, {}, i));
  say(knows, head, payload, knows.tags_of(head, payload, 3));
  EXPECT_TRUE(job.reaches([&job] { return job.counts(1, 0, 0).received_bytes == 100; }));
  EXPECT_TRUE(job.goes_on());
  EXPECT_EQ(job.stop(), "");
}

TEST(RailsHostile, ARailThatAStrangerTookIsTakenBack) {
  AttackedJob job;
  job.start();
  for (int i = 0; i < 20; ++i) {
    TestGuest guest(job.address(2, i % kRails));  // says that it is rank 1
    ASSERT_TRUE(guest.shake_hands(hello_of(1, 2, i % kRails), kSecret));
    guest.send_text(std::string(200, 'x'));
    EXPECT_TRUE(guest.is_closed());
  }
  EXPECT_TRUE(job.goes_on());
  EXPECT_EQ(job.stop(), "");
}

TEST(RailsHostile, AStrangerAtAPeersAddressIsNotTalkedTo) {
  AttackedJob job;
  RailAddress place = find_rail_address("127.0.2.77");
  const int listener = listen_on(&place);
  job.move_address(2, 1, place.address);
  job.start();  // over rail 0
  for (int i = 0; i < 3; ++i) {
    pollfd p = {listener, POLLIN, 0};
    ASSERT_GT(poll(&p, 1, TestGuest::kGuestSeconds * 1000), 0);
    TestGuest host(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    struct {
      Hello hello;
      RailProof proof = {};
    } answer;
    ASSERT_TRUE(host.receive(&answer.hello));
    std::swap(answer.hello.from, answer.hello.to);
    host.send(answer);
    EXPECT_TRUE(host.is_closed());
    EXPECT_TRUE(job.counts_to(1, &RailCounters::garbage, i + 1));
  }
  close(listener);
  EXPECT_TRUE(job.goes_on());
  EXPECT_EQ(job.stop(), "");
}

}  // namespace
}  // namespace moraine
