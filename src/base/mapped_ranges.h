// MappedRanges: which files lie where in memory, so that a page that can not be read any more has a
// name.
//
// A mapped file that is cut, or whose disk fails, answers a load with SIGBUS. Nothing can be
// computed from a page that is not there, so the process ends; with these, it says which file and
// which byte, and ends with the exit code of the cause: 12 if the file is shorter than it was,
// 13 otherwise.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace moraine {

// For the life of a mapping. More than are remembered (65,536) are mapped all the same.
void add_mapped_range(const void* data, int64_t bytes, const std::string& path);
void remove_mapped_range(const void* data);

// Installs the handler. A SIGBUS anywhere else ends the process as before.
void name_lost_mappings();

}  // namespace moraine
