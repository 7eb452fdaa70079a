// WriteModel: a model without training state, as a directory made whole or not at all.
//
// The weights come from a function, a piece at a time, so that a model may be larger than memory. The directory
// is a checkpoint (docs/formats/model.md); it is written to `<directory>.partial` and renamed. A killed write
// leaves that, and the next one begins anew.
//
// Errors: kInvalidArgument if the directory is there already, or `<directory>.partial` is no folder; kIo, also if its
//         disk has no room (before the first byte: says how much there is and how much it takes); those of the source.
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

// What both kinds of directory that hold a model alone are made of.
struct DirectoryContent {
  CheckpointInfo info;
  std::vector<CheckpointTensor> tensors;
  std::span<const CheckpointFile> files;
  CheckpointOptions options;
};
// Wraps the tensors' functions, so that `progress` hears of each piece. It lives as long as `content`.
void count_progress(DirectoryContent& content,
                    const std::function<void(int64_t done, int64_t total)>& progress);
// What write_directory looks at, for those that compute for minutes before it: whether what it writes to is a folder,
// or can be; whether the disk has room.
void check_partial(FileSystem& fs, const std::string& directory);
void check_room(FileSystem& fs, const std::string& directory, const DirectoryContent& content);
void write_directory(FileSystem& fs, const std::string& directory, const DirectoryContent& content);

// As shells complete it: "m/" is "m". Errors: kInvalidArgument for "".
std::string directory_to_make(std::string name);

}  // namespace moraine
