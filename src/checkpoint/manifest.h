// Manifest: what a checkpoint directory must contain, down to the last byte.
//
// The text form is JSON that ends with a hash of everything before it, so no flipped byte of it
// goes unseen (docs/formats/checkpoint.md). The same manifest always gives the same text.
//
// Errors: parsing throws kCorrupt for damage and for claims that contradict each other,
//         kInvalidArgument for a version that we do not know. Names that leave the directory, parts
//         that do not tile their tensor and shapes that overflow are refused here, so the reader
//         need not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "checkpoint/checkpoint_info.h"
#include "tensor/dtype.h"

namespace moraine {

constexpr int64_t kManifestVersion = 1;
constexpr const char* kManifestFormat = "moraine-checkpoint";
constexpr const char* kManifestName = "manifest.json";
constexpr const char* kDataPrefix = "data-";  // of data files' names; others are carried along
constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;  // a million tensors

// Rows [row_begin, row_end) of a tensor, under the tensor's name in data file `file`.
struct ManifestPart {
  int64_t file = 0;  // position in Manifest::data
  int64_t row_begin = 0;
  int64_t row_end = 0;
  Hash128 hash;  // of the part's bytes
};

struct ManifestTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;       // global; a scalar has one row
  std::vector<ManifestPart> parts;  // in row order, tiling all rows

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t count() const;
  int64_t row_bytes() const;
  std::vector<int64_t> part_shape(const ManifestPart& part) const;
};

// A data file: a safetensors file.
struct ManifestData {
  std::string name;
  int64_t bytes = 0;
  Hash128 header;  // of its length field and header; the parts' hashes cover the rest
};

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  Hash128 hash;
};

struct Manifest {
  CheckpointInfo info;
  std::vector<ManifestFile> files;
  std::vector<ManifestData> data;
  std::vector<ManifestTensor> tensors;  // in name order
};

std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(std::string_view text);

// The name of a type in a manifest and in hashes ("f32"); false if it is none of ours.
bool parse_dtype(std::string_view name, DType* dtype);

}  // namespace moraine
