// ZstdReader: the one file that calls libzstd.
#include "data/zstd_reader.h"

#include <zstd.h>

#include "base/check.h"
#include "base/error.h"

namespace moraine {

struct ZstdReader::State {
  ZSTD_DStream* stream = nullptr;
};

ZstdReader::ZstdReader(std::span<const uint8_t> file, std::string path)
    : file_(file), path_(std::move(path)), state_(std::make_unique<State>()) {
  state_->stream = ZSTD_createDStream();
  MR_CHECK(state_->stream != nullptr);
  MR_CHECK(!ZSTD_isError(ZSTD_initDStream(state_->stream)));
}

ZstdReader::~ZstdReader() { ZSTD_freeDStream(state_->stream); }

int64_t ZstdReader::read(uint8_t* out, int64_t capacity) {
  MR_CHECK(capacity > 0);
  const int64_t size = static_cast<int64_t>(file_.size());
  ZSTD_outBuffer output = {out, static_cast<size_t>(capacity), 0};
  while (output.pos < output.size) {
    if (offset_ == size && !inside_) break;
    ZSTD_inBuffer input = {file_.data(), file_.size(), static_cast<size_t>(offset_)};
    const size_t before = output.pos;
    const size_t result = ZSTD_decompressStream(state_->stream, &output, &input);
    const bool stuck = output.pos == before && static_cast<int64_t>(input.pos) == offset_;
    offset_ = static_cast<int64_t>(input.pos);
    if (ZSTD_isError(result)) {
      throw_error(Code::kCorrupt, "read {}: bad zstd data at byte {} ({}); copy the file again",
                  path_, offset_, ZSTD_getErrorName(result));
    }
    inside_ = result != 0;  // 0: a frame is complete and flushed
    if (inside_ && (stuck || (offset_ == size && output.pos == before))) {
      throw_error(Code::kCorrupt,
                  "read {}: the zstd data is cut off at byte {}; copy the file again", path_,
                  offset_);
    }
  }
  return static_cast<int64_t>(output.pos);
}

}  // namespace moraine
