// UsefulShare: how often a run was interrupted, what one interruption took, and what share of its time was useful.
//
// Useful is the time of every step that was the first of its number, whatever was computed again later or stood still.
// An interruption is what ranks were started again for; incidents that overlap are one. Its recovery is the time until
// ranks compute again (detection, decision, respawn, meeting, loading); what they then compute once more is not in it:
// a model of reliability derives that from how often a state is kept.
// What lies between steps (copies of the state, logs) is a median over all looks, of which few see an interruption.
//
// Units: seconds; moments are seconds since 1970. Counted from the first step that is seen. Who goes on from what
// another one has kept (each_field) goes on counting: steps that were done meanwhile count as long as the next one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "supervisor/ledger.h"
#include "supervisor/run_event.h"

namespace moraine {

struct UsefulShare {
  double watched = 0;
  int64_t interruptions = 0;
  double recovery = 0;         // of one, mean
  double step_seconds = 0;     // mean
  double between_seconds = 0;  // from the end of a step to the next one, while nothing is lost
  double useful = 0;           // share of `watched`
};

class UsefulTime {
 public:
  // The page of any rank, again and again. `now`: never less than before.
  void hear(double now, const BeatSnapshot& beat);
  // `entries` that began since; none if no step was seen.
  UsefulShare share(double now, std::span<const LedgerEntry> entries) const;

  template <class Visitor>
  friend void each_field(Visitor& visit, UsefulTime& t) {
    visit("begin", t.begin_);
    visit("useful", t.useful_);
    visit("heard", t.heard_);
    visit("first_step", t.first_step_);
    visit("step", t.step_);
    visit("between", t.between_);
  }

 private:
  double begin_ = -1, useful_ = 0, heard_ = 0;
  int64_t first_step_ = 0, step_ = 0;
  std::vector<double> between_;  // of the last looks that saw new steps
};

}  // namespace moraine
