// FileBytes: hashing a part of a file that may be larger than memory, or on a disk that fails.
#pragma once

#include <cstdint>

namespace moraine {

class Hasher;
class MappedFile;

// Adds bytes [offset, offset + bytes) of the file to `hasher`, keeping the disk busy ahead of it.
// Errors: those of MappedFile::read_at.
void add_file_bytes(const MappedFile& file, int64_t offset, int64_t bytes, Hasher* hasher);

}  // namespace moraine
