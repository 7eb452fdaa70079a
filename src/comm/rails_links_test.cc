// Rails over real links between two network namespaces that are cut under the job, by seeds, in every way that a link
// fails. Breaks if a cut reaches a collective or a window as an error or as another bit, if a job does not outlive the
// time without any link, or if nobody names a rank that is killed. Gaps are reported, not judged: machines differ.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/rails/cut_links.h"
#include "comm/rails_transport.h"
#include "comm/test_window.h"
#include "testing/seeded_draws.h"

namespace moraine {
namespace {

constexpr int kLinkedRanks = 4;       // two on each side
constexpr double kLinkDeadline = 60;  // nobody waits for it if nothing is wrong

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What ranks and the test tell each other, in memory of all of them.
struct Board {
  std::atomic<bool> stop{false};
  struct OfRank {
    std::atomic<int64_t> rounds{0}, longest_barrier{0}, longest_work{0};  // microseconds
    std::atomic<int64_t> generation{0}, losses{0};  // of the group it is in; groups that it gave up
    char text[2000] = {};                           // of the Error that ended it
  } ranks[kLinkedRanks];
};

// One round: its values depend on `variant` alone, so every round of a variant has the same hash.
constexpr int64_t kCounts[] = {2, 700000, 300, 40000, 8000, 200000};
constexpr int kVariants = 6;

void note_time(std::atomic<int64_t>& longest, double begin) {
  longest = std::max(longest.load(), static_cast<int64_t>((now_seconds() - begin) * 1e6));
}

// Blocks that all members put into each other, and a sum that all add to. The rounds' barriers keep rounds apart.
class PutRounds {
 public:
  explicit PutRounds(Transport& transport)
      : comm_(world(transport, kWindowChannel, kLinkDeadline)),
        window_(comm_),
        data_(window_.add_segment(kBytes * kLinkedRanks, "blocks")),
        words_(window_.add_segment(kWord * (kLinkedRanks + 1), "words")) {}

  void take(int64_t round) {
    const int me = comm_.rank();
    const std::vector<std::byte> block = block_of(me, static_cast<int>(round), kBytes);
    for (int m = 0; m < kLinkedRanks; ++m)
      window_.put_signal(window_.address(m, data_, me * kBytes), block,
                         window_.address(m, words_, me * kWord));
    for (int m = 0; m < kLinkedRanks; ++m) {
      window_.wait_until(window_.address(me, words_, m * kWord), static_cast<uint64_t>(round + 1),
                         m);
      const std::byte* got = window_.memory(data_).data() + m * kBytes;
      require(
          block_of(m, static_cast<int>(round), kBytes) == std::vector<std::byte>(got, got + kBytes),
          "a block is not what was put");
    }
    const auto before = static_cast<int64_t>(
        window_.fetch_add(window_.address(0, words_, kLinkedRanks * kWord), 1));
    require(before >= round * kLinkedRanks && before < (round + 1) * kLinkedRanks,
            "additions of a round");
  }

