// TokenShard: a file of tokenised documents, every byte checked before it is used.
//
// Opening checks the header, the trailer, the block table and the document table. A block of tokens
// is read and checked (its hash, and every id against the vocabulary size) each time it is used: a
// file that is cut or overwritten in the middle of a run is an Error that names it, and never data.
//
// Errors:  kNotFound, kIo; kCorrupt with the path and the offset: cut, flipped, unknown version,
//          ids out of range. No size in the file is believed before the file's own size confirms
//          it.
// Threads: const calls from any thread.
// Cost:    a read copies and hashes the blocks of 64 KiB that it touches: about 10 microseconds for
//          each that is in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "data/shard_format.h"
#include "data/shard_writer.h"

namespace moraine {

class TokenShard {
 public:
  TokenShard(FileSystem& files, std::string path);

  const TokenMeaning& meaning() const { return meaning_; }
  const ShardSummary& summary() const { return summary_; }

  // Document i in [0, documents]; i == documents gives the totals.
  int64_t token_begin(int64_t i) const { return static_cast<int64_t>(documents_[i].token_begin); }
  int64_t source_begin(int64_t i) const { return static_cast<int64_t>(documents_[i].source_begin); }

  // Copies tokens [begin, begin + count) to `out`. 0 <= begin, begin + count <= tokens.
  void read(int64_t begin, int64_t count, int32_t* out) const;
  // The same range: 1 for a token that is a target, 0 for one that is not. Without marks all are.
  void read_targets(int64_t begin, int64_t count, uint8_t* out) const;
  void prefetch(int64_t begin, int64_t count) const;  // read-ahead hint for tokens, same range

  // Checks every block again, also those seen before, and that the marks are as many as the trailer says.
  void verify() const;

 private:
  void open();
  bool read_header(const ShardHeader& header);
  void check_document_table() const;
  // A block's bytes, checked; `bytes` has room for kShardBlockBytes.
  void read_block(int64_t block, uint8_t* bytes) const;

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  TokenMeaning meaning_;
  ShardSummary summary_;
  const ShardDocument* documents_ = nullptr;
  const ShardHash* blocks_ = nullptr;
  int64_t token_bytes_ = 0, tokens_end_ = 0, marks_begin_ = 0, documents_begin_ = 0;
  int64_t blocks_begin_ = 0;
};

}  // namespace moraine
