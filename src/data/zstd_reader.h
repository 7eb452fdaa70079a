// ZstdReader: the bytes inside a zstd file, a buffer at a time.
//
// Frames may follow each other; skippable frames are skipped.
// Errors: kCorrupt with the path and the compressed offset: cut file, bad data or checksum, a
//         window above 128 MiB (made by `zstd --long=28` and more).
// Cost:   about 1 GB/s of output; memory is bounded by the window.
// Source: libzstd; RFC 8878.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace moraine {

class ZstdReader {
 public:
  ZstdReader(std::span<const uint8_t> file, std::string path);  // `file` must outlive the reader
  ~ZstdReader();
  ZstdReader(const ZstdReader&) = delete;
  ZstdReader& operator=(const ZstdReader&) = delete;

  // Fills up to `capacity` > 0 bytes; 0 only at the end.
  int64_t read(uint8_t* out, int64_t capacity);
  int64_t file_offset() const { return offset_; }  // compressed bytes consumed

 private:
  struct State;
  std::span<const uint8_t> file_;
  std::string path_;
  int64_t offset_ = 0;
  bool inside_ = false;  // a frame has begun and has not ended
  std::unique_ptr<State> state_;
};

}  // namespace moraine
