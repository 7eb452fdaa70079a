// AttentionFew: forward attention of few rows with vectors: decoding, which waits for memory.
//
// A block of keys goes by a strip of groups at a time, all key heads of a strip in turn; then softmax; then its values
// likewise. That is about their order in memory, where the heads of a position lie side by side. What is packed of a
// strip stays in L1, and values that need no packing are read where they lie. Sums are those of whole blocks.
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

  // Of a strip keys and values, as right operands; of each panel what it has in a block.
  static int64_t scratch_words(int64_t d, int64_t panels) {
    const Sizes sizes(d);
    return sizes.keys + sizes.values + panels * kPanelWords;
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
        sizes_(d_),
        keys_(scratch),
        values_(keys_ + sizes_.keys),
        panels_(values_ + sizes_.values) {}

  // Adds all keys that the panels see.
  HWY_NOINLINE void run() {
    const int64_t first = attention::first_key_group(few_.panels.front().group * kGroup, window_),
                  last = std::min((part_.keys - 1) / kGroup, few_.panels.back().group);
    for (int64_t from = first; from <= last; from = block_.to + 1) {
      block_ = {from, std::min(last, from | (attention::kBlockGroups - 1))};
      for (int64_t g = from; g <= block_.to; g += kStrip) meet_keys(strip_from(g));
      weigh();
      for (int64_t g = from; g <= block_.to; g += kStrip) add_values(strip_from(g));
    }
  }

 private:
  using Rows = attention::KeyRows<Element>;
  static constexpr int64_t kPanelWords = 2 * kGroup * kBlock + kGroup;
  static constexpr int64_t kGroupsAhead = 2;
  static constexpr bool kInPlace = F::kPair == 1;  // values can be read where they lie
  // Groups that are packed together. Two of pairs have as many bytes as one that is widened, and give the few rows of a
  // tile twice as many sums to go on with while one is added to.
  static constexpr int64_t kStrip = F::kPair;

  // [from, to], of one block.
  struct Groups {
    int64_t from, to;
    int64_t count() const { return to - from + 1; }
  };
  struct Sizes {
    explicit Sizes(int64_t d)
        : width(attention::round_up(d, kGroup)),
          key_step(attention::right_layout(0, kStrip * kGroup, false).step),
          value_step(attention::right_layout(0, width, false).step),
          keys(width * key_step),
          values(kStrip * kGroup / F::kPair * value_step) {}
    int64_t width;                 // of a row of sums
    int64_t key_step, value_step;  // words from one step of a product to the next
    int64_t keys, values;          // words of a strip
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
  // Of key head number h.
  template <class Use>
  HWY_INLINE void for_head(size_t h, const Groups& of, const Use& f) const {
    for_panels(h * each_, (h + 1) * each_, of, f);
  }

  Groups strip_from(int64_t g) const { return {g, std::min(block_.to, g + kStrip - 1)}; }
  static Groups both(const Groups& a, const Groups& b) {
    return {std::max(a.from, b.from), std::min(a.to, b.to)};
  }

  // Head h's share of what is read kGroupsAhead behind number `at` of the block's groups of keys and, behind them, of
  // values. Into L2: what L1 waits for from memory keeps it from what has come to L2 meanwhile.
  cpu::AskRows ahead_of(int64_t at, int64_t h) const {
    const int64_t n = block_.count(), later = at + kGroupsAhead;
    const bool next = later >= 2 * n;  // the next block's keys
    const int64_t g = next ? block_.to + 1 + later - 2 * n : block_.from + later % n;
    const Rows rows = memory_.rows(part_, g, few_.first);
    const int64_t begin = rows.rows * h / few_.heads, end = rows.rows * (h + 1) / few_.heads;
    if (begin == end) return {};
    constexpr int64_t kSize = sizeof(Element);
    const Element* first = (next || later < n ? rows.k : rows.v) + begin * memory_.stride();
    return {{.first = reinterpret_cast<const uint8_t*>(first),
             .rows = end - begin,
             .bytes = few_.heads * d_ * kSize,
             .stride = memory_.stride() * kSize},
            attention::kAskingPieces};
  }

  void meet_keys(const Groups& strip) {
    for (int64_t h = 0; h < few_.heads; ++h) {
      for (int64_t g = strip.from; g <= strip.to; ++g) {
        const Rows keys = memory_.rows(part_, g, few_.first + h);
        cpu::AskRows later = ahead_of(g - block_.from, h);
        Word* to = keys_ + (g - strip.from) * kGroup;
        attention::for_asking_pieces(later, d_, [&](int64_t c, int64_t n) {
          pack_columns<F>(keys.k + c, memory_.stride(), keys.rows, n,
                          to + c / F::kPair * sizes_.key_step, sizes_.key_step);
        });
      }
      for_head(static_cast<size_t>(h), strip, [&](const Seen& s) {
        const Groups of = both(strip, s.groups);
        multiply_lanes<F, 1, kGroup, Start::kZero>(
            Product{.a = s.panel.q,
                    .b = keys_ + (of.from - strip.from) * kGroup,
                    .c = s.scores + (of.from - s.groups.from) * kGroup,
                    .b_step = sizes_.key_step,
                    .c_row = kBlock,
                    .steps = words<F>(d_),
                    .rows = s.panel.slots,
                    .columns = of.count() * kGroup});
      });
    }
  }

  void weigh() {
    for_panels(0, few_.panels.size(), block_, [&](const Seen& s) {
      softmax_.weigh(part_, {&s.panel, s.groups.from, s.groups.to, s.scores, s.weights, s.rescale});
    });
  }

  void add_values(const Groups& strip) {
    for (int64_t h = 0; h < few_.heads; ++h) {
      if (strip.count() == 1 && add_in_place(strip.from, h)) continue;
      for (int64_t g = strip.from; g <= strip.to; ++g) pack_values(strip, g, h);
      add(strip, h, Values<Word>{values_, sizes_.value_step, 0, sizes_.width});
    }
  }

  // A group's values, if they are whole and need no packing; returns whether.
  HWY_INLINE bool add_in_place([[maybe_unused]] int64_t g, [[maybe_unused]] int64_t h) {
    if constexpr (kInPlace) {
      const Rows keys = memory_.rows(part_, g, few_.first + h);
      if (keys.rows < kGroup || d_ != sizes_.width) return false;
      cpu::AskRows later = ahead_of(block_.count() + g - block_.from, h);
      attention::for_asking_pieces(later, d_, [&](int64_t c, int64_t n) {
        add({g, g}, h, Values<Element>{keys.v, memory_.stride(), c, n});
      });
      return true;
    }
    return false;
  }

  HWY_INLINE void pack_values(const Groups& strip, int64_t g, int64_t h) {
    constexpr int64_t kRows = kGroup / attention::kAskingPieces;
    const Rows keys = memory_.rows(part_, g, few_.first + h);
    cpu::AskRows later = ahead_of(block_.count() + g - block_.from, h);
    Word* to = values_ + (g - strip.from) * kGroup / F::kPair * sizes_.value_step;
    for (int64_t r = 0; r < kGroup; r += kRows) {
      later.share();
      pack_rows<F>(keys.v + r * memory_.stride(), memory_.stride(), keys.rows - r, kRows, d_,
                   to + r / F::kPair * sizes_.value_step, {sizes_.value_step, kGroup});
    }
  }

  // Columns [begin, begin + columns) of values, words or what becomes them, `step` from one step to the next.
  template <class B>
  struct Values {
    const B* first;
    int64_t step, begin, columns;
  };

  template <class B>
  HWY_INLINE void add(const Groups& groups, int64_t h, const Values<B>& values) {
    constexpr int64_t kRow = kBlock / F::kPair;
    for_head(static_cast<size_t>(h), groups, [&](const Seen& s) {
      const Groups of = both(groups, s.groups);
      const int64_t skipped = (of.from - groups.from) * kGroup / F::kPair;
      const ProductOf<B> p = {.a = s.weights + (of.from - s.groups.from) * kGroup / F::kPair,
                              .b = values.first + skipped * values.step + values.begin,
                              .c = s.panel.o + values.begin,
                              .b_step = values.step,
                              .c_row = sizes_.width,
                              .steps = of.count() * kGroup / F::kPair,
                              .rows = s.panel.slots,
                              .columns = values.columns,
                              .scale = s.rescale};
      of.from == s.groups.from ? multiply_lanes<F, kRow, 1, Start::kScale>(p)
                               : multiply_lanes<F, kRow, 1, Start::kAdd>(p);
    });
  }

  const attention::KeyMemory<Element> memory_;
  const PanelSoftmax<F> softmax_;
  const attention::Part& part_;
  const FewPanels& few_;
  const size_t each_;  // panels of a key head
  const int64_t window_, d_;
  const Sizes sizes_;
  Word *const keys_, *const values_, *const panels_;
  Groups block_ = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
