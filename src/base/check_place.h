// CheckPlace: that something can be written to a place, found out before the work whose result goes there.
//
// Tried, not asked: a file is made there and taken away again, so that permissions, disks that are read-only and
// folders that are none all count. One that was there before is neither changed nor removed. The place may still be
// lost while the work goes on.
//
// `what`: who wants the place, for the message: "bench growth --chart".
// Errors: kInvalidArgument: the place is of another kind, or its folder is missing; kNotFound, kIo: as the disk says.
#pragma once

#include <string>

#include "base/file_system.h"

namespace moraine {

// For FileSystem::write_atomic to `path`: a name that is free or a file's, in a folder that is there.
void check_file_place(FileSystem& fs, const std::string& what, const std::string& path);

// For files in `folder`, which is there, or can be made with its parents. Makes none.
void check_folder_place(FileSystem& fs, const std::string& what, const std::string& folder);

}  // namespace moraine
