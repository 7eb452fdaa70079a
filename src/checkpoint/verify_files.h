// VerifyFiles: which files of a checkpoint are whole, each looked at alone.
//
// Checkpoint::open stops at the first file that is not; this goes on, for an operator who wants to
// see all damage, and for copies of which a host holds only some files (memory/copy.h).
//
// Errors: none: what is wrong with a file is its `problem`, which begins with its name.
// Cost:   with `verify_bytes` every byte is read; else sizes and headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/manifest.h"

namespace moraine {

struct FileState {
  std::string name;
  int64_t bytes = 0;      // by the manifest
  int64_t num_parts = 0;  // of tensors; 0 for files carried along
  std::string problem;    // empty: whole
};

// Data files in the manifest's order, then the files carried along.
std::vector<FileState> verify_files(FileSystem& fs, const std::string& directory,
                                    const Manifest& manifest, bool verify_bytes);

}  // namespace moraine
