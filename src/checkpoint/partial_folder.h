// PartialFolder: the steps of writing a checkpoint that only rank 0 takes.
//
// Everything goes to a folder that does not count yet; commit_checkpoint (history.h) makes it
// count.
//
// Errors: kIo; kInvalidArgument for a request that no checkpoint can hold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace moraine {

// Numbers that are not negative, names of carried files that are plain, free and given once.
void check_checkpoint_request(const CheckpointInfo& info, std::span<const CheckpointFile> files);

// Writes and syncs the files carried along.
std::vector<ManifestFile> write_carried_files(FileSystem& fs, const std::string& folder,
                                              std::span<const CheckpointFile> files);

// Writes and syncs the manifest, then the folder. Returns the bytes of all files of the checkpoint.
int64_t write_manifest(FileSystem& fs, const std::string& folder, const Manifest& manifest);

// After an error: gives the disk back. If even that fails, the next save does it.
void drop_partial(FileSystem& fs, const std::string& folder);

}  // namespace moraine
