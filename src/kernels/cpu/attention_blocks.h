// AttentionBlocks: which positions are computed together, which is a function of the position
// alone.
//
// Rows and keys of a document are cut into groups of kGroup positions, counted from position 0; all
// rows of a group walk the same groups of keys (those that any of its 16 positions could see), also
// when some of the rows are not in the batch. Softmax is rescaled once per block of kBlock keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/context.h"
#include "kernels/segment_rows.h"

namespace moraine {

using Word = float;  // 32 bits of a panel: one f32, or two bf16

namespace attention {

constexpr int64_t kGroup = 16;   // positions; the lanes of the widest vector
constexpr int64_t kBlock = 128;  // keys per step of the softmax
constexpr int64_t kBlockGroups = kBlock / kGroup;
constexpr int64_t kMaxWidth = 1024;  // of a head: what is packed must fit a worker's scratch

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Words of a row of d elements as an operand, `pair` to a word; with tiles up to whole dots.
inline int64_t operand_words(int64_t d, int64_t pair, bool tiles) {
  return tiles ? round_up(d, pair * kGroup) / pair : (d + pair - 1) / pair;
}

// Where word c of step s of a right operand lies: at s * step + c / kGroup * group + c % kGroup.
struct RightLayout {
  int64_t step, group;
};

// Vectors read a step's columns one after another: they lie side by side, and an odd number of lines from one step to
// the next spreads those over the sets of L1. Tiles read sixteen steps of a group: a tile's lines follow each other.
constexpr RightLayout right_layout(int64_t steps, int64_t columns, bool tiles) {
  return tiles ? RightLayout{kGroup, steps * kGroup}
               : RightLayout{(columns / kGroup | 1) * kGroup, kGroup};
}
constexpr int64_t right_words(const RightLayout& layout, int64_t steps, int64_t columns) {
  return std::max(steps * layout.step, columns / kGroup * layout.group);
}

// First group of keys that rows from `position` on see.
inline int64_t first_key_group(int64_t position, int64_t window) {
  return window > 0 ? std::max<int64_t>(0, position - window + 1) / kGroup : 0;
}

// How many keys segment s sees at most: positions [0, n) of its document, or of its part of it.
inline int64_t key_count(Segments segments, std::span<const int64_t> keys, size_t s) {
  const int64_t end = segments[s].position_begin + segments[s].rows;
  return keys.empty() ? end : std::min(end, keys[s]);
}

// Positions [begin, end) of one segment, which sees positions [0, keys).
struct Part {
  const Segment* segment;
  int64_t keys;
  int64_t begin, end;
  const KeyPages* pages;
  int64_t row(int64_t position) const {
    return segment->row_begin + position - segment->position_begin;
  }
  // Of position and the others of its group, one row after another.
  int64_t key_row(int64_t position) const { return pages->row(*segment, position); }
};

// One segment in the backward: groups of rows are counted from its first row, whatever its
// position; groups of keys from position 0.
struct RowsAndKeys {
  const Segment* segment;
  int64_t keys;
  int64_t window;

  int64_t position() const { return segment->position_begin; }
  int64_t row_groups() const { return (segment->rows + kGroup - 1) / kGroup; }
  int64_t first_key(int64_t row_group) const {
    return first_key_group(position() + row_group * kGroup, window);
  }
  int64_t last_key(int64_t row_group) const {
    return std::min(position() + row_group * kGroup + kGroup - 1, keys - 1) / kGroup;
  }
  // First, and last below `groups`, group of rows that sees keys of a group.
  int64_t first_row(int64_t key_group) const {
    return std::max<int64_t>(0, key_group * kGroup - position()) / kGroup;
  }
  int64_t last_row(int64_t key_group, int64_t groups) const {
    if (window == 0) return groups - 1;
    const int64_t last = key_group * kGroup + kGroup - 1 + window - 1 - position();
    return last < 0 ? -1 : std::min(groups - 1, last / kGroup);
  }
};

// Positions [begin, end) of the keys, or rows [begin, end) counted from the first, of one segment.
struct Share {
  RowsAndKeys of;
  int64_t begin, end;
};

// The documents of a batch and where their keys lie. keys: by segment; empty: to its end.
struct Documents {
  Segments segments;
  std::span<const int64_t> keys;
  KeyPages pages;
};

// Calls f(part) for the groups whose first row in the batch is in [row_begin, row_end): so
// consecutive ranges of rows own each group once, and whole.
template <class F>
void for_parts(const Documents& documents, int64_t row_begin, int64_t row_end, const F& f) {
  const Segments segments = documents.segments;
  auto s = static_cast<size_t>(std::max<int64_t>(0, segment_index(segments, row_begin)));
  for (; s < segments.size() && segments[s].row_begin < row_end; ++s) {
    const Segment& segment = segments[s];
    const auto boundary = [&](int64_t row) {  // first position that a range from `row` on owns
      if (row <= segment.row_begin) return segment.position_begin;
      const int64_t position = segment.position_begin + row - segment.row_begin;
      return std::min(round_up(position, kGroup), segment.position_begin + segment.rows);
    };
    const Part part = {&segment, key_count(segments, documents.keys, s), boundary(row_begin),
                       boundary(row_end), &documents.pages};
    if (part.begin < part.end) f(part);
  }
}

// Hands out a worker's scratch from its beginning.
class Carver {
 public:
  explicit Carver(std::span<Word> scratch)
      : next_(scratch.data()), end_(scratch.data() + scratch.size()) {}
  Word* take(int64_t n) {
    Word* p = next_;
    next_ += round_up(n, kGroup);  // 64 bytes
    MR_CHECK(next_ <= end_);
    return p;
  }
  int64_t left() const { return end_ - next_; }

 private:
  Word *next_, *end_;
};

}  // namespace attention
}  // namespace moraine