 private:
  static constexpr int64_t kBytes = 40000;  // three frames
  Communicator comm_;
  Window window_;
  const int data_, words_;
};

struct QuietRounds {
  Hash128 hashes[kVariants];
  int known = 0;
};

// Until the test says stop: the first rounds are quiet, and all others must have their hashes.
void run_rounds(Transport& transport, Board& board, QuietRounds& quiet) {
  Communicator comm = world(transport, 0, kLinkDeadline);
  PutRounds puts(transport);
  Board::OfRank& mine = board.ranks[transport.rank()];
  for (int64_t round = 0;; ++round) {
    const int variant = static_cast<int>(round % kVariants);
    const double work_began = now_seconds();
    const Hash128 hash =
        work(comm, {.count = kCounts[variant], .piece = kCounts[variant], .variant = variant});
    puts.take(round);
    note_time(mine.longest_work, work_began);
    if (quiet.known == variant) quiet.hashes[quiet.known++] = hash;
    if (!(hash == quiet.hashes[variant]))
      throw_error(Code::kCorrupt, "round {}: hash {}, that of the quiet run is {}", round,
                  hash_hex(hash), hash_hex(quiet.hashes[variant]));
    for (int i = 0; i < 10; ++i) {
      const double begin = now_seconds();
      barrier(comm);
      note_time(mine.longest_barrier, begin);
    }
    ++mine.rounds;
    std::vector<int64_t> stop(1, transport.rank() == 0 && board.stop ? 1 : 0);
    all_reduce_sum(comm, stop);
    if (stop[0] > 0) return;
  }
}

class LinkedJob {
 public:
  // With replace_seconds ranks meet again, at an address that no rail leads to.
  explicit LinkedJob(int rails, const RailTimes& times = {}, double replace_seconds = 0)
      : links_(rails + (replace_seconds > 0)),
        rails_(rails),
        times_(times),
        replace_seconds_(replace_seconds) {
    void* memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MR_CHECK(memory != MAP_FAILED);
    board_ = new (memory) Board;
  }
  ~LinkedJob() {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    }
    munmap(board_, sizeof(Board));
  }

  CutLinks& links() { return links_; }
  Board& board() { return *board_; }

  void start() {
    for (int r = 0; r < kLinkedRanks; ++r) {
      const pid_t parent = getpid(), pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        _exit(run_rank(r));
      }
      pids_[r] = pid;
    }
  }

  // Every rank has its hashes of quiet rounds.
  void await_quiet_rounds() {
    const double end = now_seconds() + kLinkDeadline;
    while (slowest() < kVariants && now_seconds() < end) sleep_seconds(0.01);
    ASSERT_GE(slowest(), kVariants);
  }

  // Longest times since the last call: no small barrier took longer, no round of large messages.
  std::string longest_gaps() const {
    int64_t barrier = 0, work = 0;
    for (Board::OfRank& r : board_->ranks) {
      barrier = std::max(barrier, r.longest_barrier.exchange(0));
      work = std::max(work, r.longest_work.exchange(0));
    }
    return fmt::format("longest gap {:.1f} ms, longest round of large messages {:.1f} ms",
                       static_cast<double>(barrier) * 1e-3, static_cast<double>(work) * 1e-3);
  }
  int64_t slowest() const {
    int64_t rounds = INT64_MAX;
    for (const Board::OfRank& r : board_->ranks) rounds = std::min(rounds, r.rounds.load());
    return rounds;
  }

