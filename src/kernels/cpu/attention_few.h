// AttentionFew: forward attention of few rows with vectors: decoding, which waits for memory.
//
// A block of keys goes by group by group, all key heads of a group in turn; then softmax; then its values likewise.
// That is their order in memory, where the heads of a position lie side by side. What is packed of a group stays in L1,
// and values that need no packing are read where they lie. Sums are those of whole blocks.
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/attention_softmax.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_FEW_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_FEW_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_FEW_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_FEW_H_
#endif

#include <span>

#include "kernels/cpu/attention_keys.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

// Panels of `heads` key heads from `first` on, as many of each, head by head.
struct FewPanels {
  std::span<Panel> panels;
  int64_t first, heads;
};

template <class F>
class FewRows {
 public:
  using Element = typename F::Element;
  static constexpr int64_t kGroup = attention::kGroup, kBlock = attention::kBlock;

  // Of a group keys, [words, kGroup], and values, [kGroup / kPair, width]; of each panel what it has in a block.
  static int64_t scratch_words(int64_t d, int64_t panels) {
    return 2 * kGroup * attention::round_up(d, kGroup) + panels * kPanelWords;
  }

  FewRows(const AttentionForward& a, const attention::Part& part, const FewPanels& few,
          Word* scratch)
      : memory_(a),
        softmax_(a),
        part_(part),
        few_(few),
        each_(few.panels.size() / static_cast<size_t>(few.heads)),
        window_(a.window),
        d_(a.q.dims[2]),
        width_(attention::round_up(d_, kGroup)),
        keys_(scratch),
        values_(scratch + kGroup * width_),
        panels_(scratch + 2 * kGroup * width_) {}

  // Adds all keys that the panels see.
  HWY_NOINLINE void run() {
    const int64_t first = attention::first_key_group(few_.panels.front().group * kGroup, window_),
                  last = std::min((part_.keys - 1) / kGroup, few_.panels.back().group);
    for (int64_t from = first; from <= last; from = block_.to + 1) {
      block_ = {from, std::min(last, from | (attention::kBlockGroups - 1))};
      for (int64_t g = from; g <= block_.to; ++g) meet_keys(g);
      weigh();
      for (int64_t g = from; g <= block_.to; ++g) add_values(g);
    }
  }

 private:
  using Rows = attention::KeyRows<Element>;
  static constexpr int64_t kPanelWords = 2 * kGroup * kBlock + kGroup;
  static constexpr int64_t kGroupsAhead = 2;
  static constexpr bool kInPlace = F::kPair == 1;  // values can be read where they lie

  // [from, to], of one block.
  struct Groups {
    int64_t from, to;
    int64_t count() const { return to - from + 1; }
  };
  // Of the block, by a panel: scores and weights begin with those of its first group.
  struct Seen {
    Panel& panel;
    Groups groups;
    float *scores, *weights, *rescale;
  };

  // Calls f(seen) for panels [begin, end) that see any of groups [from, to].
  template <class Use>
  HWY_INLINE void for_panels(size_t begin, size_t end, const Groups& of, const Use& f) const {
    for (size_t i = begin; i < end; ++i) {
      Panel& panel = few_.panels[i];
      const int64_t first = attention::first_key_group(panel.group * kGroup, window_);
      const Groups groups = {std::max(block_.from, first), std::min(block_.to, panel.group)};
      if (groups.from > of.to || groups.to < of.from) continue;
      float* scores = panels_ + static_cast<int64_t>(i) * kPanelWords;
      f(Seen{panel, groups, scores, scores + kGroup * kBlock, scores + 2 * kGroup * kBlock});
    }
  }
  template <class Use>
  HWY_INLINE void for_head(size_t h, int64_t g, const Use& f) const {
    for_panels(h * each_, (h + 1) * each_, {g, g}, f);
  }

