// NamedFile: a file that a flag names, read.
//
// `what`: the flag, for the message: "train --config".
// Errors: kNotFound: there is none; kInvalidArgument: a folder; kIo: as the disk says.
#pragma once

#include <string>

#include "base/file_system.h"

namespace moraine {

std::string read_named_file(FileSystem& fs, const std::string& what, const std::string& path);

}  // namespace moraine
