// Follows who waits for whom to the one that does not move.
#include "supervisor/rank_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace moraine {
namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool is_in_step(Activity activity) {
  return activity == Activity::kComputing || activity == Activity::kWaiting;
}

}  // namespace

RankWatch::State RankWatch::initial(int64_t ranks) {
  return {.ranks = std::vector<Record>(static_cast<size_t>(ranks)), .step_seconds = {}};
}

void RankWatch::begin(double now, int rank) {
  state_.ranks[static_cast<size_t>(rank)] = {
      .watched = true, .moved_at = now, .step_at = now, .beat = {}};
}

void RankWatch::end(int rank) { state_.ranks[static_cast<size_t>(rank)] = {}; }

void RankWatch::observe(double now, int rank, const BeatSnapshot& beat) {
  Record& r = state_.ranks[static_cast<size_t>(rank)];
  if (!r.watched) return;
  const BeatSnapshot before = r.beat;
  const bool stepped = r.heard && beat.step > before.step;
  if (!r.heard || beat.beats != before.beats || beat.step != before.step) r.moved_at = now;
  if (!r.heard || beat.step != before.step) r.step_at = now;
  r.heard = true;
  r.beat = beat;
  if (!beat.stopped || beat.stops != before.stops) r.stopped_at = -1;
  if (beat.stopped && r.stopped_at < 0) r.stopped_at = now;
  if (!stepped) return;
  if (beat.step_seconds > 0) state_.step_seconds.push_back(beat.step_seconds);
  if (state_.step_seconds.size() > kStepsKept)
    state_.step_seconds.erase(state_.step_seconds.begin());
  compare_compute(r);
}

void RankWatch::leave_out(double seconds, State* state) {
  for (Record& r : state->ranks) {
    r.moved_at += seconds;
    if (r.stopped_at >= 0) r.stopped_at += seconds;
  }
}

void RankWatch::compare_compute(Record& r) {
  std::vector<double> compute;
  for (const Record& other : state_.ranks) {
    if (other.watched && other.beat.compute_seconds > 0)
      compute.push_back(other.beat.compute_seconds);
  }
  const bool slow =
      compute.size() > 1 && r.beat.compute_seconds > options_.straggler_factor * median_of(compute);
  r.slow_steps = slow ? r.slow_steps + 1 : 0;
  if (!slow) r.told_slow = false;
}

bool RankWatch::is_slow(int rank) {
  Record& r = state_.ranks[static_cast<size_t>(rank)];
  if (r.slow_steps < kSlowSteps || r.told_slow) return false;
  return r.told_slow = true;
}

double RankWatch::median_step() const { return median_of(state_.step_seconds); }

double RankWatch::step_limit() const {
  return std::max(options_.hang_seconds, options_.hang_factor * median_step());
}

bool RankWatch::is_stopped(double now, const Record& r) const {
  return r.stopped_at >= 0 && now - r.stopped_at > step_limit() / 2;
}

double RankWatch::limit(double now, const Record& r) const {
  // A process that is stopped does nothing, whatever it was at.
  const bool may_be_slow = !is_in_step(r.beat.activity) && !is_stopped(now, r);
  return may_be_slow ? options_.start_seconds : step_limit();
}

bool RankWatch::stands_still(double now, const Record& r) const {
  return r.watched && r.heard && now - r.moved_at > limit(now, r);
}

// Of the run: who has that place in the same group. -1: nobody; it is known to be gone.
int RankWatch::awaited(const BeatSnapshot& beat) const {
  if (beat.generation == 0 || beat.rank < 0) return beat.waits_for;  // of no group
  const auto is_it = [&](const Record& r) {
    return r.watched && r.beat.generation == beat.generation && r.beat.rank == beat.waits_for;
  };
  const auto found = std::find_if(state_.ranks.begin(), state_.ranks.end(), is_it);
  return found == state_.ranks.end() ? -1 : static_cast<int>(found - state_.ranks.begin());
}

int RankWatch::culprit(double now, int from) const {
  const auto ranks = static_cast<int>(state_.ranks.size());
  std::vector<int> seen(state_.ranks.size(), 0);
  int rank = from;
  while (true) {
    const Record& r = record(rank);
    if (!stands_still(now, r)) return -1;
    // A process that is stopped waits for nobody: who it waited for may be gone, and its successor wait for it.
    const bool waits = r.beat.activity == Activity::kWaiting && !is_stopped(now, r);
    if (!waits || r.beat.waits_for < 0) return rank;
    const int next = awaited(r.beat);
    if (next >= ranks || next == rank) return rank;
    if (next < 0 || !record(next).watched) return -1;  // it is known to be gone
    if (++seen[static_cast<size_t>(rank)] > 1) break;
    rank = next;
  }
  // A ring: each waits for the next.
  std::vector<int> waiting(state_.ranks.size(), 0);
  for (const Record& r : state_.ranks) {
    const int other = awaited(r.beat);
    if (r.watched && other >= 0 && other < ranks && stands_still(now, record(other)))
      ++waiting[static_cast<size_t>(other)];
  }
  return static_cast<int>(std::max_element(waiting.begin(), waiting.end()) - waiting.begin());
}

bool RankWatch::any_held(double now) const {
  return std::any_of(state_.ranks.begin(), state_.ranks.end(), [&](const Record& r) {
    return r.watched && r.beat.held > 0 && !is_stopped(now, r);
  });
}

// First who is stopped, then who does not move and does not wait, then who waits and does not say for whom.
int RankWatch::likeliest_culprit(double now) const {
  int best = -1, best_score = 0;
  const bool held = any_held(now);
  for (int rank = 0; rank < static_cast<int>(state_.ranks.size()); ++rank) {
    const int found = culprit(now, rank);
    if (found < 0) continue;
    const BeatSnapshot& beat = record(found).beat;
    const bool stopped = is_stopped(now, record(found));
    if (held && beat.activity == Activity::kWaiting && !stopped) continue;
    const bool says_nothing = beat.activity == Activity::kWaiting && beat.waits_for < 0;
    const int score = stopped ? 3 : says_nothing ? 1 : 2;
    if (score > best_score) best = found;
    best_score = std::max(best_score, score);
  }
  return best;
}

RankHang RankWatch::find_hang(double now) const {
  const int found = likeliest_culprit(now);
  if (found < 0) return {};
  const Record& r = record(found);
  return {.rank = found,
          .since = r.moved_at,
          .stopped = is_stopped(now, r),
          .evidence = fmt::format(
              "no beat for {:.1f} s while {} at step {}, limit {:.1f} s, median step {:.3f} s{}",
              now - r.moved_at, activity_name(r.beat.activity), r.beat.step, limit(now, r),
              median_step(), is_stopped(now, r) ? ", the process is stopped" : "")};
}

}  // namespace moraine
