// Process: what a program needs before it opens anything.
#pragma once

namespace moraine {

// Opens /dev/null on descriptors 0 to 2 that are closed, so that no file of ours becomes the log
// or the result; a write to a standard output that was closed still fails. Makes a write beyond a
// file size limit (SIGXFSZ) an error instead of a death, names the file where a mapped page is lost
// (base/mapped_ranges.h), and takes as many open files as the system allows. Call it first, from one thread.
void prepare_process();

}  // namespace moraine
