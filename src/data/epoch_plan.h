// EpochPlan: cut the documents of one epoch into pieces and pack those into sequences of S positions.
//
// Cutting  A document of L tokens has n = L - 1 positions (inputs t[0..n), targets t[1..n]). If
//          n > S it is cut after o, o + S, o + 2S, ... positions, o in [1, S] drawn for (seed,
//          epoch, document), so that other epochs cut elsewhere. A piece of m positions covers
//          m + 1 tokens: neighbours share one token, and each token but a document's first is a
//          target exactly once an epoch.
// Packing  The pieces are shuffled, then taken in windows of kWindowPieces: best-fit decreasing,
//          each piece into the fullest sequence that has room. Sequences with a hole of at most
//          S / 32 are done; the pieces of the others are laid end to end and cut where a sequence
//          is full, the last, unfilled one goes on into the next window. So at least 31/32 of every
//          sequence but the epoch's last is filled, whatever the lengths; mixed lengths need few
//          such cuts. Then the sequences are shuffled, because best-fit decreasing puts the long
//          pieces first.
//
// Order:  a pure function of (document_begins, options, epoch).
// Cost:   O(pieces log kWindowPieces), about 0.3 microseconds a piece (a million documents of 820
//         million tokens: 0.24 s on one core); memory is 16 bytes a piece.
// Source: best-fit packing, Ding et al. 2024, arXiv:2404.10830 (there without windows and
//         end-of-window cuts).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moraine {

constexpr int64_t kWindowPieces = 4096;  // 1024 fill as well; more gives cuts less reason
constexpr int64_t kHoleShare = 32;       // a hole of up to 1 / kHoleShare of a sequence may stay

struct Piece {
  int64_t token_begin;  // first input token in the dataset
  int64_t positions;    // > 0; the piece covers positions + 1 tokens
};

struct PlanOptions {
  int64_t sequence = 0;  // S: positions in a sequence
  uint64_t seed = 0;
  bool pack = true;  // false: one piece in a sequence, nothing is cut but what is longer than S
};

struct EpochPlan {
  std::vector<Piece> pieces;            // in the order of the sequences
  std::vector<int64_t> sequence_begin;  // [num_sequences + 1], into pieces
  int64_t sequence = 0;                 // S
  int64_t positions = 0;                // that hold a token
  int64_t documents = 0;                // with at least one target
  int64_t long_document_cuts = 0;       // because a document is longer than S
  int64_t packing_cuts = 0;             // to fill a hole

  int64_t num_sequences() const { return static_cast<int64_t>(sequence_begin.size()) - 1; }
  double efficiency() const;  // filled share of all positions; 1 if there are none
  std::span<const Piece> pieces_of(int64_t index) const;
};

// `document_begins` as in dataset.h. Documents of fewer than two tokens have no target and are left
// out.
EpochPlan plan_epoch(std::span<const int64_t> document_begins, const PlanOptions& options,
                     int64_t epoch);

}  // namespace moraine
