// SimulateCluster: one queue of what happens to hosts, one clock of what the run does.
#include "plan/simulate_cluster.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace moraine {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

enum class Happens : uint8_t { kInterruption, kRailDown, kRailUp, kSlowBegins, kSlowEnds };
enum class Doing : uint8_t { kWorking, kSaving, kRecovering };

struct ClusterEvent {
  double at = 0;
  Happens what = Happens::kInterruption;
  int64_t rail = 0;
  bool operator>(const ClusterEvent& other) const { return at > other.at; }
};

class ClusterRun {
 public:
  ClusterRun(const ClusterFaults& faults, uint64_t seed);
  SimulatedCluster run(int64_t interruptions, double most_seconds);

 private:
  double draw(double mean) {
    return -mean * std::log(random_uniform(seed_, Stream::kFaults, 1, draws_++));
  }
  double whole_mean() const {
    return 1 / (static_cast<double>(in_.ranks) / in_.rank_mtbf +
                static_cast<double>(hosts_) / in_.host_mtbf);
  }
  void push(double after, Happens what, int64_t rail = 0) {
    events_.push({now_ + after, what, rail});
  }
  double speed() const;
  void advance(double to);
  void end_of_phase();
  void skip_cycles(double until);
  void take(const ClusterEvent& event);
  void interrupt();
  void lose_rail(int64_t rail);
  void end_stretch();

  const ClusterFaults& faults_;
  const ReliabilityInputs& in_;
  const uint64_t seed_;
  uint64_t draws_ = 0;
  int64_t hosts_ = 1;
  double every_ = 0;
  std::priority_queue<ClusterEvent, std::vector<ClusterEvent>, std::greater<>> events_;
  std::vector<int64_t> down_;  // rails of each host
  int64_t slow_now_ = 0;

  double now_ = 0;
  Doing doing_ = Doing::kWorking;
  double left_ = 0;                           // of what it does: seconds, or work
  double work_ = 0, whole_ = 0;               // done; in the last whole snapshot
  double pending_ = 0, pending_at_ = kNever;  // a snapshot on its way to the disk
  double slowed_ = 0;                         // seconds of work that slowness took

  SimulatedCluster result_;
  double stretch_begin_ = 0, stretch_work_ = 0;
  std::vector<std::pair<double, double>> stretches_;  // wall time, work kept
};

ClusterRun::ClusterRun(const ClusterFaults& faults, uint64_t seed)
    : faults_(faults), in_(faults.parts), seed_(seed) {
  const Reliability expected = expect_reliability(in_);  // checks the inputs
  if (!(faults.slow_factor >= 1) || !(faults.rail_share >= 0 && faults.rail_share <= 1))
    throw_error(
        Code::kInvalidArgument,
        "plan cluster: slow factor {}, share that waits for hosts {}: wanted 1 or more, and "
        "0 to 1",
        faults.slow_factor, faults.rail_share);
  every_ = left_ = expected.every;
  hosts_ = (in_.ranks + in_.ranks_per_host - 1) / in_.ranks_per_host;
  push(draw(whole_mean()), Happens::kInterruption);
  if (faults.slow_mtbf > 0)
    push(draw(faults.slow_mtbf / static_cast<double>(hosts_)), Happens::kSlowBegins);
  if (hosts_ == 1) return;
  down_.assign(static_cast<size_t>(hosts_), 0);
  for (int64_t rail = 0; rail < hosts_ * in_.rails; ++rail)
    push(draw(in_.rail_mtbf), Happens::kRailDown, rail);
}

double ClusterRun::speed() const {
  int64_t most = 0;
  if (faults_.rail_share > 0) {
    for (const int64_t down : down_) most = std::max(most, std::min(down, in_.rails - 1));
  }
  const double rails = static_cast<double>(in_.rails);
  const double waits = faults_.rail_share * (rails / (rails - static_cast<double>(most)) - 1);
  return 1 / ((slow_now_ > 0 ? faults_.slow_factor : 1) * (1 + waits));
}

void ClusterRun::advance(double to) {
  const double seconds = to - now_;
  now_ = to;
  if (doing_ != Doing::kWorking) {
    left_ -= seconds;
    return;
  }
  const double done = seconds * speed();
  work_ += done;
  left_ -= done;
  slowed_ += seconds - done;
}

