// RunKept: what a process keeps of a run from one group of ranks to the next.
//
// When a rank is lost, communicators and what stands on them are built anew among the ranks of the next group; text
// and memory stay. Memory is kept for the same place in a mesh of the same size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/mesh.h"
#include "tensor/arena.h"
#include "tokenizer/tokenizer.h"
#include "train/plan_history.h"
#include "train/run_data.h"

namespace moraine {

// From one layout to another.
struct MeshMove {
  int64_t step = -1;         // after which; -1: none
  std::string from, reason;  // of the layout; why
  double begun = 0;          // as now_seconds()
  double seconds = 0;        // until the next step began; 0: not yet
  double tokens_per_s_before = 0;
};

struct RunKept {
  int64_t groups = 0;                    // that this process has been in
  int64_t steps = 0;                     // that it has taken in them
  int64_t undecided = 0;                 // times that ranks disagreed and nobody could be named
  int64_t distrusted_after = INT64_MAX;  // what is stored of later steps: diverged.h
  double started = 0;                    // as now_seconds(): of the first one
  int64_t phase = 0;                     // whose layout the next group opens with
  MeshMove move;                         // that is going on, or is not told of yet
  PlanHistory plans;                     // that the run went on with
  std::unique_ptr<RunData> data;         // opened and mapped
  std::unique_ptr<Tokenizer> tokenizer;
  std::string chat_template;
  Mesh mesh;            // that the memory was taken for
  ArenaReserve memory;  // of the arena
};

}  // namespace moraine
