// RunMesh: which ranks a run of a config can have.
//
// Errors: run_mesh: kInvalidArgument, with the phase where there are several: slots, experts or sequences do not divide
//         by so many ranks.
#pragma once

#include "parallel/mesh.h"
#include "train/run_config.h"

namespace moraine {

// The mesh of a phase.
Mesh run_mesh(const RunConfig& config, int ranks, int rank, int64_t phase = 0);

// The largest number of at most `present` ranks that every phase can have; 0: none.
int most_ranks(const RunConfig& config, int present);

}  // namespace moraine
