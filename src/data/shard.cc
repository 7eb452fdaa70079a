// TokenShard: everything is checked in open(), so that nothing after it meets unchecked bytes.
#include "data/shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace moraine {
namespace {

[[noreturn]] void corrupt(const std::string& path, int64_t offset, const std::string& what) {
  throw_error(Code::kCorrupt, "read shard {}: at byte {}: {}; build the dataset again", path,
              offset, what);
}

// Index of the first id >= limit among `count` ids of type T; -1 if all are below.
template <class T>
int64_t find_at_least(const uint8_t* data, int64_t count, int64_t limit) {
  const T* ids = reinterpret_cast<const T*>(data);
  T largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, ids[i]);
  if (int64_t{largest} < limit) return -1;
  return std::find_if(ids, ids + count, [&](T id) { return int64_t{id} >= limit; }) - ids;
}

}  // namespace

TokenShard::TokenShard(FileSystem& files, std::string path)
    : path_(std::move(path)), file_(files.map(path_)) {
  open();
  std::vector<uint8_t> bytes(kShardBlockBytes);
  for (int64_t block = documents_begin_ / kShardBlockBytes;
       block * kShardBlockBytes < blocks_begin_; ++block) {
    read_block(block, bytes.data());
  }
  check_document_table();
}

void TokenShard::open() {
  const int64_t size = file_->bytes();
  if (size < int64_t{sizeof(ShardHeader) + sizeof(ShardTrailer)}) {
    corrupt(path_, size, fmt::format("the file ends after {} bytes, too short for a shard", size));
  }
  ShardHeader header;
  std::memcpy(&header, file_->data(), sizeof header);
  if (std::memcmp(header.magic, kShardMagic, sizeof kShardMagic) != 0)
    corrupt(path_, 0, "not a shard");
  const bool marked = read_header(header);
  const int64_t trailer_begin = size - int64_t{sizeof(ShardTrailer)};
  ShardTrailer trailer;
  std::memcpy(&trailer, file_->data() + trailer_begin, sizeof trailer);
  if (std::memcmp(trailer.magic, kShardEndMagic, sizeof kShardEndMagic) != 0) {
    corrupt(path_, trailer_begin, "no trailer; the file is cut off or longer than it was");
  }
  // Each token and document takes a byte at least.
  const uint64_t limit = static_cast<uint64_t>(size);
  if (trailer.num_documents > limit || trailer.num_tokens > limit || trailer.file_bytes != limit ||
      trailer.source_bytes > uint64_t{1} << 62 ||
      trailer.num_targets > (marked ? trailer.num_tokens : 0)) {
    corrupt(path_, trailer_begin, "the trailer's counts do not fit the file's size");
  }
  const int64_t D = static_cast<int64_t>(trailer.num_documents);
  const int64_t tokens = static_cast<int64_t>(trailer.num_tokens);
  const ShardLayout layout(
      {.documents = D, .tokens = tokens, .token_bytes = token_bytes_, .marked = marked});
  if (layout.file_bytes != size) {
    corrupt(path_, trailer_begin,
            fmt::format("{} documents of {} tokens make {} bytes, the file has {}", D, tokens,
                        layout.file_bytes, size));
  }
  Hasher hasher;
  hasher.add(file_->data() + layout.blocks_begin, trailer_begin - layout.blocks_begin);
  hasher.add(&trailer, offsetof(ShardTrailer, table_hash));
  const Hash128 hash = hasher.digest();
  if (trailer.table_hash != ShardHash::of(hash)) {
    corrupt(path_, layout.blocks_begin, "the checksum of block table and trailer differs");
  }
  summary_ = {.documents = D,
              .tokens = tokens,
              .source_bytes = static_cast<int64_t>(trailer.source_bytes),
              .file_bytes = size,
              .targets = marked ? static_cast<int64_t>(trailer.num_targets) : tokens,
              .marked = marked,
              .hash = hash};
  documents_ = reinterpret_cast<const ShardDocument*>(file_->data() + layout.documents_begin);
  blocks_ = reinterpret_cast<const ShardHash*>(file_->data() + layout.blocks_begin);
  tokens_end_ = int64_t{sizeof(ShardHeader)} + tokens * token_bytes_;
  marks_begin_ = layout.marks_begin;
  documents_begin_ = layout.documents_begin;
  blocks_begin_ = layout.blocks_begin;
}

// Takes what the header says; true if the shard has target marks.
bool TokenShard::read_header(const ShardHeader& header) {
  const bool marked = header.version == kShardVersionMarked;
  if (header.version != kShardVersion && !marked) {
    corrupt(path_, offsetof(ShardHeader, version),
            fmt::format("version {}, this program reads versions {} and {}", header.version,
                        kShardVersion, kShardVersionMarked));
  }
  if (header.header_hash !=
      ShardHash::of(hash_bytes(&header, offsetof(ShardHeader, header_hash)))) {
    corrupt(path_, 0, "the header's checksum differs");
  }
  // A file may be made to deceive, with checksums that fit: check every field on its own.
  if (header.vocabulary_size == 0 || header.vocabulary_size > std::numeric_limits<int32_t>::max() ||
      header.eos_id < -1 || header.eos_id >= static_cast<int64_t>(header.vocabulary_size)) {
    corrupt(path_, offsetof(ShardHeader, vocabulary_size),
            "vocabulary size or end id out of range");
  }
  meaning_ = {.vocabulary_size = static_cast<int64_t>(header.vocabulary_size),
              .eos_id = header.eos_id,
              .tokenizer_hash = {header.tokenizer_hash.high, header.tokenizer_hash.low}};
  token_bytes_ = meaning_.token_bytes();
  if (header.token_bytes != static_cast<uint32_t>(token_bytes_) ||
      header.block_bytes != kShardBlockBytes) {
    corrupt(path_, offsetof(ShardHeader, token_bytes),
            "token width or block size is not that of the format");
  }
  return marked;
}

