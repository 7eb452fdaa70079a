// Simulated reliability: every part fails and is repaired by itself, and the run goes through what comes.
#include <cmath>
#include <functional>
#include <queue>
#include <vector>

#include "base/random.h"
#include "plan/reliability.h"

namespace moraine {
namespace {

enum class Fault : uint8_t { kInterruption, kGap };

// The faults of all parts in order of time.
class Faults {
 public:
  Faults(const ReliabilityInputs& in, uint64_t seed) : in_(in), seed_(seed) {
    const int64_t hosts = (in.ranks + in.ranks_per_host - 1) / in.ranks_per_host;
    whole_rate_ =
        static_cast<double>(in.ranks) / in.rank_mtbf + static_cast<double>(hosts) / in.host_mtbf;
    whole_at_ = draw(1 / whole_rate_);
    if (hosts == 1) return;
    down_.assign(static_cast<size_t>(hosts), 0);
    for (int64_t rail = 0; rail < hosts * in.rails; ++rail)
      events_.push({draw(in.rail_mtbf), rail, true});
  }

  // The next one, and when.
  Fault next(double* at) {
    for (;;) {
      if (events_.empty() || whole_at_ < events_.top().at) {
        *at = whole_at_;
        whole_at_ += draw(1 / whole_rate_);
        return Fault::kInterruption;
      }
      const Event e = events_.top();
      events_.pop();
      int64_t& down = down_[static_cast<size_t>(e.rail / in_.rails)];
      events_.push(
          {e.at + draw(e.is_failure ? in_.rail_repair : in_.rail_mtbf), e.rail, !e.is_failure});
      down += e.is_failure ? 1 : -1;
      if (!e.is_failure) continue;
      *at = e.at;
      return down == in_.rails ? Fault::kInterruption : Fault::kGap;
    }
  }

 private:
  struct Event {
    double at;
    int64_t rail;
    bool is_failure;
    bool operator>(const Event& other) const { return at > other.at; }
  };
  double draw(double mean) {
    return -mean * std::log(random_uniform(seed_, Stream::kFaults, 0, draws_++));
  }

  const ReliabilityInputs& in_;
  const uint64_t seed_;
  uint64_t draws_ = 0;
  double whole_rate_ = 0, whole_at_ = 0;
  std::vector<int64_t> down_;  // rails of each host
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

// What has been done since a restart: `seconds` of running are so much work that a restart finds again.
double kept_work(const ReliabilityInputs& in, double every, double seconds) {
  const double snapshots = std::floor((seconds - in.write) / (every + in.save));
  return seconds < in.write ? 0 : snapshots * every;
}

}  // namespace

SimulatedReliability simulate_reliability(const ReliabilityInputs& in, int64_t interruptions,
                                          uint64_t seed) {
  const double every = expect_reliability(in).every, recovery = in.detect + in.restart;
  Faults faults(in, seed);
  SimulatedReliability result;
  double begin = 0, stopped = 0, work = 0,
         shift = 0;  // of this stretch; gaps in it; all work; gaps so far
  std::vector<std::pair<double, double>> stretches;  // wall time, work kept
  double last = 0;
  while (result.interruptions < interruptions) {
    double at = 0;
    const Fault fault = faults.next(&at);
    at += shift;
    if (fault == Fault::kGap) {
      ++result.gaps;
      if (at > begin) stopped += in.gap;
      shift += in.gap;
      continue;
    }
    ++result.interruptions;
    if (at > begin) work += kept_work(in, every, at - begin - stopped);
    stretches.emplace_back(at - last, work);
    last = at;
    work = 0;
    begin = at + recovery;
    stopped = 0;
  }
  double seconds = 0, kept = 0;
  for (const auto& [wall, done] : stretches) seconds += wall, kept += done;
  result.seconds = seconds;
  result.useful = kept / seconds;
  // A ratio of sums: the spread of what each stretch did more than its share.
  double square = 0;
  for (const auto& [wall, done] : stretches)
    square += (done - result.useful * wall) * (done - result.useful * wall);
  result.useful_error = std::sqrt(square) / seconds;
  return result;
}

}  // namespace moraine
