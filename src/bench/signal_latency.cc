// SignalLatency: two ranks play ball.
#include "bench/signal_latency.h"

#include <algorithm>

#include "base/clock.h"
#include "bench/between_ranks.h"
#include "comm/all_ranks.h"
#include "comm/collectives.h"
#include "comm/window.h"

namespace moraine {
namespace {

constexpr int64_t kMostBytes = 16 << 10, kWordBytes = 8;
constexpr int kChannel = 3, kMessages = 4;

class Players {
 public:
  explicit Players(Transport& transport)
      : transport_(transport),
        comm_(transport, all_ranks(transport), kChannel, "bench signals", kBenchDeadline),
        window_(comm_),
        place_(window_.add_segment(kMostBytes, "bytes")),
        word_(window_.add_segment(kWordBytes, "signal")),
        from_(kMostBytes),
        to_(kMostBytes) {}

  CommTimes play(int64_t bytes) {
    CommTimes times{.operation = "put_signal", .bytes = bytes};
    barrier(comm_);
    for (int block = 0; block < kBenchBlocks && plays(); ++block) {
      for (int i = 0; i < kBlock; ++i) times.seconds.push_back(put(bytes));
      for (int i = 0; i < kBlock; ++i) times.rival_seconds.push_back(send(bytes));
    }
    window_.quiet();
    barrier(comm_);
    return times;
  }

 private:
  bool plays() const { return comm_.rank() < 2; }
  bool serves() const { return comm_.rank() == 0; }
  int other() const { return 1 - comm_.rank(); }

  double put(int64_t bytes) {
    const double begin = now_seconds();
    ++signals_;
    if (serves()) throw_ball(bytes);
    window_.wait_until(window_.address(comm_.rank(), word_), signals_, other());
    if (!serves()) throw_ball(bytes);
    return (now_seconds() - begin) / 2;
  }
  void throw_ball(int64_t bytes) {
    window_.put_signal(window_.address(other(), place_),
                       ConstBytes(from_.data(), static_cast<size_t>(bytes)),
                       window_.address(other(), word_));
  }

  double send(int64_t bytes) {
    const size_t n = static_cast<size_t>(bytes);
    const auto give = [&] {
      transport_.wait_sent(
          transport_.send(other(), kMessages, 1, {from_.data(), n}, kBenchDeadline),
          kBenchDeadline);
    };
    const double begin = now_seconds();
    if (serves()) give();
    transport_.receive(other(), kMessages, 1, {to_.data(), n}, kBenchDeadline);
    if (!serves()) give();
    return (now_seconds() - begin) / 2;
  }

  Transport& transport_;
  Communicator comm_;
  Window window_;
  const int place_, word_;
  uint64_t signals_ = 0;
  std::vector<std::byte> from_, to_;
};

}  // namespace

std::vector<CommTimes> measure_signals(Transport& transport) {
  Players players(transport);
  std::vector<CommTimes> rows;
  for (int64_t bytes = 64; bytes <= kMostBytes; bytes *= 4) rows.push_back(players.play(bytes));
  return rows;
}

}  // namespace moraine
