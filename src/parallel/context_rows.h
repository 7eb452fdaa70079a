// ContextRows: which rows of a batch of sequences a rank has, and which keys its rows see where.
//
// A sequence of S positions is cut into 2C chunks, chunk c = [c*S/2C, (c+1)*S/2C). Rank i of C has
// chunks i and 2C-1-i (zig-zag): under a causal mask every rank then has the same work, to within
// a chunk. A rank's rows: sequence after sequence, in each the lower chunk, then the upper.
//
// Rows of a batch are numbered sequence * S + position; documents begin at any rows (a sequence's
// first row among them), and chunks cut them anywhere. All functions are pure.
//
// Errors: kInvalidArgument: a sequence with fewer than two rows for each chunk (a halo of two
//         columns comes from one chunk).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/segment.h"

namespace moraine {

// Rows of a batch.
struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

struct ContextLayout {
  int64_t ranks = 1;      // C
  int64_t sequences = 0;  // in the batch
  int64_t length = 0;     // S, of each

  int64_t rows() const { return sequences * length; }
  int64_t owner(int64_t chunk) const { return chunk < ranks ? chunk : 2 * ranks - 1 - chunk; }
  // A rank's two chunks: slot 0 the lower, slot 1 the upper.
  int64_t chunk_of(int64_t rank, int slot) const { return slot == 0 ? rank : 2 * ranks - 1 - rank; }
  RowRange chunk(int64_t sequence, int64_t chunk) const;  // in the batch
  int64_t rows_of(int64_t rank) const;
  int64_t most_rows() const;  // of any rank
  // Where a rank's own rows have chunk (sequence, slot).
  int64_t local_begin(int64_t rank, int64_t sequence, int slot) const;
};

// Throws if the sequences are too short for so many ranks.
void check_context(const ContextLayout& layout);

struct ContextRows {
  ContextLayout layout;
  int64_t rank = 0;
  std::vector<int64_t> document_begin;  // rows of the whole batch, ascending; with the end at last
  std::vector<int64_t> row;             // of the batch, by local row

  // Documents cut by chunks, in local rows: position_begin is the position in the document, of
  // which position 0 is row key_begin of the batch.
  std::vector<Segment> segments;
  // By segment: the row of the halo that it needs (sequence-major: 2 * sequence + slot), or -1.
  std::vector<int64_t> halo_row;
  // By halo row: rows of the document before this chunk (at most 2), and rows of this chunk that
  // the next chunk's first document has before it.
  std::vector<int64_t> before, after;

  int64_t rows() const { return static_cast<int64_t>(row.size()); }
};

// segment_begin: rows of the whole batch where documents begin, ascending, first 0, all sequence
// borders among them.
ContextRows make_context_rows(const ContextLayout& layout, int64_t rank,
                              std::span<const int64_t> segment_begin);

// What some rows see of some keys, as attention_part.h wants it.
struct KeyParts {
  std::vector<Segment> segments;
  std::vector<int64_t> keys;
};

// All keys in the order of the batch's rows.
KeyParts gathered_parts(const ContextRows& mine);

// One step of the ring: the keys of `owner`, in its own local rows, slot by slot. Rows that see
// nothing (another document, out of the window, later keys) are left out.
struct RingHop {
  int64_t owner = 0;
  KeyParts slot[2];
  bool empty() const { return slot[0].segments.empty() && slot[1].segments.empty(); }
};
// By hop: at hop h the rank has the keys of rank - h (around the ring).
std::vector<RingHop> ring_hops(const ContextRows& mine, int64_t window);

// (row, key) pairs of the hops: the work of a rank.
int64_t visible_pairs(std::span<const RingHop> hops, int64_t window);

}  // namespace moraine
