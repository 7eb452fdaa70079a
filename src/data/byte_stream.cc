// ByteStream: chooses plain, gzip or zstd by suffix.
#include "data/byte_stream.h"

#include <algorithm>
#include <cstring>

namespace moraine {
namespace {

constexpr int64_t kReleaseBytes = int64_t{16} << 20;  // large enough that madvise costs nothing

}  // namespace

ByteStream::ByteStream(FileSystem& files, const std::string& path) : file_(files.map(path)) {
  const std::span<const uint8_t> bytes(file_->data(), static_cast<size_t>(file_->bytes()));
  if (path.ends_with(".gz")) gzip_ = std::make_unique<GzipReader>(bytes, path);
  if (path.ends_with(".zst")) zstd_ = std::make_unique<ZstdReader>(bytes, path);
}

int64_t ByteStream::read(uint8_t* out, int64_t capacity) {
  int64_t filled;
  if (gzip_) {
    filled = gzip_->read(out, capacity);
  } else if (zstd_) {
    filled = zstd_->read(out, capacity);
  } else {
    filled = std::min(capacity, file_->bytes() - plain_offset_);
    if (filled > 0) std::memcpy(out, file_->data() + plain_offset_, static_cast<size_t>(filled));
    plain_offset_ += filled;
  }
  if (file_offset() - released_ >= kReleaseBytes) {
    file_->will_not_need(released_, file_offset() - released_);
    released_ = file_offset();
  }
  return filled;
}

int64_t ByteStream::file_offset() const {
  if (gzip_) return gzip_->file_offset();
  if (zstd_) return zstd_->file_offset();
  return plain_offset_;
}

}  // namespace moraine
