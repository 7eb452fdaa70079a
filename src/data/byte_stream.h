// ByteStream: an input file as a stream of bytes, decompressed by its suffix (.gz, .zst).
//
// The file is mapped, and pages already read are given back, so memory does not grow with the file.
// Errors: kNotFound, kIo; kCorrupt for cut or damaged compression, with path and compressed offset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "data/gzip_reader.h"
#include "data/zstd_reader.h"

namespace moraine {

class ByteStream {
 public:
  ByteStream(FileSystem& files, const std::string& path);

  // Fills up to `capacity` > 0 bytes; 0 only at the end.
  int64_t read(uint8_t* out, int64_t capacity);
  int64_t file_offset() const;  // bytes of the file consumed, for progress
  int64_t file_bytes() const { return file_->bytes(); }
  bool is_plain() const { return gzip_ == nullptr && zstd_ == nullptr; }

 private:
  std::unique_ptr<MappedFile> file_;
  std::unique_ptr<GzipReader> gzip_;  // at most one of these two
  std::unique_ptr<ZstdReader> zstd_;
  int64_t plain_offset_ = 0;
  int64_t released_ = 0;  // bytes of the mapping given back
};

}  // namespace moraine
