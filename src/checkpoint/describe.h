// Describe: what is in a checkpoint, a weight file or a run folder, for `moraine inspect`.
//
// `path` may be a checkpoint directory, a safetensors file, a public model folder, or a run folder
// (root of step-<n> directories), which gives a list of its checkpoints.
//
// Errors: kNotFound if it is none of these; kCorrupt if the manifest, or the header of a weight
//         file, cannot be read. Damage of a checkpoint's files, and files that are missing, are
//         not thrown but listed in `problems`: an operator wants to see all of it. Of a run that
//         goes on, a checkpoint that it removes meanwhile is left out; kNotFound if it was named.
// Cost:   with `verify` or a hash every byte is read; else only headers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace moraine {

struct TensorRow {
  std::string name;
  std::string type;  // "f32", "bf16"; in weight files as there: "BF16"
  std::vector<int64_t> shape;
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t num_parts = 1;
  std::string note = {};  // the checkpoint's value of the tensor's name: what a pack is
};

struct TotalRow {
  std::string prefix;  // "weights.*", "all"
  int64_t num_tensors = 0;
  int64_t count = 0;
  int64_t bytes = 0;
};

struct FileRow {  // of a checkpoint
  std::string name;
  int64_t bytes = 0;      // by the manifest
  int64_t num_parts = 0;  // of tensors; 0 for files carried along
  std::string state;      // "ok", "present" (not verified), "DAMAGED"
};

struct CheckpointRow {  // of a run folder
  int64_t step = 0;
  int64_t bytes = 0;
  std::string state;  // "ok", "not verified" or what is wrong
  bool damaged = false;
};

struct Description {
  std::string kind;  // "checkpoint", "safetensors", "run"
  std::string path;
  std::vector<TensorRow> tensors;  // in name order
  std::vector<TotalRow> totals;    // by prefix, then "all"
  int64_t num_files = 0;
  // Checkpoints only.
  int64_t num_writers = 0;  // ranks that wrote data files
  std::vector<FileRow> file_rows;
  int64_t step = 0;
  int64_t tokens_seen = 0;
  uint64_t seed = 0;
  std::vector<std::string> files;   // carried along
  std::vector<std::string> values;  // "key = value"
  std::string config;
  bool verified = false;
  std::vector<std::string> problems;
  std::string hash;  // empty if not asked for, or if there are problems
  // Run folders only.
  std::vector<CheckpointRow> checkpoints;
  int64_t last_good = -1;  // step; -1: no mark
};

struct DescribeOptions {
  bool verify = true;
  bool hash = true;  // implies verify
};

Description describe(FileSystem& fs, const std::string& path, const DescribeOptions& options = {});

// The single number of `inspect DIR --hash`: of a checkpoint, or of the tensors of a weight file or
// model folder (then over the same lines, without a step).
std::string content_hash_hex(FileSystem& fs, const std::string& path);

std::string description_text(const Description& description);  // tables for people
std::string description_json(const Description& description);  // one object

// Totals by the first part of the names in which they differ ("weights.*", "adam.m.*"), then "all".
std::vector<TotalRow> totals_by_prefix(const std::vector<TensorRow>& tensors);

}  // namespace moraine
