// ShardFormat: the fixed byte layout that the shard writer and reader share (docs/formats/shard.md).
//
//   header [64] | tokens, padded to 8 | target marks, padded to 8 | document table [16 * (D + 1)] |
//   block table [16 * B] | trailer [64]
//
// Version 2 has a mark for each token, one bit, that says whether it is a target; version 1 has none, and all are.
// Every number is little-endian. The block table holds the XXH3-128 of each 64 KiB of all bytes
// before it; the trailer's hash covers the block table, so it stands for the whole file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"

namespace moraine {

static_assert(std::endian::native == std::endian::little, "shards are mapped, not converted");

constexpr char kShardMagic[8] = {'M', 'O', 'R', 'S', 'H', 'A', 'R', 'D'};
constexpr char kShardEndMagic[8] = {'M', 'O', 'R', 'S', 'H', 'E', 'N', 'D'};
constexpr uint32_t kShardVersion = 1;
constexpr uint32_t kShardVersionMarked = 2;     // with target marks
constexpr int64_t kShardBlockBytes = 64 << 10;  // small: a scattered first read costs one block

struct ShardHash {  // a Hash128 in file order
  uint64_t high, low;
  static ShardHash of(const Hash128& h) { return {h.high, h.low}; }
  bool operator==(const ShardHash&) const = default;
};

struct ShardHeader {
  char magic[8];
  uint32_t version;
  uint32_t token_bytes;      // 2 or 4
  uint64_t vocabulary_size;  // every token is below
  int32_t eos_id;            // ends each document; -1: none
  uint32_t block_bytes;
  ShardHash tokenizer_hash;
  ShardHash header_hash;  // of the bytes before it
};
static_assert(sizeof(ShardHeader) == 64);

struct ShardDocument {    // entry i of the document table; entry D holds the totals
  uint64_t token_begin;   // first token of document i
  uint64_t source_begin;  // bytes of source text of the documents before i
};
static_assert(sizeof(ShardDocument) == 16);

struct ShardTrailer {
  char magic[8];
  uint64_t num_documents;  // D
  uint64_t num_tokens;
  uint64_t source_bytes;
  uint64_t file_bytes;
  uint64_t num_targets;  // marks that are 1; version 1: 0
  ShardHash table_hash;  // of the block table, then of the trailer bytes before this field
};
static_assert(sizeof(ShardTrailer) == 64);

// Offsets that follow from the counts.
struct ShardCounts {
  int64_t documents, tokens, token_bytes;
  bool marked = false;
};

struct ShardLayout {
  int64_t marks_begin, documents_begin, blocks_begin, num_blocks, trailer_begin, file_bytes;
  explicit ShardLayout(const ShardCounts& n)
      : marks_begin((int64_t{sizeof(ShardHeader)} + n.tokens * n.token_bytes + 7) / 8 * 8),
        documents_begin(marks_begin + (n.marked ? (n.tokens + 63) / 64 * 8 : 0)),
        blocks_begin(documents_begin + (n.documents + 1) * int64_t{sizeof(ShardDocument)}),
        num_blocks((blocks_begin + kShardBlockBytes - 1) / kShardBlockBytes),
        trailer_begin(blocks_begin + num_blocks * int64_t{sizeof(ShardHash)}),
        file_bytes(trailer_begin + int64_t{sizeof(ShardTrailer)}) {}
};

}  // namespace moraine
