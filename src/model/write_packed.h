// WritePacked: a packed model (model/packed_model.h) of any source of weights, pack by pack.
//
// Made whole or not at all.
//
// Errors: those of ModelPlace; kCorrupt for a weight that would be quantised and is not finite.
// Memory: one piece of a pack, as f32 rows and packed: 48 MiB, or 32 rows if these are more; 32 MiB more where errors
//         are fed back.
// Cost:   reads every weight once; packing is memory-bound, so the disk is what takes the time. Where errors are fed
//         back k / 2 multiply-adds for each weight, which take longer.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>

#include "base/file_system.h"
#include "checkpoint/checkpoint.h"
#include "kernels/context.h"
#include "model/model_place.h"
#include "model/packed_model.h"
#include "model/parameters.h"

namespace moraine {

struct PackedToWrite {
  const ModelConfig& config;
  WeightSource weights;  // of the flat buffer of build_parameters(config)
  const PackType& type;
  // Of the matrices that may be quantised, where they differ from what the type says; null: they do not.
  std::array<const PackType*, kServedMatrices> matrix = {};
  int64_t step = 0;  // of the checkpoint that the weights are from
  std::span<const CheckpointFile> language_files;
  // Of few_bit_sources(), each in turn, for every piece of a group: what errors of its weights are fed back with
  // (kernels/error_feedback.h), valid until the next call; empty: each weight is rounded alone.
  std::function<Tensor(const PackSource&, int64_t group)> feedback = {};
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes
};
// What packs of 6 and 4 bits are made of, in the order in which they are written.
std::vector<PackSource> few_bit_sources(const PackedToWrite& model);
// kIo if the disk has no room for it.
void check_packed_room(FileSystem& fs, const std::string& directory, const PackedToWrite& model);
// To a place whose room was checked.
void write_packed_model(Context& ctx, ModelPlace& place, const PackedToWrite& model);
// The same, to a place of its own.
void write_packed_model(Context& ctx, FileSystem& fs, const std::string& directory,
                        const PackedToWrite& model);

}  // namespace moraine
