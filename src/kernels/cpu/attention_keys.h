// AttentionKeys: where the keys and values of a group of positions lie, and how they are asked for before they are
// needed.
//
// Rows of one head are short runs far apart, which hardware prefetchers do not follow: decoding waits for nothing else.
#pragma once

#include "kernels/cpu/ask_ahead.h"
#include "kernels/cpu/attention_blocks.h"

namespace moraine::attention {

// Of a group and a key head, as many as the document has. One of both may be none, to ask for the other.
template <class Element>
struct KeyRows {
  const Element *k, *v;
  int64_t rows;  // a row is KeyMemory::stride() elements behind the one before
};

// What is needed later: `columns` of each row, of heads side by side. A piece is a share of the rows, of `pieces`.
template <class Element>
struct KeysAhead {
  KeyRows<Element> keys;
  int64_t columns;
  int64_t first_piece, pieces;  // piece 0 of a caller is number first_piece
  bool soon;                    // into L1, else into L2
};

template <class Element>
class KeyMemory {
 public:
  explicit KeyMemory(const AttentionForward& a)
      : k_(a.k.as<Element>()), v_(a.v.as<Element>()), heads_(a.k.dims[1]), d_(a.k.dims[2]) {}

  int64_t stride() const { return heads_ * d_; }

  KeyRows<Element> rows(const Part& part, int64_t group, int64_t key_head) const {
    const int64_t count = std::min(kGroup, part.keys - group * kGroup);
    if (count <= 0) return {nullptr, nullptr, 0};
    const int64_t offset = (part.key_row(group * kGroup) * heads_ + key_head) * d_;
    return {k_ + offset, v_ + offset, count};
  }

  // In line by force: of a function that only prefetches, gcc 12 drops the calls.
  [[gnu::always_inline]] void ask_for(const KeysAhead<Element>& a, int64_t piece) const {
    constexpr int64_t kLine = 64 / sizeof(Element);
    const int64_t begin = kGroup * (a.first_piece + piece) / a.pieces,
                  end = std::min(kGroup * (a.first_piece + piece + 1) / a.pieces, a.keys.rows);
    for (int64_t j = begin; j < end; ++j) {
      const Element *k = a.keys.k + j * stride(), *v = a.keys.v + j * stride();
      for (int64_t c = 0; c < a.columns; c += kLine) {
        if (a.soon) {
          __builtin_prefetch(k + c), __builtin_prefetch(v + c);
        } else {
          __builtin_prefetch(k + c, 0, 2), __builtin_prefetch(v + c, 0, 2);
        }
      }
    }
  }

 private:
  const Element *k_, *v_;
  const int64_t heads_, d_;
};

// Calls f(first column, columns) for each piece of a width, and asks for a share before it.
constexpr int64_t kAskingPieces = 4;
template <class Use>
[[gnu::always_inline]] inline void for_asking_pieces(cpu::AskRows& ask, int64_t width,
                                                     const Use& f) {
  const int64_t piece = round_up((width + kAskingPieces - 1) / kAskingPieces, kGroup);
  for (int64_t i = 0; i < kAskingPieces; ++i) {
    ask.share();
    const int64_t begin = i * piece, n = std::min(piece, width - begin);
    if (n > 0) f(begin, n);
  }
}

}  // namespace moraine::attention
