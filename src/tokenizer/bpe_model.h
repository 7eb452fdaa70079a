// BPE model: the token ids of one piece of text by merging pairs in order of rank.
//
//   symbols  the piece's characters (bytes, for a byte-level vocabulary); a character without a
//            token becomes its <0xHH> bytes (byte_fallback), the unknown token, or nothing
//   merge    while some neighbours are a known pair: join the pair of lowest rank, leftmost first
//
// A piece which is a token that merging would give back whole is looked up and not merged. Text of
// a SentencePiece vocabulary, one long piece, is cut before U+2581 where no token reaches across.
//
// Order:   exact: the same ids as merging the whole piece.
// Errors:  none in encoding; load.cc checks what it hands over.
// Threads: encode from any thread, each with its own Scratch.
// Cost:    n symbols: n^2 steps in registers up to kScanMost, then n log n with a heap.
// Source:  Sennrich et al. 2016; Hugging Face tokenizers, models/bpe (order of merging, fallback).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/token_table.h"

namespace moraine {

struct BpeMerge {
  int32_t left, right, result;  // ids; rank is the place in the list
};

struct BpeOptions {
  bool byte_level = false;       // pieces are raw bytes; the vocabulary has the whole byte alphabet
  bool byte_characters = false;  // pieces are already in the byte alphabet
  bool byte_fallback = false;
  bool fuse_unknown = false;   // neighbouring unknown characters are one unknown token
  bool ignore_merges = false;  // a piece that is a token is that token
  int32_t unknown_id = -1;     // -1: an unknown character is dropped
};

class BpeModel {
 public:
  BpeModel() = default;
  // `vocabulary` maps text as in the file. A pair that comes twice has its last rank.
  BpeModel(const BpeOptions& options, TokenTable vocabulary, const std::vector<BpeMerge>& merges);

  // Working memory of one thread.
  struct Scratch {
    std::vector<int32_t> ids, ranks, next, previous;
    std::vector<uint64_t> heap;
  };

  // Appends to `out`. The piece is valid UTF-8 (any bytes for byte_level).
  void encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const;

  // A byte that belongs to no character.
  void encode_byte(uint8_t byte, std::vector<int32_t>* out) const;

  // Whether every character of a piece is in the ids, none dropped or joined to an unknown one before it.
  bool keeps_all() const;

  const TokenTable& vocabulary() const { return vocabulary_; }

 private:
  struct Pair {
    uint64_t key;  // left << 32 | right
    int32_t rank, result;
  };
  void add_merges(const std::vector<BpeMerge>& merges);
  void find_whole_tokens();
  void find_cuts(const std::vector<BpeMerge>& merges);
  const Pair* pair(int32_t left, int32_t right) const;
  int32_t rank(int32_t left, int32_t right) const;
  int32_t character_id(std::string_view text, int64_t at, int bytes) const;
  void encode_chunk(std::string_view chunk, Scratch* scratch, std::vector<int32_t>* out) const;
  void symbols(std::string_view chunk, std::vector<int32_t>* ids) const;
  void merge_by_scan(Scratch* scratch, std::vector<int32_t>* out) const;
  void merge_by_heap(Scratch* scratch, std::vector<int32_t>* out) const;

  BpeOptions options_;
  TokenTable vocabulary_;
  TokenTable raw_tokens_;                    // byte_level: the same tokens as raw bytes
  std::vector<Pair> pairs_;                  // open addressing, a power of two
  std::array<int32_t, 256> byte_ids_{};      // of a byte alone; -1 if absent
  std::array<int32_t, 256> fallback_ids_{};  // of <0xHH>; -1 if absent or no byte_fallback
  std::vector<int32_t> character_ids_;       // of the basic plane; empty for byte_level
  std::vector<bool> whole_;                  // by id: merging the token's text gives the token
  bool cuts_ = false;                        // whether a piece may be cut before U+2581
  std::vector<bool> joins_;                  // by code point: some token has it before U+2581
};

}  // namespace moraine
