// Reliability: what share of a run's time is useful, from the failure rates of its parts.
//
// Parts fail independently, at exponential times. A process or a host that fails interrupts the run; so does a
// host that has lost all its rails at once. One rail alone costs a gap (docs/rails.md), and is repaired.
//
//   rate of interruptions  l = ranks / rank_mtbf + hosts / host_mtbf + hosts * N q^(N-1) p / rail_mtbf
//                          N rails, q = repair / (repair + mtbf): a rail is down, p = 1 - q
//   a run                  works `every` seconds, stands still `save` for a snapshot, which is whole on disk `write`
//                          seconds later; an interruption throws it back to the last snapshot that is whole, after
//                          r = (exp(l R) - 1) / l seconds, R = detect + restart, which an interruption begins anew
//   attempts               to the next whole snapshot take s = every + save, or s + write just after a restart; they
//                          come through with pr = exp(-l s), pf = exp(-l (s + write)); of all attempts
//                          f = (1 - pr) / (pf + 1 - pr) come just after a restart
//   useful share           u = every (f pf + (1 - f) pr) / ((1/l + r) (f (1 - pf) + (1 - f) (1 - pr))),
//                          and of that 1 / (1 + gaps per second * gap)
//
// Losses of all rails are taken as a Poisson process, which they are where repairs are short against the time between
// failures. A host that lost its rails is replaced, as one that failed.
//
// With write = 0 that is Daly's exact form. The best interval is the maximum of u; Young's sqrt(2 save / l) is its
// first order where write = 0.
//
// Units:   seconds. Cost: microseconds; the simulation about a second.
// Errors:  kInvalidArgument for what is not positive, or a write that takes longer than the interval.
// Source:  Daly 2006, "A higher order estimate of the optimum checkpoint interval"; the rest derived above.
#pragma once

#include <cstdint>

namespace moraine {

struct ReliabilityInputs {
  int64_t ranks = 8, ranks_per_host = 8, rails = 2;
  double rank_mtbf = 50000 * 3600.0;  // of one process with its device
  double host_mtbf = 3700 * 3600.0;
  double rail_mtbf = 2000 * 3600.0;  // of one rail of one host
  double rail_repair = 4 * 3600.0;
  double gap = 0.15;                // one rail is lost
  double detect = 5, restart = 60;  // from the fault to the first new step
  double save = 0.1, write = 10;    // a checkpoint: training stands still; until it is whole
  double every = 0;                 // between checkpoints; 0: the best
};

struct Reliability {
  double interruptions = 0;                         // per second
  double of_ranks = 0, of_hosts = 0, of_rails = 0;  // shares of these
  double gaps = 0;                                  // per second
  double every = 0;                                 // as given, or the best
  double useful = 0;                                // share of the time
  double young = 0;                                 // the first order of the best interval
};
Reliability expect_reliability(const ReliabilityInputs& inputs);

// The same by simulating parts one by one, until so many interruptions. Same seed, same answer.
struct SimulatedReliability {
  double useful = 0, useful_error = 0;  // standard error of the mean
  int64_t interruptions = 0, gaps = 0;
  double seconds = 0;  // simulated
};
SimulatedReliability simulate_reliability(const ReliabilityInputs& inputs, int64_t interruptions,
                                          uint64_t seed);

}  // namespace moraine
