// ContextRows: arithmetic on rows, chunks and documents.
#include "parallel/context_rows.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "kernels/attention_part.h"

namespace moraine {
namespace {

// Where the document that holds `row` begins and ends.
RowRange document_at(const ContextRows& mine, int64_t row) {
  const auto& begin = mine.document_begin;
  const auto above = std::upper_bound(begin.begin(), begin.end(), row);
  return {*(above - 1), *above};
}

void add_chunk(ContextRows& mine, int64_t sequence, int slot) {
  const ContextLayout& layout = mine.layout;
  const int64_t chunk = layout.chunk_of(mine.rank, slot);
  const RowRange rows = layout.chunk(sequence, chunk);
  mine.before.push_back(std::min<int64_t>(2, rows.begin - document_at(mine, rows.begin).begin));
  const bool last = chunk + 1 == 2 * layout.ranks;
  mine.after.push_back(last ? 0
                            : std::min<int64_t>(2, rows.end - document_at(mine, rows.end).begin));
  for (int64_t at = rows.begin; at < rows.end;) {
    const RowRange document = document_at(mine, at);
    const int64_t end = std::min(document.end, rows.end);
    const bool continues = at == rows.begin && document.begin < at;
    mine.segments.push_back({.row_begin = mine.rows(),
                             .rows = end - at,
                             .position_begin = at - document.begin,
                             .key_begin = document.begin});
    mine.halo_row.push_back(continues ? 2 * sequence + slot : -1);
    for (; at < end; ++at) mine.row.push_back(at);
  }
}

// What segment s sees of keys [begin, end) of the batch, which lie at `key_row` of a block.
void add_part(KeyParts& parts, const Segment& s, RowRange keys, int64_t key_row, int64_t window) {
  const int64_t first = s.key_begin + s.position_begin;  // the segment's first row in the batch
  const int64_t begin = std::max(keys.begin, s.key_begin), end = std::min(keys.end, first + s.rows);
  if (begin >= end) return;
  const int64_t position = first - begin;
  int64_t rows = s.rows;
  if (window > 0) rows = std::min(rows, end - begin + window - 1 - position);
  if (rows <= 0) return;
  // Rows before the first key see nothing of it (only a later chunk could hold such).
  if (position < 0) return;
  parts.segments.push_back({.row_begin = s.row_begin,
                            .rows = rows,
                            .position_begin = position,
                            .key_begin = key_row + begin - keys.begin});
  parts.keys.push_back(end - begin);
}

}  // namespace

RowRange ContextLayout::chunk(int64_t sequence, int64_t chunk) const {
  const int64_t first = sequence * length;
  return {first + chunk * length / (2 * ranks), first + (chunk + 1) * length / (2 * ranks)};
}

int64_t ContextLayout::rows_of(int64_t rank) const {
  return sequences * (chunk(0, chunk_of(rank, 0)).count() + chunk(0, chunk_of(rank, 1)).count());
}

int64_t ContextLayout::most_rows() const {
  int64_t most = 0;
  for (int64_t r = 0; r < ranks; ++r) most = std::max(most, rows_of(r));
  return most;
}

int64_t ContextLayout::local_begin(int64_t rank, int64_t sequence, int slot) const {
  const int64_t lower = chunk(0, chunk_of(rank, 0)).count(),
                upper = chunk(0, chunk_of(rank, 1)).count();
  return sequence * (lower + upper) + (slot == 0 ? 0 : lower);
}

void check_context(const ContextLayout& layout) {
  if (layout.length < 4 * layout.ranks) {
    throw_error(Code::kInvalidArgument,
                "parallel.context = {}: sequences of {} tokens; wanted at least {} (two rows for "
                "each of {} chunks)",
                layout.ranks, layout.length, 4 * layout.ranks, 2 * layout.ranks);
  }
}

ContextRows make_context_rows(const ContextLayout& layout, int64_t rank,
                              std::span<const int64_t> segment_begin) {
  check_context(layout);
  MR_CHECK(rank >= 0 && rank < layout.ranks && layout.sequences > 0);
  ContextRows mine;
  mine.layout = layout;
  mine.rank = rank;
  mine.document_begin.assign(segment_begin.begin(), segment_begin.end());
  mine.document_begin.push_back(layout.rows());
  const auto& begin = mine.document_begin;
  MR_CHECK(begin.front() == 0 && std::is_sorted(begin.begin(), begin.end()));
  for (int64_t b = 0; b < layout.sequences; ++b) {
    MR_CHECK(std::binary_search(begin.begin(), begin.end(), b * layout.length),
             "a document crosses the border of sequence %ld", long(b));
    for (const int slot : {0, 1}) add_chunk(mine, b, slot);
  }
  return mine;
}

KeyParts gathered_parts(const ContextRows& mine) {
  KeyParts parts;
  for (const Segment& s : mine.segments) {
    parts.segments.push_back(s);
    parts.keys.push_back(s.position_begin + s.rows);
  }
  return parts;
}

std::vector<RingHop> ring_hops(const ContextRows& mine, int64_t window) {
  const ContextLayout& layout = mine.layout;
  std::vector<RingHop> hops;
  for (int64_t h = 0; h < layout.ranks; ++h) {
    RingHop hop;
    hop.owner = (mine.rank - h + layout.ranks) % layout.ranks;
    for (const Segment& s : mine.segments) {
      const int64_t sequence = s.key_begin / layout.length;
      for (const int slot : {0, 1}) {
        const RowRange keys = layout.chunk(sequence, layout.chunk_of(hop.owner, slot));
        add_part(hop.slot[slot], s, keys, layout.local_begin(hop.owner, sequence, slot), window);
      }
    }
    hops.push_back(std::move(hop));
  }
  return hops;
}

int64_t visible_pairs(std::span<const RingHop> hops, int64_t window) {
  int64_t pairs = 0;
  for (const RingHop& hop : hops) {
    for (const KeyParts& p : hop.slot) pairs += visible_pairs(p.segments, p.keys, window);
  }
  return pairs;
}

}  // namespace moraine
