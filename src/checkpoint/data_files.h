// DataFiles: one writer's tensors, cut into safetensors files of bounded size.
//
// Tensors are taken in aligned_order and packed first come, first served; one that is larger than a
// file is cut into parts of whole rows. Files are named data-<writer>-<index>.safetensors. The same
// tensors give the same files. With `page_bytes` u8 tensors come before all others, at multiples of it.
//
// Errors: kIo; kInvalidArgument for names that occur twice, are reserved or are not UTF-8.
// Cost:   one pass: each piece is hashed and written while it is in the cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_rows.h"

namespace moraine {

struct DataFilesWritten {
  std::vector<ManifestData> data;
  std::vector<std::vector<ManifestPart>> parts;  // for each input; file: position in `data`
  std::vector<Hash128> hashes;                   // for each input: of all its bytes
};

// The first file's numbers; the next ones count on from `index`.
struct FirstDataFile {
  int64_t writer = 0;
  int64_t index = 0;
};

// Writes and syncs the files in `folder`; the folder itself is left to the caller to sync.
DataFilesWritten write_data_files(FileSystem& fs, const std::string& folder, FirstDataFile first,
                                  std::span<const TensorRows> tensors,
                                  const CheckpointOptions& options);

}  // namespace moraine
