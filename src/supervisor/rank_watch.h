// RankWatch: who of the ranks hangs, and who is slow, from their heartbeats alone.
//
// A hang is not a slow step. Beats grow with every operation that ends; a rank in a step whose beats and step stand
// still longer than max(hang_seconds, hang_factor * median step) has stopped moving, and one in anything else than a
// step longer than start_seconds. Most of those that stand still wait for another: the culprit is the one at the end of
// that chain, if it stands still too; a process that is stopped ends it. Stopped is who was so for half of that time
// without a break: one that is slowed down is stopped now and then. If the chain is a ring, it is the one that most
// wait for. Pages number the ranks of a group, which is smaller than the run while some of that are lost: here all are
// of the run.
//
// An operation that is held, as links are cut, is no hang: ranks end that themselves (comm/rails/rail_peer.h). While
// one says so nobody is suspected who waits; who is stopped, or does not move and does not wait, is as ever.
//
// A straggler computes (waiting left out) more than straggler_factor times as long as the median rank, kSlowSteps
// steps in a row.
//
// A process that never beats is not watched: nothing is known of it.
//
// Pure: no clock, no system calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "supervisor/options.h"
#include "supervisor/run_event.h"
#include "supervisor/state_json.h"

namespace moraine {

struct RankHang {
  int rank = -1;  // -1: nobody hangs
  double since = 0;
  bool stopped = false;
  std::string evidence;
};

class RankWatch {
 public:
  static constexpr int kSlowSteps = 16;
  static constexpr size_t kStepsKept = 32;

  // What is known of one rank's process.
  struct Record {
    bool watched = false;
    bool heard = false;  // a beat of this process
    double moved_at = 0;
    double step_at = 0;
    double stopped_at = -1;  // without a break since; -1: it was not
    BeatSnapshot beat;
    int64_t slow_steps = 0;
    bool told_slow = false;
  };
  struct State {
    std::vector<Record> ranks;
    std::vector<double> step_seconds;  // the last kStepsKept, of all ranks
  };

  RankWatch(const SuperviseOptions& options, State state) : options_(options), state_(state) {}
  static State initial(int64_t ranks);

  // A new process of `rank`, from now on; or none.
  void begin(double now, int rank);
  void end(int rank);
  void observe(double now, int rank, const BeatSnapshot& beat);
  // Nobody looked at the ranks for so long, or some were not heard, which counts for nobody's hang.
  static void leave_out(double seconds, State* state);
  void leave_out(double seconds) { leave_out(seconds, &state_); }

  RankHang find_hang(double now) const;
  bool is_slow(int rank);  // true once, until it has been fast again
  double median_step() const;
  const Record& record(int rank) const { return state_.ranks[static_cast<size_t>(rank)]; }
  const State& state() const { return state_; }

 private:
  double step_limit() const;
  double limit(double now, const Record& r) const;
  bool is_stopped(double now, const Record& r) const;
  bool stands_still(double now, const Record& r) const;
  int likeliest_culprit(double now) const;
  int awaited(const BeatSnapshot& beat) const;
  int culprit(double now, int from) const;
  bool any_held(double now) const;
  void compare_compute(Record& r);

  const SuperviseOptions& options_;
  State state_;
};

template <class Visitor>
void each_field(Visitor& visit, BeatSnapshot& b) {
  visit("generation", b.generation);
  visit("rank", b.rank);
  visit("activity", b.activity);
  visit("waits_for", b.waits_for);
  visit("beats", b.beats);
  visit("step", b.step);
  visit("steps_total", b.steps_total);
  visit("step_seconds", b.step_seconds);
  visit("compute_seconds", b.compute_seconds);
  visit("tokens_per_second", b.tokens_per_second);
  FreeNumber loss{b.loss};
  visit("loss", loss);
  b.loss = loss.value;
  visit("stopped", b.stopped);
  visit("stops", b.stops);
  visit("held", b.held);
  visit("strangers", b.strangers);
  visit("met_ago", b.met_ago);
  visit("loaded_ago", b.loaded_ago);
  visit("computed_ago", b.computed_ago);
}

template <class Visitor>
void each_field(Visitor& visit, RankWatch::Record& r) {
  visit("watched", r.watched);
  visit("heard", r.heard);
  visit("moved_at", r.moved_at);
  visit("step_at", r.step_at);
  visit("stopped_at", r.stopped_at);
  visit("beat", r.beat);
  visit("slow_steps", r.slow_steps);
  visit("told_slow", r.told_slow);
}

template <class Visitor>
void each_field(Visitor& visit, RankWatch::State& s) {
  visit("ranks", s.ranks);
  visit("step_seconds", s.step_seconds);
}

}  // namespace moraine
