// PublicLayout: names and files of public checkpoints, to and from the flat parameter buffer.
//
// Our parameter names are those of the native layout. The legacy layout has two alternating layers
// for each of our blocks and one matrix per expert (docs/model.md, layouts).
//
// Errors: kNotFound and kInvalidArgument with the tensor's name and both shapes; of writing those of ModelPlace.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors/set.h"
#include "model/parameters.h"
#include "model/public_config.h"

namespace moraine {

// The names under which a layout stores a parameter: one, or one per expert (slices of the first dimension).
std::vector<std::string> stored_names(const ModelConfig& config, const Parameter& parameter,
                                      Layout layout);

// Every weight is there, in its shape and a form that is read (model/stored_weight.h). A tensor that the model does not
// know, or a head that differs from the embedding, is an error too.
void check_public_weights(const SafetensorsSet& set, const ModelConfig& config, Layout layout);

// Elements [begin, begin + out.count()) of a parameter with all its experts, as f32.
struct PublicWeights {
  const SafetensorsSet& set;
  const ModelConfig& config;
  Layout layout;
};
void read_public_elements(const PublicWeights& weights, const Parameter& parameter, int64_t begin,
                          const Tensor& out);

struct ExportOptions {
  Layout layout = Layout::kNative;
  DType dtype = DType::kF32;  // or bf16; balancing biases stay f32
  int64_t shard_bytes = int64_t{4} << 30;
};
struct ModelToExport {
  const ModelConfig& config;
  const ParameterTable& table;
  Tensor master;  // the flat f32 buffer of `table`
  std::span<const CheckpointFile> language_files = {};
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes
};
// Makes a folder of config.json, weights (one file, or indexed shards above `shard_bytes`) and the tokenizer's files,
// whole or not at all (model/model_place.h).
void write_public_model(FileSystem& fs, const std::string& name, const ModelToExport& model,
                        const ExportOptions& options);

}  // namespace moraine
