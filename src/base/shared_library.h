// SharedLibrary: opens a library for the rest of the process, unless its file is cut.
//
// The system's loader maps a library without a look at how long its file is, and a page that is not there ends the
// process by SIGBUS. So the ends of the segments, as the file's own head has them, are held against its length first.
//
// Not seen: a file that is found by the loader's cache (ldconfig) alone; a library that this one needs.
#pragma once

#include <string>

namespace moraine {

struct OpenedLibrary {
  void* handle = nullptr;  // for dlsym; null: not opened
  std::string
      why;  // what the loader said, without the name that was asked for, or how the file is cut
};

// file: a path, or a name without a slash, which is looked for where the loader looks.
// global: libraries that are opened later find its symbols.
OpenedLibrary open_library(const std::string& file, bool global = false);

}  // namespace moraine
