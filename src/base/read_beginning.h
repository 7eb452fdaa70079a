// ReadBeginning: the first bytes of what a person names as a file, which may be a pipe, or a device without an end.
// FileSystem::read (file_system.h) takes all that there is.
//
// Errors: kNotFound: no such file; kIo.
#pragma once

#include <cstdint>
#include <string>

namespace moraine {

// Fewer than `bytes` if it ends before.
std::string read_beginning(const std::string& path, int64_t bytes);

}  // namespace moraine
