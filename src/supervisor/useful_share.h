// UsefulShare: how often a run was interrupted, what one interruption took, and what share of its time was useful.
//
// Useful is the time of every step that was the first of its number, whatever was computed again later or stood still.
// An interruption is what ranks were started again for; incidents that overlap are one. Its recovery is the time until
// ranks compute again (detection, decision, respawn, meeting, loading); what they then compute once more is not in it:
// a model of reliability derives that from how often a state is kept.
// What lies between steps (copies of the state, logs) is a median over all looks, of which few see an interruption.
//
// Units: seconds. Counted from the first step that is seen, by one supervisor: one that is started again counts anew.
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
  // The page of any rank, again and again.
  void hear(double now, const BeatSnapshot& beat);
  // `entries` that began since; none if no step was seen.
  UsefulShare share(double now, std::span<const LedgerEntry> entries) const;

 private:
  double begin_ = -1, useful_ = 0, heard_ = 0;
  int64_t first_step_ = 0, step_ = 0;
  std::vector<double> between_;  // of each look that saw new steps; the last kLooks
  size_t looks_ = 0;
};

}  // namespace moraine
