// CompleteConfig: what a config leaves to the data and to the model that a run starts from.
//
// Errors: kInvalidArgument: [model] is given and differs, or has fewer tokens than the data, or fewer positions than a
//         sequence.
#pragma once

#include "base/file_system.h"
#include "train/run_config.h"

namespace moraine {

// Vocabulary from the data, shape from train.init, unless that is a run's own already (adopt_own_model).
RunConfig complete_config(FileSystem& fs, RunConfig config, bool has_own_model = false);

// A document may be as long as a sequence, and whatever opens the model refuses more than model.max_positions: what was
// learnt beyond that could never be used.
void check_positions(const RunConfig& config);

// The shape and tokenizer of a run that has begun in `out` are its own: the model it started from
// may be gone. False where there is none, or it cannot be read.
bool adopt_own_model(FileSystem& fs, const std::string& out, RunConfig& config);

}  // namespace moraine
