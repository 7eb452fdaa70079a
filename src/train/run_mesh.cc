// RunMesh: a phase says how ranks are divided.
#include "train/run_mesh.h"

#include "base/error.h"

namespace moraine {

Mesh run_mesh(const RunConfig& c, int ranks, int rank, int64_t phase) {
  try {
    return make_mesh(ranks, rank, phase_expert(c, phase), phase_context(c, phase), c.train.slots,
                     c.model.experts);
  } catch (const Error& e) {
    if (c.phases.size() == 1) throw;
    throw_error(e.code(), "phase {}: {}", phase + 1, e.what());
  }
}

int most_ranks(const RunConfig& config, int present) {
  for (int ranks = present; ranks > 0; --ranks) {
    try {
      for (size_t phase = 0; phase < config.phases.size(); ++phase)
        run_mesh(config, ranks, 0, static_cast<int64_t>(phase));
      return ranks;
    } catch (const Error&) {
      continue;  // slots, experts or positions do not divide by that many
    }
  }
  return 0;
}

}  // namespace moraine