void ClusterRun::end_of_phase() {
  if (doing_ == Doing::kWorking) {
    doing_ = Doing::kSaving;
    left_ = in_.save;
    return;
  }
  if (doing_ == Doing::kSaving) {
    pending_ = work_;
    pending_at_ = now_ + in_.write;
  }
  doing_ = Doing::kWorking;
  left_ = every_;
}

// Undisturbed cycles of work and save one like another, as many as end before `until`: in one step.
void ClusterRun::skip_cycles(double until) {
  if (doing_ != Doing::kWorking || pending_at_ != kNever) return;
  const double pace = speed(), cycle = every_ / pace + in_.save;
  const double cycles = std::floor((until - now_) / cycle) - 1;
  if (!(cycles > 1)) return;
  now_ += cycles * cycle;
  work_ += cycles * every_;
  slowed_ += cycles * (every_ / pace - every_);
  const double since = every_ - left_;  // work since the last snapshot
  pending_ = whole_ = work_ - since;
  if (since / pace >= in_.write) return;
  pending_at_ = now_ - since / pace + in_.write;
  whole_ -= every_;
}

void ClusterRun::end_stretch() {
  stretches_.emplace_back(now_ - stretch_begin_, whole_ - stretch_work_);
  stretch_begin_ = now_;
  stretch_work_ = whole_;
}

void ClusterRun::interrupt() {
  ++result_.interruptions;
  end_stretch();
  work_ = whole_;
  pending_at_ = kNever;
  doing_ = Doing::kRecovering;
  left_ = in_.detect + in_.restart;
}

void ClusterRun::lose_rail(int64_t rail) {
  push(draw(in_.rail_repair), Happens::kRailUp, rail);
  if (++down_[static_cast<size_t>(rail / in_.rails)] == in_.rails) return interrupt();
  ++result_.gaps;
  now_ += doing_ == Doing::kRecovering ? 0 : in_.gap;
}

void ClusterRun::take(const ClusterEvent& event) {
  switch (event.what) {
    case Happens::kInterruption:
      push(draw(whole_mean()), Happens::kInterruption);
      return interrupt();
    case Happens::kRailDown:
      return lose_rail(event.rail);
    case Happens::kRailUp:
      --down_[static_cast<size_t>(event.rail / in_.rails)];
      return push(draw(in_.rail_mtbf), Happens::kRailDown, event.rail);
    case Happens::kSlowBegins:
      ++slow_now_;
      ++result_.slow_hosts;
      push(draw(faults_.slow_seconds), Happens::kSlowEnds);
      return push(draw(faults_.slow_mtbf / static_cast<double>(hosts_)), Happens::kSlowBegins);
    case Happens::kSlowEnds:
      --slow_now_;
      return;
  }
}

SimulatedCluster ClusterRun::run(int64_t interruptions, double most_seconds) {
  while (result_.interruptions < interruptions && now_ < most_seconds) {
    skip_cycles(std::min(events_.top().at, most_seconds));
    const double phase = now_ + left_ / (doing_ == Doing::kWorking ? speed() : 1);
    const double event = std::max(now_, events_.top().at);
    const double to = std::min({phase, event, std::max(now_, pending_at_)});
    advance(to);
    if (to == pending_at_ || (pending_at_ < now_)) {
      whole_ = pending_;
      pending_at_ = kNever;
    } else if (to == phase) {
      end_of_phase();
    } else {
      const ClusterEvent next = events_.top();
      events_.pop();
      take(next);
    }
  }
  if (stretches_.empty() || result_.interruptions < interruptions) end_stretch();
  double kept = 0;
  for (const auto& [wall, done] : stretches_) result_.seconds += wall, kept += done;
  result_.useful = kept / result_.seconds;
  result_.slow = slowed_ / result_.seconds;
  double square = 0;
  for (const auto& [wall, done] : stretches_)
    square += (done - result_.useful * wall) * (done - result_.useful * wall);
  result_.useful_error = std::sqrt(square) / result_.seconds;
  return result_;
}

}  // namespace

SimulatedCluster simulate_cluster(const ClusterFaults& faults, int64_t interruptions,
                                  double most_seconds, uint64_t seed) {
  return ClusterRun(faults, seed).run(interruptions, most_seconds);
}

}  // namespace moraine