  void kill_rank(int rank) { kill(pids_[rank], SIGKILL); }
  // Exit code of each; -1: by a signal.
  std::vector<int> wait() {
    std::vector<int> codes;
    for (pid_t& pid : pids_) {
      int status = 0;
      waitpid(std::exchange(pid, -1), &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return codes;
  }
  void stop_and_expect_no_errors() {
    board_->stop = true;
    const std::vector<int> codes = wait();
    for (int r = 0; r < kLinkedRanks; ++r)
      EXPECT_EQ(codes[static_cast<size_t>(r)], 0) << "rank " << r << ": " << board_->ranks[r].text;
  }

 private:
  int run_rank(int rank) {
    links_.enter(rank / 2);
    setenv("MORAINE_HOST_MEMORY", "network", 1);
    RailsOptions options;
    options.rank = rank;
    options.ranks = kLinkedRanks;
    options.rendezvous = fmt::format("10.77.{}.1:7070", replace_seconds_ > 0 ? rails_ : 0);
    options.replace_seconds = replace_seconds_;
    for (int i = 0; i < rails_; ++i) options.rails.push_back(fmt::format("10.77.{}.0/24", i));
    options.secret = "of this test";
    options.start_seconds = kLinkDeadline;
    options.times = times_;
    QuietRounds quiet;
    std::unique_ptr<Transport> transport;
    try {
      RailsJob job(options);
      for (;;) {
        transport = job.meet();
        board_->ranks[rank].generation = static_cast<int64_t>(job.generation());
        try {
          run_rounds(*transport, *board_, quiet);
          return 0;
        } catch (const Error& e) {
          if (replace_seconds_ == 0 || e.code() != Code::kPeerLost) throw;
          ++board_->ranks[rank].losses;
          transport->fail(e.what());
          transport.reset();
        }
      }
    } catch (const Error& e) {
      if (transport != nullptr) transport->fail(e.what());
      std::strncpy(board_->ranks[rank].text, e.what(), sizeof board_->ranks[rank].text - 1);
      return exit_code(e.code());
    }
  }

  CutLinks links_;
  const int rails_;
  const RailTimes times_;
  const double replace_seconds_;
  Board* board_;
  pid_t pids_[kLinkedRanks] = {};
};

void pause(SeededDraws& draws, int64_t least_milliseconds, int64_t most_milliseconds) {
  const int64_t more = draws.below(most_milliseconds - least_milliseconds);
  sleep_seconds(static_cast<double>(least_milliseconds + more) * 1e-3);
}

struct Damage {
  int link, side;
  Cut how;
};

void report(LinkedJob& job, int rails, const std::string& what) {
  std::printf("rails N=%d cut=%s %s\n", rails, what.c_str(), job.longest_gaps().c_str());
}

// At most all links but one, which the seed chooses.
std::vector<int> some_links(SeededDraws& draws, int rails, int most) {
  std::vector<int> links(static_cast<size_t>(rails));
  std::iota(links.begin(), links.end(), 0);
  for (int i = 0; i < rails - 1; ++i)
    std::swap(links[static_cast<size_t>(i)],
              links[static_cast<size_t>(i + draws.below(rails - i))]);
  links.resize(static_cast<size_t>(1 + draws.below(most)));
  return links;
}

void cut_and_heal(LinkedJob& job, SeededDraws& draws, int rails, Cut how) {
  std::vector<Damage> damage;
  for (const int link : some_links(draws, rails, rails - 1))
    damage.push_back({link, static_cast<int>(draws.below(2)), how});
  for (const Damage& d : damage) {
    job.links().cut(d.link, d.how, d.side);
    pause(draws, 0, 30);
  }
  pause(draws, 300, 500);
  for (const Damage& d : damage) job.links().heal(d.link, d.how, d.side);
  pause(draws, 200, 400);
  report(job, rails, fmt::format("{} k={}", cut_name(how), damage.size()));
}

void flap(LinkedJob& job, SeededDraws& draws, int rails) {
  const std::vector<int> links = some_links(draws, rails, rails - 1);
  for (const double end = now_seconds() + 0.8; now_seconds() < end;) {
    std::vector<Damage> damage;
    for (const int link : links)
      damage.push_back({link, static_cast<int>(draws.below(2)), kAllCuts[draws.below(4)]});
    for (const Damage& d : damage) job.links().cut(d.link, d.how, d.side);
    pause(draws, 50, 150);
    for (const Damage& d : damage) job.links().heal(d.link, d.how, d.side);
    pause(draws, 50, 150);
  }
  sleep_seconds(0.3);
  report(job, rails, fmt::format("flapping k={}", links.size()));
}

#define SKIP_WITHOUT_LINKS(job)         \
  if (!(job).links().problem().empty()) \
  GTEST_SKIP() << "NOT TESTED: rails whose links fail: " << (job).links().problem()

class RailsLinks : public ::testing::TestWithParam<int> {};

TEST_P(RailsLinks, AnyCutButTheLastReachesNoRank) {
  const int rails = GetParam();
  LinkedJob job(rails);
  SKIP_WITHOUT_LINKS(job);
  job.start();
  job.await_quiet_rounds();
  report(job, rails, "none");
  const char* other = std::getenv("MORAINE_LINK_SEED");
  SeededDraws draws{other != nullptr ? std::strtoull(other, nullptr, 10)
                                     : static_cast<uint64_t>(rails)};
  for (const Cut how : kAllCuts) {
    for (int i = 0; i < 2; ++i) cut_and_heal(job, draws, rails, how);
  }
  flap(job, draws, rails);
  const int64_t rounds = job.slowest();
  job.stop_and_expect_no_errors();
  EXPECT_EQ(job.links().problem(), "");
  std::printf("rails N=%d: %ld rounds, MORAINE_LINK_SEED=%ld\n", rails, long(rounds),
              long(draws.seed));
}

INSTANTIATE_TEST_SUITE_P(Rails, RailsLinks, ::testing::Values(2, 7));

// How long all links are gone: none to three times that an operation is run again.
RailTimes short_holds(int resends) {
  RailTimes times;
  times.hold_seconds = 0.5;
  times.interval_seconds = 0.1;
  times.resends = resends;
  return times;
}

TEST(RailsLinks, WithoutAnyLinkAnOperationIsHeldAndGoesOn) {
  constexpr int kRails = 2;
  LinkedJob job(kRails, short_holds(1000));
  SKIP_WITHOUT_LINKS(job);
  job.start();
  job.await_quiet_rounds();
  SeededDraws draws{1};
  for (const Cut how : kAllCuts) {
    pause(draws, 0, 50);
    int sides[kRails];
    for (int link = 0; link < kRails; ++link)
      job.links().cut(link, how, sides[link] = static_cast<int>(draws.below(2)));
    sleep_seconds(0.4);
    const int64_t before = job.slowest();
    const double cut = now_seconds();
    pause(draws, 100, 1900);
    EXPECT_LE(job.slowest(), before + 1);  // they were really cut
    for (int link = 0; link < kRails; ++link) job.links().heal(link, how, sides[link]);
    const double healed = now_seconds();
    while (job.slowest() <= before + 1 && now_seconds() < healed + kLinkDeadline)
      sleep_seconds(0.005);
    const double went_on = now_seconds();
    while (job.slowest() < before + 3 && now_seconds() < healed + kLinkDeadline)
      sleep_seconds(0.01);
    EXPECT_GE(job.slowest(), before + 3);
    report(job, kRails,
           fmt::format("all-{} for {:.0f} ms, going on {:.0f} ms after", cut_name(how),
                       (healed - cut + 0.4) * 1e3, (went_on - healed) * 1e3));
  }
  job.stop_and_expect_no_errors();
  EXPECT_EQ(job.links().problem(), "");
}

// All ranks live, and nobody else says why they do not hear each other.
TEST(RailsLinks, WithoutAnyLinkForTooLongAllEndAndSaySo) {
  constexpr int kRails = 2;
  const RailTimes times = short_holds(2);
  LinkedJob job(kRails, times);
  SKIP_WITHOUT_LINKS(job);
  job.start();
  job.await_quiet_rounds();
  const double begin = now_seconds();
  for (int link = 0; link < kRails; ++link) job.links().cut(link, Cut::kSilent, 0);
  const std::vector<int> codes = job.wait();
  std::printf("rails N=2 all links gone: all ranks ended after %.0f ms, patience %.0f ms\n",
              (now_seconds() - begin) * 1e3, times.patience_seconds() * 1e3);
  EXPECT_GT(now_seconds() - begin, times.patience_seconds());
  for (int r = 0; r < kLinkedRanks; ++r) {
    const std::string text = job.board().ranks[r].text;
    EXPECT_EQ(codes[static_cast<size_t>(r)], exit_code(Code::kPeerLost)) << text;
    EXPECT_NE(text.find("has no rail that carried anything for"), std::string::npos) << text;
    EXPECT_NE(text.find("2 attempts"), std::string::npos) << text;
  }
}

// The next level: they meet again where they can, and work on if the links have healed until the last of some meetings,
// however few times an operation is run again.
TEST(RailsLinks, RanksThatHaveGivenUpMeetAgainWhileTheirLinksMayHeal) {
  constexpr int kRails = 2;
  const RailTimes times = short_holds(1);
  LinkedJob job(kRails, times, 5);
  SKIP_WITHOUT_LINKS(job);
  job.start();
  job.await_quiet_rounds();
  const auto cut = [&] {
    for (int link = 0; link < kRails; ++link) job.links().cut(link, Cut::kSilent, 0);
  };
  cut();
  const auto has_lost = [](const Board::OfRank& r) { return r.losses > 0; };
  for (const double begin = now_seconds(); now_seconds() < begin + kLinkDeadline;) {
    if (std::ranges::all_of(job.board().ranks, has_lost)) break;
    sleep_seconds(0.01);
  }
  for (const Board::OfRank& r : job.board().ranks) ASSERT_TRUE(has_lost(r)) << r.text;
  sleep_seconds(1.5 * times.patience_seconds());  // within the second of three meetings
  const double end = now_seconds() + kLinkDeadline;
  for (int link = 0; link < kRails; ++link) job.links().heal(link, Cut::kSilent, 0);
  const int64_t before = job.slowest();
  while (job.slowest() < before + kVariants && now_seconds() < end) sleep_seconds(0.01);
  EXPECT_GE(job.slowest(), before + kVariants);
  for (Board::OfRank& r : job.board().ranks) EXPECT_GE(r.generation, 2) << r.text;
  cut();
  const double begin = now_seconds();
  const std::vector<int> codes = job.wait();
  std::printf("rails N=2 all links gone: ranks gave up after %.0f ms\n",
              (now_seconds() - begin) * 1e3);
  for (int r = 0; r < kLinkedRanks; ++r) {
    const std::string text = job.board().ranks[r].text;
    EXPECT_EQ(codes[static_cast<size_t>(r)], exit_code(Code::kPeerLost)) << text;
    EXPECT_NE(text.find("ranks met 3 times in a row"), std::string::npos) << text;
  }
}

// Congestion: single packets are lost on every link, and TCP sends them again.
TEST(RailsLinks, DroppedPacketsChangeNothing) {
  constexpr int kRails = 2;
  LinkedJob job(kRails);
  SKIP_WITHOUT_LINKS(job);
  job.start();
  job.await_quiet_rounds();
  for (int link = 0; link < kRails; ++link) {
    for (int side = 0; side < 2; ++side) job.links().cut(link, Cut::kCrowded, side);
  }
  const auto dropped = [&job] {
    int64_t sum = 0;
    for (int link = 0; link < kRails; ++link)
      sum += job.links().dropped(link, 0) + job.links().dropped(link, 1);
    return sum;
  };
  const int64_t before = job.slowest();
  const double end = now_seconds() + kLinkDeadline;
  while ((job.slowest() < before + 3 || dropped() < 100) && now_seconds() < end)
    sleep_seconds(0.01);
  EXPECT_GE(job.slowest(), before + 3);
  const int64_t lost = dropped();
  EXPECT_GE(lost, 100);
  report(job, kRails, fmt::format("crowded, {} packets dropped", lost));
  for (int link = 0; link < kRails; ++link) {
    for (int side = 0; side < 2; ++side) job.links().heal(link, Cut::kCrowded, side);
  }
  job.stop_and_expect_no_errors();
  EXPECT_EQ(job.links().problem(), "");
}

TEST(RailsLinks, ARankThatIsKilledIsNamedByAllOthers) {
  LinkedJob job(2);
  SKIP_WITHOUT_LINKS(job);
  job.start();
  job.await_quiet_rounds();
  const double begin = now_seconds();
  job.kill_rank(3);
  const std::vector<int> codes = job.wait();
  std::printf("rails N=2 rank killed: all others ended after %.0f ms\n",
              (now_seconds() - begin) * 1e3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(codes[static_cast<size_t>(r)], exit_code(Code::kPeerLost));
    EXPECT_NE(std::string(job.board().ranks[r].text).find("rank 3"), std::string::npos)
        << "rank " << r << ": " << job.board().ranks[r].text;
  }
}

}  // namespace
}  // namespace moraine
