// WriteModel: a model without training state, as a directory made whole or not at all (model/model_place.h).
//
// The weights come from a function, a piece at a time, so that a model may be larger than memory. The directory
// is a checkpoint (docs/formats/model.md).
//
// Errors: those of ModelPlace, and of the source.
// Memory: a few MiB beside what the source takes.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/checkpoint.h"
#include "model/parameters.h"

namespace moraine {

struct ModelToWrite {
  const ModelConfig& config;
  WeightSource weights;  // of the flat buffer of build_parameters(config)
  DType dtype;           // f32 or bf16, as stored; balancing biases stay f32
  std::span<const CheckpointFile> language_files;
  uint64_t seed = 0;                                               // of random weights
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes
};
void write_model_directory(FileSystem& fs, const std::string& directory, const ModelToWrite& model);

// Weights in the flat f32 buffer, which outlives the function.
WeightSource weights_in(const Tensor& master);

}  // namespace moraine
