// WritePacked: a packed model (model/packed_model.h) of any source of weights, pack by pack.
//
// Made whole or not at all, as WriteModel does it, with the same errors.
// Memory: one piece of a pack, as f32 rows and packed: 48 MiB, or 32 rows if these are more.
// Cost:   reads every weight once; packing is memory-bound, so the disk is what takes the time.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/file_system.h"
#include "checkpoint/checkpoint.h"
#include "kernels/context.h"
#include "model/packed_model.h"
#include "model/parameters.h"

namespace moraine {

struct PackedToWrite {
  const ModelConfig& config;
  WeightSource weights;  // of the flat buffer of build_parameters(config)
  const PackType& type;
  int64_t step = 0;  // of the checkpoint that the weights are from
  std::span<const CheckpointFile> language_files;
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes
};
void write_packed_model(Context& ctx, FileSystem& fs, const std::string& directory,
                        const PackedToWrite& model);

}  // namespace moraine
