// CommMeasure: bursts of messages between barriers: ours, a plain copy and Open MPI in turn.
#include "bench/comm_measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "bench/between_ranks.h"
#include "comm/all_ranks.h"
#include "comm/collectives.h"
#include "comm/mpi_library.h"
#include "comm/stream.h"
#include "tensor/arena.h"

namespace moraine {
namespace {

constexpr double kBurstSeconds = 1e-3;
constexpr int64_t kAreaBytes = int64_t{128} << 20;  // 4 times a 32 MiB cache

struct Sample {
  double seconds;
  int64_t switches;
};

int64_t forced_switches() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

class Measure {
 public:
  Measure(Transport& transport, const CommMeasureOptions& options)
      : options_(options),
        size_(transport.size()),
        comm_(transport, all_ranks(transport), 0, "bench", kBenchDeadline),
        control_(transport, all_ranks(transport), 1, "bench control", kBenchDeadline),
        arena_(Arena::Mode::kReal),
        from_(arena_.take("bench.from", "bench", DType::kU8, {area_bytes()})),
        to_(arena_.take("bench.to", "bench", DType::kU8, {area_bytes()})) {
    bind_to_core(transport.rank());
    std::memset(from_.data, 0, static_cast<size_t>(from_.bytes()));
    std::memset(to_.data, 0, static_cast<size_t>(to_.bytes()));
  }

  std::vector<CommTimes> run() {
    std::vector<CommTimes> table;
    table.push_back(measure(
        "barrier", 0, 0, [this](int64_t) { barrier(comm_); },
        [] { return mpi_library().barrier(mpi_library().world); }));
    for (int64_t bytes = 8; bytes <= options_.most_bytes; bytes *= bytes < 64 ? 8 : 4) {
      bytes_ = bytes;
      if (size_ % 2 == 0) measure_message(table);
      measure_collectives(table);
    }
    return table;
  }

 private:
  int64_t area_bytes() const { return std::max(kAreaBytes, 2 * size_ * options_.most_bytes); }
  int64_t step() const { return size_ * bytes_; }  // what one repetition touches at most

  // Where repetition i begins.
  int64_t offset(int64_t i) const {
    if (bytes_ < kColdBytes) return 0;
    return i % (area_bytes() / step()) * step();
  }
  std::byte* from(int64_t i, int member) const {
    return static_cast<std::byte*>(from_.data) + offset(i) + member * bytes_;
  }
  std::byte* to(int64_t i, int member) const {
    return static_cast<std::byte*>(to_.data) + offset(i) + member * bytes_;
  }
  size_t piece() const { return static_cast<size_t>(bytes_); }

  // Seconds per repetition, of the slowest rank. A burst in which some other program took a rank's
  // core is taken again, a few times.
  double burst(int64_t repeats, const std::function<void(int64_t)>& once) {
    constexpr int kTries = 4;
    double seconds = 0;
    for (int i = 0; i < kTries; ++i) {
      barrier(control_);
      const int64_t switches = forced_switches();
      const double start = now_seconds();
      for (int64_t r = 0; r < repeats; ++r) once(next_++);
      const Sample mine = {(now_seconds() - start) / static_cast<double>(repeats),
                           forced_switches() - switches};
      std::vector<Sample> all(static_cast<size_t>(size_));
      all_gather_equal(control_, std::as_bytes(std::span(&mine, 1)),
                       std::as_writable_bytes(std::span(all)));
      bool disturbed = false;
      seconds = 0;
      for (const Sample& s : all) {
        seconds = std::max(seconds, s.seconds);
        disturbed = disturbed || s.switches > 0;
      }
      if (!disturbed) break;
    }
    return seconds;
  }

  CommTimes measure(const char* name, int64_t copies, double delivered,
                    const std::function<void(int64_t)>& ours, const std::function<int()>& theirs) {
    const auto copy = [this, copies](int64_t i) {
      for (int64_t c = 0; c < copies; ++c)
        std::memcpy(to(i, static_cast<int>(c)), from(i, static_cast<int>(c)), piece());
    };
    const auto rival = [&theirs](int64_t) {
      if (theirs() != kMpiSuccess) throw_error(Code::kPeerLost, "bench comm: Open MPI failed");
    };
    CommTimes times;
    times.operation = name;
    times.bytes = bytes_;
    times.delivered = delivered;
    burst(2, ours);
    const double once = burst(3, ours);
    const int64_t repeats =
        std::clamp<int64_t>(static_cast<int64_t>(kBurstSeconds / (once + 1e-9)), 1, 2000);
    if (options_.rival && theirs != nullptr) burst(2, rival);
    for (int s = 0; s < options_.samples; ++s) {
      if (copies > 0) times.copy_seconds.push_back(burst(repeats, copy));
      times.seconds.push_back(burst(repeats, ours));
      if (options_.rival && theirs != nullptr) times.rival_seconds.push_back(burst(repeats, rival));
    }
    return times;
  }

