// GzipReader: the one file that calls zlib.
#include "data/gzip_reader.h"

#include <zlib.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace moraine {
namespace {

constexpr int kGzipOnly = 15 + 16;                   // largest window; gzip header required
constexpr int64_t kFeedBytesMax = int64_t{1} << 30;  // zlib counts in 32 bits

}  // namespace

struct GzipReader::State {
  z_stream stream{};
};

GzipReader::GzipReader(std::span<const uint8_t> file, std::string path)
    : file_(file), path_(std::move(path)), state_(std::make_unique<State>()) {
  MR_CHECK(inflateInit2(&state_->stream, kGzipOnly) == Z_OK);
}

GzipReader::~GzipReader() { inflateEnd(&state_->stream); }

int64_t GzipReader::read(uint8_t* out, int64_t capacity) {
  MR_CHECK(capacity > 0);
  z_stream& z = state_->stream;
  const int64_t size = static_cast<int64_t>(file_.size());
  int64_t filled = 0;
  while (filled < capacity) {
    if (offset_ == size && !inside_) return filled;
    const int64_t feed = std::min(size - offset_, kFeedBytesMax);
    const int64_t room = std::min(capacity - filled, kFeedBytesMax);
    z.next_in = const_cast<uint8_t*>(file_.data() + offset_);
    z.avail_in = static_cast<uInt>(feed);
    z.next_out = out + filled;
    z.avail_out = static_cast<uInt>(room);
    inside_ = true;
    const int result = inflate(&z, Z_NO_FLUSH);
    const int64_t produced = room - z.avail_out;
    offset_ += feed - z.avail_in;
    filled += produced;
    if (result == Z_STREAM_END) {
      MR_CHECK(inflateReset(&z) == Z_OK);
      inside_ = false;
    } else if (result == Z_BUF_ERROR || (result == Z_OK && produced == 0 && offset_ == size)) {
      throw_error(Code::kCorrupt,
                  "read {}: the gzip data is cut off at byte {}; copy the file again", path_,
                  offset_);
    } else if (result != Z_OK) {
      throw_error(Code::kCorrupt, "read {}: bad gzip data at byte {} ({}); copy the file again",
                  path_, offset_, z.msg != nullptr ? z.msg : "no gzip member");
    }
  }
  return filled;
}

}  // namespace moraine
