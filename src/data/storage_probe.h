// StorageProbe: random page reads a second of the device under one file.
//
// Reads with O_DIRECT where the file system allows it; otherwise asks the kernel to drop the file
// from its page cache first, reads ahead off, and says whether the cache answered all the same (a
// memory file system, or pages that others keep): such a number is that of memory, not of the
// device.
//
// Opens its file past base/file_system.h: O_DIRECT has no meaning behind a door that tests replace.
//
// Errors: kNotFound, kIo; kInvalidArgument: file smaller than one page, options out of range.
// Cost:   `seconds` of wall time; `threads` reads in flight. Changes nothing on disk.
#pragma once

#include <cstdint>
#include <string>

#include "base/file_system.h"

namespace moraine {

struct StorageProbeOptions {
  int threads = 8;            // reads in flight, 1 to 256
  double seconds = 2;         // 0.001 to 600
  int64_t page_bytes = 4096;  // multiple of 512, at most 16 MiB
  uint64_t seed = 1;          // of the places read
};

struct StorageProbe {
  double iops = 0;                                   // page reads a second, all threads together
  double latency_us_median = 0, latency_us_p99 = 0;  // of one read
  int64_t reads = 0;
  int64_t page_bytes = 0;
  bool direct = false;               // O_DIRECT was accepted
  double cached_share = 0;           // of the file, in the page cache before the reads; 0 if direct
  bool page_cache_answered = false;  // not direct, and more than a tenth was cached
};

StorageProbe measure_storage_iops(FileSystem& files, const std::string& path,
                                  const StorageProbeOptions& options);
std::string storage_probe_text(const StorageProbe& probe);  // for people

}  // namespace moraine
