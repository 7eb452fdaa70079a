// Sums over heartbeats and the ledger.
#include "supervisor/useful_share.h"

#include <algorithm>
#include <vector>

namespace moraine {
namespace {

constexpr size_t kLooks = 256;

// From the fault until ranks computed again; negative: no process was started for it.
double recovery_of(const LedgerEntry& e) {
  if (e.phases.empty()) return -1;
  double seconds = 0;
  for (const LedgerPhase& phase : e.phases)
    if (phase.name != "first_step") seconds += phase.seconds;
  return seconds;
}

}  // namespace

void UsefulTime::hear(double now, const BeatSnapshot& beat) {
  if (beat.step <= step_ || !(beat.step_seconds > 0)) return;
  if (begin_ < 0) {
    begin_ = now;
    first_step_ = beat.step;
  } else {
    const auto steps = static_cast<double>(beat.step - step_);
    useful_ += steps * beat.step_seconds;
    if (between_.size() >= kLooks) between_.erase(between_.begin());
    between_.push_back((now - heard_) / steps - beat.step_seconds);
  }
  heard_ = now;
  step_ = beat.step;
}

UsefulShare UsefulTime::share(double now, std::span<const LedgerEntry> entries) const {
  UsefulShare share;
  if (begin_ < 0 || between_.empty() || !(now > begin_)) return share;
  std::vector<const LedgerEntry*> starts;
  for (const LedgerEntry& e : entries)
    if (e.begin_unix >= begin_ && recovery_of(e) >= 0) starts.push_back(&e);
  std::stable_sort(starts.begin(), starts.end(), [](const LedgerEntry* a, const LedgerEntry* b) {
    return a->begin_unix < b->begin_unix;
  });
  double recovered = 0, computing_at = begin_;
  for (const LedgerEntry* e : starts) {
    const double again = e->begin_unix + recovery_of(*e);
    if (e->begin_unix >= computing_at) ++share.interruptions;
    recovered += std::max(0.0, again - std::max(e->begin_unix, computing_at));
    computing_at = std::max(computing_at, again);
  }
  share.watched = now - begin_;
  if (share.interruptions > 0)
    share.recovery = recovered / static_cast<double>(share.interruptions);
  share.step_seconds = useful_ / static_cast<double>(step_ - first_step_);
  std::vector<double> between = between_;
  const auto middle = between.begin() + std::ssize(between) / 2;
  std::nth_element(between.begin(), middle, between.end());
  share.between_seconds = std::max(0.0, *middle);
  share.useful = std::min(1.0, useful_ / share.watched);
  return share;
}

}  // namespace moraine
