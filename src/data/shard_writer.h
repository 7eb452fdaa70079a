// ShardWriter: write documents of token ids into one shard file.
//
// Everything goes to `path`.partial; finish() syncs and renames, so a file called `path` is complete.
//
// Errors: kIo. After an error, or without finish(), only the partial file is left.
// Cost:   memory is 64 KiB and 16 bytes a document; with marks also a bit for each token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "data/shard_format.h"

namespace moraine {

// What the tokens mean: the same for every shard of a dataset.
struct TokenMeaning {
  int64_t vocabulary_size = 0;  // 1 .. 2^31 - 1
  int32_t eos_id = -1;          // ends each document; -1: none
  Hash128 tokenizer_hash = {};
  bool operator==(const TokenMeaning&) const = default;
  int64_t token_bytes() const { return vocabulary_size <= 65536 ? 2 : 4; }
};

struct ShardSummary {
  int64_t documents = 0, tokens = 0, source_bytes = 0, file_bytes = 0;
  int64_t targets = 0;  // tokens that are marked as such; without marks all are
  bool marked = false;
  Hash128 hash = {};  // the trailer's: stands for the whole file
};

class ShardWriter {
 public:
  // marked: the shard says of each token whether it is a target.
  ShardWriter(FileSystem& files, std::string path, const TokenMeaning& meaning,
              bool marked = false);

  // Every token lies in [0, vocabulary_size); source_bytes >= 0. is_target: as long as tokens if the shard is marked,
  // else empty; not 0: a target.
  void add_document(std::span<const int32_t> tokens, int64_t source_bytes,
                    std::span<const uint8_t> is_target = {});
  int64_t file_bytes() const;  // of the file, if it were finished now
  ShardSummary finish();       // at most once; nothing may be added after

 private:
  ShardCounts counts() const;
  void add_marks(std::span<const uint8_t> is_target);
  void emit(const void* data, int64_t bytes);
  void flush_block();

  FileSystem& files_;
  std::string path_;
  TokenMeaning meaning_;
  const bool marked_;
  int64_t targets_ = 0;
  std::unique_ptr<WritableFile> file_;
  std::vector<ShardDocument> documents_;  // one more than there are: the last holds the totals
  std::vector<ShardHash> blocks_;
  std::vector<uint8_t> block_;    // bytes not yet hashed and written
  std::vector<uint16_t> narrow_;  // tokens of one document in 16 bits
  std::vector<uint64_t> marks_;   // 64 tokens each, the first in the lowest bit
};

}  // namespace moraine
