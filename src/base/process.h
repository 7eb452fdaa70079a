// Process: what a program needs of itself before it opens anything.
#pragma once

#include <string>

namespace moraine {

// Opens /dev/null on descriptors 0 to 2 that are closed, so that no file of ours becomes the log
// or the result; a write to a standard output that was closed still fails. Makes a write beyond a
// file size limit (SIGXFSZ) an error instead of a death, names the file where a mapped page is lost
// (base/mapped_ranges.h), and takes as many open files as the system allows. Call it first, from one thread.
void prepare_process();

// The path of this program, also if it was started by a name that is looked up. Errors: kIo.
std::string own_program();

}  // namespace moraine
