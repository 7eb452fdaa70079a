// MemoryFolder: the place of one run's memory copies in a host's tmpfs.
//
//   <base>/moraine-<hash of the run folder's absolute path>/   mode 0700, this user's
//     run                                                      the run's identity
//     step-<n>/ ...                                            checkpoints (history.h)
//
// The identity is a random number in the run folder (memory_id), written with the first copy. A
// folder in memory that has another one belongs to a run that is gone: nothing in it is used, and
// it is emptied before the next copy.
//
// Errors: kIo, also for a folder of that name that others may enter or that is not this user's.
#pragma once

#include <cstdint>
#include <string>

#include "base/file_system.h"

namespace moraine {

std::string memory_folder_path(const std::string& base, const std::string& run_root);

// The identity in the run folder; "" if there is none.
std::string read_memory_id(FileSystem& fs, const std::string& run_root);
// The same; made, with the folder, if there is none.
std::string make_memory_id(FileSystem& fs, const std::string& run_root);

// Whether the folder is there. Throws kIo if it is anything else than a directory that this user
// alone may enter.
bool is_own_memory_folder(const std::string& folder);
// Makes the folder if it is not there, empties it if it is another run's.
void prepare_memory_folder(FileSystem& fs, const std::string& folder, const std::string& id);
// Whether the folder is there, safe and of that run.
bool is_memory_folder_of(FileSystem& fs, const std::string& folder, const std::string& id);

// What may still be written there: free room of the file system, at most the available memory.
int64_t free_memory_bytes(const std::string& base);

}  // namespace moraine
