// ShardWriter: collects bytes in a block, which is hashed and written when it is full.
#include "data/shard_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace moraine {

ShardWriter::ShardWriter(FileSystem& files, std::string path, const TokenMeaning& meaning,
                         bool marked)
    : files_(files),
      path_(std::move(path)),
      meaning_(meaning),
      marked_(marked),
      documents_(1, ShardDocument{0, 0}) {
  MR_CHECK(meaning.vocabulary_size > 0);
  MR_CHECK(meaning.vocabulary_size <= std::numeric_limits<int32_t>::max());
  MR_CHECK(meaning.eos_id >= -1 && meaning.eos_id < meaning.vocabulary_size);
  file_ = files_.create(path_ + ".partial");
  block_.reserve(kShardBlockBytes);
  ShardHeader header{};
  std::memcpy(header.magic, kShardMagic, sizeof kShardMagic);
  header.version = marked_ ? kShardVersionMarked : kShardVersion;
  header.token_bytes = static_cast<uint32_t>(meaning.token_bytes());
  header.vocabulary_size = static_cast<uint64_t>(meaning.vocabulary_size);
  header.eos_id = meaning.eos_id;
  header.block_bytes = kShardBlockBytes;
  header.tokenizer_hash = ShardHash::of(meaning.tokenizer_hash);
  header.header_hash = ShardHash::of(hash_bytes(&header, offsetof(ShardHeader, header_hash)));
  emit(&header, sizeof header);
}

void ShardWriter::add_document(std::span<const int32_t> tokens, int64_t source_bytes,
                               std::span<const uint8_t> is_target) {
  MR_CHECK(file_ != nullptr && source_bytes >= 0);
  MR_CHECK(is_target.size() == (marked_ ? tokens.size() : 0));
  for (const int32_t token : tokens) MR_CHECK(token >= 0 && token < meaning_.vocabulary_size);
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (meaning_.token_bytes() == 2) {
    narrow_.assign(tokens.begin(), tokens.end());
    emit(narrow_.data(), count * 2);
  } else {
    emit(tokens.data(), count * 4);
  }
  add_marks(is_target);
  const ShardDocument& last = documents_.back();
  documents_.push_back({last.token_begin + static_cast<uint64_t>(count),
                        last.source_begin + static_cast<uint64_t>(source_bytes)});
}

void ShardWriter::add_marks(std::span<const uint8_t> is_target) {
  uint64_t at = documents_.back().token_begin;
  for (const uint8_t mark : is_target) {
    if (at % 64 == 0) marks_.push_back(0);
    if (mark != 0) {
      marks_.back() |= uint64_t{1} << (at % 64);
      ++targets_;
    }
    ++at;
  }
}

ShardCounts ShardWriter::counts() const {
  return {.documents = static_cast<int64_t>(documents_.size()) - 1,
          .tokens = static_cast<int64_t>(documents_.back().token_begin),
          .token_bytes = meaning_.token_bytes(),
          .marked = marked_};
}

int64_t ShardWriter::file_bytes() const { return ShardLayout(counts()).file_bytes; }

ShardSummary ShardWriter::finish() {
  MR_CHECK(file_ != nullptr);
  const int64_t D = static_cast<int64_t>(documents_.size()) - 1;
  const ShardDocument totals = documents_.back();
  const int64_t tokens = static_cast<int64_t>(totals.token_begin);
  const ShardLayout layout(counts());
  constexpr uint8_t kZeros[8] = {};
  emit(kZeros, layout.marks_begin - int64_t{sizeof(ShardHeader)} - tokens * meaning_.token_bytes());
  emit(marks_.data(), static_cast<int64_t>(marks_.size()) * 8);
  emit(documents_.data(), (D + 1) * int64_t{sizeof(ShardDocument)});
  flush_block();
  MR_CHECK(static_cast<int64_t>(blocks_.size()) == layout.num_blocks);

  ShardTrailer trailer{};
  std::memcpy(trailer.magic, kShardEndMagic, sizeof kShardEndMagic);
  trailer.num_documents = static_cast<uint64_t>(D);
  trailer.num_tokens = totals.token_begin;
  trailer.source_bytes = totals.source_begin;
  trailer.file_bytes = static_cast<uint64_t>(layout.file_bytes);
  trailer.num_targets = static_cast<uint64_t>(targets_);
  Hasher hasher;
  hasher.add(blocks_.data(), layout.num_blocks * int64_t{sizeof(ShardHash)});
  hasher.add(&trailer, offsetof(ShardTrailer, table_hash));
  const Hash128 hash = hasher.digest();
  trailer.table_hash = ShardHash::of(hash);
  file_->append(blocks_.data(), layout.num_blocks * int64_t{sizeof(ShardHash)});
  file_->append(&trailer, sizeof trailer);
  file_->sync();
  file_->close();
  file_.reset();
  files_.rename(path_ + ".partial", path_);
  files_.sync_directory(parent_path(path_));
  return {.documents = D,
          .tokens = tokens,
          .source_bytes = static_cast<int64_t>(totals.source_begin),
          .file_bytes = layout.file_bytes,
          .targets = marked_ ? targets_ : tokens,
          .marked = marked_,
          .hash = hash};
}

void ShardWriter::emit(const void* data, int64_t bytes) {
  const uint8_t* at = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const int64_t room = kShardBlockBytes - static_cast<int64_t>(block_.size());
    const int64_t n = std::min(bytes, room);
    block_.insert(block_.end(), at, at + n);
    at += n;
    bytes -= n;
    if (n == room) flush_block();
  }
}

void ShardWriter::flush_block() {
  if (block_.empty()) return;
  const int64_t bytes = static_cast<int64_t>(block_.size());
  blocks_.push_back(ShardHash::of(hash_bytes(block_.data(), bytes)));
  file_->append(block_.data(), bytes);
  block_.clear();
}

}  // namespace moraine
