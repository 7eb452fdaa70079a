// CompleteConfig: what a config leaves to the data and to the model that a run starts from.
//
// Errors: kInvalidArgument: [model] is given and differs, or has fewer tokens than the data.
#pragma once

#include "base/file_system.h"
#include "train/run_config.h"

namespace moraine {

// Vocabulary from the data, shape from train.init.
RunConfig complete_config(FileSystem& fs, RunConfig config);

// The shape and tokenizer of a run that has begun in `out` are its own: the model it started from
// may be gone.
void adopt_own_model(FileSystem& fs, const std::string& out, RunConfig& config);

}  // namespace moraine
