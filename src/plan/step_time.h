// StepTime: how long a step takes, and what of it is communication that nothing hides: a pure function.
//
//   operation   calls * call + factor * base * cores measured / cores of the rank
//               base: flops / the table's rate of that product (machine.h), else the larger of flops / peak and
//               bytes / bandwidth; call and factor are measured for each operation (`bench step`), else nominal
//   in a host   ranks copy with the cores that compute: nothing is hidden, and where ranks outnumber cores each copy
//               takes its part of them. A bucket of n bytes over g ranks: latency + n (g-1)/g / rate
//   over hosts  latency of the messages + bytes within the host / their rate + bytes that leave it / the rank's share
//               of the rails. A bucket leaves when its layers are done, one after another, while backward goes on; what
//               ends after backward is exposed
//   the rest    weights that come back, rows to experts and back, keys of a shared sequence, and small sums are
//               waited for
//
// Experts' imbalance is in the work (operations.h). Not in it: noise, neighbours, a disk that is too slow.
// Units:  seconds. Cost: microseconds.
#pragma once

#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "plan/operations.h"
#include "plan/place.h"

namespace moraine {

// Gradients that leave together (train/buckets.h), in the order in which they do.
struct GradientBucket {
  double layers_left =
      0;  // share of backward that is still to come when it leaves; 0: after backward
  int64_t shared_elements = 0, expert_elements = 0;
};

struct StepWork {
  RankWork rank;
  std::vector<GradientBucket> buckets;  // empty: one rank
  int64_t reduce_bytes = 4;             // of an element that is sent to be summed
  int64_t norm_blocks = 0, counts = 0;  // numbers of the small sums over all ranks
};

struct TimePart {
  std::string name;
  double seconds = 0;
  bool is_communication = false;
};

struct StepTime {
  double seconds = 0;
  double compute = 0;
  double communication = 0;     // if nothing were hidden
  double exposed = 0;           // seconds - compute
  double bytes_far = 0;         // that a rank receives from other hosts
  double bytes_near = 0;        // from ranks of its own
  std::vector<TimePart> parts;  // most first; communication as exposed
};
StepTime step_time(const StepWork& work, const Mesh& mesh, const Place& place,
                   const Machine& machine);

// The machine's time for an operation at its rates, all threads together: what `factor` is a factor of.
double base_seconds(const StepOperation& operation, const Machine& machine, bool bf16);

// What no operation is in: between them, and loading data; in a fit by these names.
inline constexpr const char* kBetween = "(between operations)";
inline constexpr const char* kLoading = "(loading data)";

// The operations of a step and these two: everything that has a fit.
std::vector<StepOperation> timed_operations(const RankWork& work);

}  // namespace moraine
