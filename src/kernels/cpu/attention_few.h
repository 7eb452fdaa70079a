// AttentionFew: forward attention of few rows with vectors: decoding, which waits for memory.
//
// A block of keys goes by a strip of groups at a time, all key heads of a strip in turn; then softmax; then its values
// likewise. That is about their order in memory, where the heads of a position lie side by side. What is packed of a
// strip stays in L1, and values that need no packing are read where they lie. Sums are those of whole blocks.
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/attention_strip.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_FEW_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_FEW_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_FEW_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_FEW_H_
#endif

#include <span>

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

// Panels of key heads, as many of each, head by head.
struct FewPanels {
  std::span<Panel> panels;
  KeyHeads heads;
};

template <class F>
class FewRows {
 public:
  using Element = typename F::Element;
  static constexpr int64_t kGroup = attention::kGroup, kBlock = attention::kBlock;

  // A strip; of each panel what it has in a block.
  static int64_t scratch_words(int64_t d, int64_t panels) {
    return KeyStrip<F>::scratch_words(d) + panels * kPanelWords;
  }

  FewRows(const AttentionForward& a, const attention::Part& part, const FewPanels& few,
          Word* scratch)
      : softmax_(a),
        part_(part),
        few_(few),
        each_(static_cast<int64_t>(few.panels.size()) / few.heads.count),
        window_(a.window),
        d_(a.q.dims[2]),
        width_(attention::round_up(d_, kGroup)),
        strip_(a, part, few.heads, scratch),
        panels_(scratch + KeyStrip<F>::scratch_words(d_)) {}

  // Adds all keys that the panels see.
  HWY_NOINLINE void run() {
    const int64_t first = attention::first_key_group(few_.panels.front().group * kGroup, window_),
                  last = std::min((part_.keys - 1) / kGroup, few_.panels.back().group);
    for (int64_t from = first; from <= last; from = block_.to + 1) {
      block_ = {from, std::min(last, from | (attention::kBlockGroups - 1))};
      for_strips([&](const GroupRange& strip, int64_t h) { meet_keys(strip, h); });
      for_panels({0, few_.heads.count}, block_, [&](const Seen& s) {
        softmax_.weigh(part_,
                       {&s.panel, s.groups.from, s.groups.to, s.scores, s.weights, s.rescale});
      });
      for_strips([&](const GroupRange& strip, int64_t h) { add_values(strip, h); });
    }
  }

 private:
  static constexpr int64_t kPanelWords = 2 * kGroup * kBlock + kGroup;
  static constexpr bool kInPlace = F::kPair == 1;  // values can be read where they lie

  // Of the block, by a panel: scores and weights begin with those of its first group.
  struct Seen {
    Panel& panel;
    GroupRange groups;
    float *scores, *weights, *rescale;
  };

  // Calls f(strip, h) for all heads of each strip of the block.
  template <class Use>
  HWY_INLINE void for_strips(const Use& f) const {
    for (int64_t g = block_.from; g <= block_.to; g += KeyStrip<F>::kGroups) {
      const GroupRange strip = {g, std::min(block_.to, g + KeyStrip<F>::kGroups - 1)};
      for (int64_t h = 0; h < few_.heads.count; ++h) f(strip, h);
    }
  }

  // Calls f(seen) for panels of heads [first, first + count) that see any of the groups.
  template <class Use>
  HWY_INLINE void for_panels(const KeyHeads& heads, const GroupRange& of, const Use& f) const {
    for (int64_t i = heads.first * each_; i < (heads.first + heads.count) * each_; ++i) {
      Panel& panel = few_.panels[static_cast<size_t>(i)];
      const int64_t first = attention::first_key_group(panel.group * kGroup, window_);
      const GroupRange groups = both(block_, {first, panel.group});
      if (groups.from > of.to || groups.to < of.from) continue;
      float* scores = panels_ + i * kPanelWords;
      f(Seen{panel, groups, scores, scores + kGroup * kBlock, scores + 2 * kGroup * kBlock});
    }
  }

  HWY_INLINE void meet_keys(const GroupRange& strip, int64_t h) {
    strip_.pack_keys(block_, strip, h);
    for_panels({h, 1}, strip, [&](const Seen& s) {
      const GroupRange of = both(strip, s.groups);
      multiply_lanes<F, 1, kGroup, Start::kZero>(
          Product{.a = s.panel.q,
                  .b = strip_.keys(of.from - strip.from),
                  .c = s.scores + (of.from - s.groups.from) * kGroup,
                  .b_step = KeyStrip<F>::key_step(),
                  .c_row = kBlock,
                  .steps = words<F>(d_),
                  .rows = s.panel.slots,
                  .columns = of.count() * kGroup});
    });
  }

  HWY_INLINE void add_values(const GroupRange& strip, int64_t h) {
    if constexpr (kInPlace) {
      static_assert(KeyStrip<F>::kGroups == 1);
      const attention::KeyRows<Element> rows = strip_.rows_of(strip.from, h);
      if (rows.rows == kGroup && d_ == width_) {
        cpu::AskRows later = strip_.ahead_of_values(block_, strip.from, h);
        attention::for_asking_pieces(later, d_, [&](int64_t c, int64_t n) {
          add(strip, h, Values<Element>{rows.v, strip_.stride(), c, n});
        });
        return;
      }
    }
    strip_.pack_values(block_, strip, h);
    add(strip, h, Values<Word>{strip_.values(), strip_.value_step(), 0, width_});
  }

  // Columns [begin, begin + columns) of values, words or what becomes them, `step` from one step to the next.
  template <class B>
  struct Values {
    const B* first;
    int64_t step, begin, columns;
  };

  template <class B>
  HWY_INLINE void add(const GroupRange& groups, int64_t h, const Values<B>& values) {
    constexpr int64_t kRow = kBlock / F::kPair;
    for_panels({h, 1}, groups, [&](const Seen& s) {
      const GroupRange of = both(groups, s.groups);
      const int64_t skipped = (of.from - groups.from) * kGroup / F::kPair;
      const ProductOf<B> p = {.a = s.weights + (of.from - s.groups.from) * kGroup / F::kPair,
                              .b = values.first + skipped * values.step + values.begin,
                              .c = s.panel.o + values.begin,
                              .b_step = values.step,
                              .c_row = width_,
                              .steps = of.count() * kGroup / F::kPair,
                              .rows = s.panel.slots,
                              .columns = values.columns,
                              .scale = s.rescale};
      of.from == s.groups.from ? multiply_lanes<F, kRow, 1, Start::kScale>(p)
                               : multiply_lanes<F, kRow, 1, Start::kAdd>(p);
    });
  }

  const PanelSoftmax<F> softmax_;
  const attention::Part& part_;
  const FewPanels& few_;
  const int64_t each_;  // panels of a key head
  const int64_t window_, d_, width_;
  KeyStrip<F> strip_;
  Word* const panels_;
  GroupRange block_ = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