void TokenShard::check_document_table() const {
  const int64_t table = reinterpret_cast<const uint8_t*>(documents_) - file_->data();
  const int64_t D = summary_.documents;
  if (documents_[0].token_begin != 0 || documents_[0].source_begin != 0 ||
      documents_[D].token_begin != static_cast<uint64_t>(summary_.tokens) ||
      documents_[D].source_begin != static_cast<uint64_t>(summary_.source_bytes)) {
    corrupt(path_, table, "the document table does not begin at 0 and end at the trailer's totals");
  }
  for (int64_t i = 0; i < D; ++i) {
    if (documents_[i].token_begin > documents_[i + 1].token_begin ||
        documents_[i].source_begin > documents_[i + 1].source_begin) {
      corrupt(path_, table + i * int64_t{sizeof(ShardDocument)},
              fmt::format("document {} ends before it begins", i));
    }
  }
}

void TokenShard::read(int64_t begin, int64_t count, int32_t* out) const {
  MR_CHECK(begin >= 0 && count >= 0 && count <= summary_.tokens - begin);
  const int64_t first = int64_t{sizeof(ShardHeader)} + begin * token_bytes_,
                last = first + count * token_bytes_;
  // Header and width keep every token in one block.
  alignas(8) thread_local uint8_t bytes[kShardBlockBytes];
  for (int64_t at = first; at < last;) {
    const int64_t block = at / kShardBlockBytes, block_begin = block * kShardBlockBytes;
    const int64_t end = std::min(last, block_begin + kShardBlockBytes);
    read_block(block, bytes);
    const uint8_t* const from = bytes + (at - block_begin);
    const int64_t tokens = (end - at) / token_bytes_;
    if (token_bytes_ == 4) {
      std::memcpy(out, from, static_cast<size_t>(tokens * 4));
    } else {
      const uint16_t* narrow = reinterpret_cast<const uint16_t*>(from);
      for (int64_t i = 0; i < tokens; ++i) out[i] = narrow[i];
    }
    out += tokens;
    at = end;
  }
}

void TokenShard::read_targets(int64_t begin, int64_t count, uint8_t* out) const {
  MR_CHECK(begin >= 0 && count >= 0 && count <= summary_.tokens - begin);
  if (!summary_.marked) {
    std::fill(out, out + count, uint8_t{1});
    return;
  }
  alignas(8) thread_local uint8_t bytes[kShardBlockBytes];
  int64_t have = -1;  // the block in `bytes`
  for (int64_t i = begin; i < begin + count; ++i) {
    const int64_t at = marks_begin_ + i / 8, block = at / kShardBlockBytes;
    if (block != have) read_block(have = block, bytes);
    *out++ = bytes[at - block * kShardBlockBytes] >> (i % 8) & 1;
  }
}

void TokenShard::prefetch(int64_t begin, int64_t count) const {
  MR_CHECK(begin >= 0 && count >= 0 && count <= summary_.tokens - begin);
  const int64_t first = int64_t{sizeof(ShardHeader)} + begin * token_bytes_,
                last = first + count * token_bytes_,
                from = first / kShardBlockBytes * kShardBlockBytes;
  file_->will_need(from,
                   (last - from + kShardBlockBytes - 1) / kShardBlockBytes * kShardBlockBytes);
}

void TokenShard::verify() const {
  std::vector<uint8_t> bytes(kShardBlockBytes);
  for (int64_t block = 0; block * kShardBlockBytes < blocks_begin_; ++block)
    read_block(block, bytes.data());
  if (!summary_.marked) return;
  int64_t targets = 0;
  for (int64_t at = marks_begin_; at < documents_begin_; at += kShardBlockBytes) {
    const int64_t count = std::min(kShardBlockBytes, documents_begin_ - at);
    file_->read_at(at, count, bytes.data());
    for (int64_t i = 0; i < count; ++i) targets += std::popcount(bytes[static_cast<size_t>(i)]);
  }
  if (targets != summary_.targets) {
    corrupt(path_, marks_begin_,
            fmt::format("{} tokens are marked as targets, the trailer says {}", targets,
                        summary_.targets));
  }
}

void TokenShard::read_block(int64_t block, uint8_t* bytes) const {
  const int64_t begin = block * kShardBlockBytes;
  const int64_t end = std::min(begin + kShardBlockBytes, blocks_begin_);
  file_->read_at(begin, end - begin, bytes);
  if (ShardHash::of(hash_bytes(bytes, end - begin)) != blocks_[block]) {
    corrupt(path_, begin,
            fmt::format("the checksum of block {} ({} bytes) differs", block, end - begin));
  }
  // A fitting checksum does not make an id fit the embedding table.
  const int64_t first = std::max(begin, int64_t{sizeof(ShardHeader)});
  const int64_t count = std::max<int64_t>(0, std::min(end, tokens_end_) - first) / token_bytes_;
  const int64_t bad =
      token_bytes_ == 2
          ? find_at_least<uint16_t>(bytes + (first - begin), count, meaning_.vocabulary_size)
          : find_at_least<uint32_t>(bytes + (first - begin), count, meaning_.vocabulary_size);
  if (bad >= 0) {
    corrupt(
        path_, first + bad * token_bytes_,
        fmt::format("a token id is not below the vocabulary size {}", meaning_.vocabulary_size));
  }
}

}  // namespace moraine