  // What is read kGroupsAhead behind number `at` of the block's groups of keys and, behind them, of values.
  cpu::AskRows ahead_of(int64_t at) const {
    const int64_t n = block_.count(), later = at + kGroupsAhead;
    const bool next = later >= 2 * n;  // the next block's keys
    const int64_t g = next ? block_.to + 1 + later - 2 * n : block_.from + later % n;
    const Rows rows = memory_.rows(part_, g, few_.first);
    constexpr int64_t kNear = 512;  // bytes of a position: a group is a quarter of L1
    constexpr int64_t kSize = sizeof(Element);
    const int64_t bytes = few_.heads * d_ * kSize;
    return {{.first = reinterpret_cast<const uint8_t*>(next || later < n ? rows.k : rows.v),
             .rows = rows.rows,
             .bytes = bytes,
             .stride = memory_.stride() * kSize,
             .soon = bytes <= kNear},
            few_.heads * attention::kAskingPieces};
  }

  void meet_keys(int64_t g) {
    cpu::AskRows later = ahead_of(g - block_.from);
    for (int64_t h = 0; h < few_.heads; ++h) {
      const Rows keys = memory_.rows(part_, g, few_.first + h);
      attention::for_asking_pieces(later, d_, [&](int64_t c, int64_t n) {
        pack_columns<F>(keys.k + c, memory_.stride(), keys.rows, n, keys_ + c / F::kPair * kGroup,
                        kGroup);
      });
      for_head(h, g, [&](const Seen& s) {
        multiply_lanes<F, 1, kGroup, Start::kZero>(
            Product{.a = s.panel.q,
                    .b = keys_,
                    .c = s.scores + (g - s.groups.from) * kGroup,
                    .b_step = kGroup,
                    .c_row = kBlock,
                    .steps = words<F>(d_),
                    .rows = s.panel.slots,
                    .columns = kGroup});
      });
    }
  }

  void weigh() {
    for_panels(0, few_.panels.size(), block_, [&](const Seen& s) {
      softmax_.weigh(part_, {&s.panel, s.groups.from, s.groups.to, s.scores, s.weights, s.rescale});
    });
  }

  void add_values(int64_t g) {
    cpu::AskRows later = ahead_of(block_.count() + g - block_.from);
    for (int64_t h = 0; h < few_.heads; ++h) {
      const Rows keys = memory_.rows(part_, g, few_.first + h);
      if constexpr (kInPlace) {
        if (keys.rows == kGroup && d_ == width_) {
          add(g, h, later, keys.v, memory_.stride());
          continue;
        }
      }
      pack_rows<F>(keys.v, memory_.stride(), keys.rows, kGroup, d_, values_, {width_, kGroup});
      add(g, h, later, values_, width_);
    }
  }

  // Values, words or what becomes them, `stride` from one step to the next.
  template <class B>
  HWY_INLINE void add(int64_t g, int64_t h, cpu::AskRows& later, const B* values, int64_t stride) {
    constexpr int64_t kRow = kBlock / F::kPair;
    attention::for_asking_pieces(later, width_, [&](int64_t c, int64_t n) {
      for_head(h, g, [&](const Seen& s) {
        const ProductOf<B> p = {.a = s.weights + (g - s.groups.from) * kGroup / F::kPair,
                                .b = values + c,
                                .c = s.panel.o + c,
                                .b_step = stride,
                                .c_row = width_,
                                .steps = kGroup / F::kPair,
                                .rows = s.panel.slots,
                                .columns = n,
                                .scale = s.rescale};
        g == s.groups.from ? multiply_lanes<F, kRow, 1, Start::kScale>(p)
                           : multiply_lanes<F, kRow, 1, Start::kAdd>(p);
      });
    });
  }

  const attention::KeyMemory<Element> memory_;
  const PanelSoftmax<F> softmax_;
  const attention::Part& part_;
  const FewPanels& few_;
  const size_t each_;  // panels of a key head
  const int64_t window_, d_, width_;
  Word *const keys_, *const values_, *const panels_;
  Groups block_ = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