  void measure_message(std::vector<CommTimes>& table) {
    const int me = comm_.rank(), peer = me ^ 1;
    const bool first = me % 2 == 0;
    Transport& t = comm_.transport();
    const auto send = [&](int64_t i) {
      t.wait_sent(t.send(peer, 2, 1, {from(i, 0), piece()}, kBenchDeadline), kBenchDeadline);
    };
    const auto receive = [&](int64_t i) {
      t.receive(peer, 2, 1, {to(i, 0), piece()}, kBenchDeadline);
    };
    const auto rival = [&] {
      const MpiLibrary& mpi = mpi_library();
      const int64_t i = next_;
      MpiStatus status;
      const int n = static_cast<int>(bytes_);
      int result = kMpiSuccess;
      for (const bool sends : {first, !first}) {
        if (result != kMpiSuccess) break;
        MpiRequest request;
        result = sends ? mpi.isend(from(i, 0), n, mpi.byte, peer, 77, mpi.world, &request)
                       : mpi.irecv(to(i, 0), n, mpi.byte, peer, 77, mpi.world, &request);
        for (int done = 0; result == kMpiSuccess && done == 0;)
          result = mpi.test(&request, &done, &status);
      }
      return result;
    };
    CommTimes times = measure(
        "message", 1, static_cast<double>(bytes_) * size_ / 2,
        [&](int64_t i) {
          first ? send(i) : receive(i);
          first ? receive(i) : send(i);
        },
        rival);
    for (double& s : times.seconds) s /= 2;  // there and back
    for (double& s : times.rival_seconds) s /= 2;
    table.push_back(times);
  }

  void measure_collectives(std::vector<CommTimes>& table) {
    const double delivered = static_cast<double>(bytes_) * size_ * (size_ - 1);
    const MpiLibrary* mpi = options_.rival ? &mpi_library() : nullptr;
    const int n = static_cast<int>(bytes_), me = comm_.rank();
    const int64_t peers = size_ - 1;
    table.push_back(measure(
        "all_gather", peers, delivered,
        [this, me](int64_t i) {
          all_gather_equal(comm_, {to(i, me), piece()},
                           {to(i, 0), piece() * static_cast<size_t>(size_)});
        },
        [=, this] {  // in place, as ours
          return mpi->allgather(reinterpret_cast<void*>(1), n, mpi->byte, to(next_, 0), n,
                                mpi->byte, mpi->world);
        }));
    std::vector<ConstBytes> send(static_cast<size_t>(size_));
    std::vector<Bytes> receive(static_cast<size_t>(size_));
    table.push_back(measure(
        "all_to_all", size_, delivered + static_cast<double>(bytes_) * size_,
        [&, this](int64_t i) {
          for (int m = 0; m < size_; ++m) {
            send[static_cast<size_t>(m)] = {from(i, m), piece()};
            receive[static_cast<size_t>(m)] = {to(i, m), piece()};
          }
          all_to_all(comm_, send, receive);
        },
        [=, this] {
          return mpi->alltoall(from(next_, 0), n, mpi->byte, to(next_, 0), n, mpi->byte,
                               mpi->world);
        }));
    Shares shares;
    for (int m = 0; m < size_; ++m) shares.push_back({{m * bytes_ / 4, (m + 1) * bytes_ / 4}});
    table.push_back(measure(
        "reduce_scatter", peers, delivered,
        [&, this](int64_t i) {
          reduce_scatter(comm_, make_tensor(from(i, 0), DType::kF32, {size_ * bytes_ / 4}), shares);
        },
        [=, this] {
          return mpi->reduce_scatter_block(from(next_, 0), to(next_, 0), n / 4, mpi->real, mpi->sum,
                                           mpi->world);
        }));
    measure_bucket(table, shares, delivered);
  }

  // As a training step does it: handed to a stream, which has to wake up.
  void measure_bucket(std::vector<CommTimes>& table, const Shares& shares, double delivered) {
    CommStream stream;
    table.push_back(measure(
        "bucket", 0, delivered,
        [&, this](int64_t i) {
          const Tensor data = make_tensor(from(i, 0), DType::kF32, {size_ * bytes_ / 4});
          stream.submit([&, data] { reduce_scatter(comm_, data, shares); }).wait();
        },
        nullptr));
  }

  const CommMeasureOptions options_;
  const int size_;
  Communicator comm_, control_;
  Arena arena_;
  const Tensor from_, to_;
  int64_t bytes_ = 0, next_ = 0;
};

}  // namespace

std::vector<CommTimes> measure_comm(Transport& transport, const CommMeasureOptions& options) {
  return Measure(transport, options).run();
}

// Weights 1 / seconds^2: a small message counts as much as a large one.
CommFit fit_comm(const std::vector<std::pair<double, double>>& points) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (const auto& [x, y] : points) {
    const double weight = 1 / (y * y);
    w += weight, wx += weight * x, wy += weight * y, wxx += weight * x * x, wxy += weight * x * y;
  }
  const double determinant = w * wxx - wx * wx;
  if (determinant <= 0) return {};
  const double slope = (w * wxy - wx * wy) / determinant;
  return {std::max(0.0, (wy - slope * wx) / w), slope > 0 ? 1 / slope : 0};
}

std::string comm_times_text(const std::vector<CommTimes>& table) {
  Json json = Json::array();
  for (const CommTimes& t : table) {
    json.push_back({{"operation", t.operation},
                    {"bytes", t.bytes},
                    {"delivered", t.delivered},
                    {"seconds", t.seconds},
                    {"copy_seconds", t.copy_seconds},
                    {"rival_seconds", t.rival_seconds},
                    {"tokens", t.tokens}});
  }
  return json_text(json);
}

std::vector<CommTimes> parse_comm_times(const std::string& text) {
  std::vector<CommTimes> table;
  for (const Json& json : parse_json(text, "measured times")) {
    CommTimes t;
    t.operation = json.at("operation").get<std::string>();
    t.bytes = json.at("bytes").get<int64_t>();
    t.delivered = json.at("delivered").get<double>();
    t.seconds = json.at("seconds").get<std::vector<double>>();
    t.copy_seconds = json.at("copy_seconds").get<std::vector<double>>();
    t.rival_seconds = json.at("rival_seconds").get<std::vector<double>>();
    t.tokens = json.at("tokens").get<int64_t>();
    table.push_back(t);
  }
  return table;
}

}  // namespace moraine
