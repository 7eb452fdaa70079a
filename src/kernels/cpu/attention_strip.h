// AttentionStrip: keys and values of a few groups as right operands, and those behind them asked for meanwhile.
//
//   keys     word c of step s (a word of the width) at [s * key_step + c], c: a position of the strip
//   values   word c of step s (one position, or two) at [s * value_step + c], c: a column
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_packing.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_STRIP_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_STRIP_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_STRIP_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_STRIP_H_
#endif

#include "kernels/cpu/attention_keys.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

// Groups [from, to] of keys.
struct GroupRange {
  int64_t from, to;
  int64_t count() const { return to - from + 1; }
};
inline GroupRange both(const GroupRange& a, const GroupRange& b) {
  return {std::max(a.from, b.from), std::min(a.to, b.to)};
}

// Key heads [first, first + count), which take turns.
struct KeyHeads {
  int64_t first, count;
};

template <class F>
class KeyStrip {
 public:
  using Element = typename F::Element;
  static constexpr int64_t kGroup = attention::kGroup;
  // Groups that are packed together. Two of pairs have as many bytes as one that is widened, and give the few rows of a
  // tile twice as many sums to go on with while one is added to.
  static constexpr int64_t kGroups = F::kPair;

  static int64_t scratch_words(int64_t d) {
    return words<F>(d) * key_step() + kGroups * kGroup / F::kPair * value_step(d);
  }
  KeyStrip(const AttentionForward& a, const attention::Part& part, const KeyHeads& heads,
           Word* scratch)
      : memory_(a),
        part_(part),
        heads_(heads),
        d_(a.k.dims[2]),
        value_step_(value_step(d_)),
        keys_(scratch),
        values_(scratch + words<F>(d_) * key_step()) {}

  static constexpr int64_t key_step() {
    return attention::right_layout(0, kGroups * kGroup, false).step;
  }
  int64_t value_step() const { return value_step_; }
  const Word* keys(int64_t group) const { return keys_ + group * kGroup; }  // of the strip
  const Word* values() const { return values_; }

  // Of head number h. `block`: the groups whose keys are all gone through before their values.
  void pack_keys(const GroupRange& block, const GroupRange& strip, int64_t h) {
    for (int64_t g = strip.from; g <= strip.to; ++g) {
      const attention::KeyRows<Element> rows = rows_of(g, h);
      cpu::AskRows later = ahead_of(block, g - block.from, h);
      Word* to = keys_ + (g - strip.from) * kGroup;
      attention::for_asking_pieces(later, d_, [&](int64_t c, int64_t n) {
        pack_columns<F>(rows.k + c, stride(), rows.rows, n, to + c / F::kPair * key_step(),
                        key_step());
      });
    }
  }

  void pack_values(const GroupRange& block, const GroupRange& strip, int64_t h) {
    constexpr int64_t kRows = kGroup / attention::kAskingPieces;
    for (int64_t g = strip.from; g <= strip.to; ++g) {
      const attention::KeyRows<Element> rows = rows_of(g, h);
      cpu::AskRows later = ahead_of_values(block, g, h);
      Word* to = values_ + (g - strip.from) * kGroup / F::kPair * value_step_;
      for (int64_t r = 0; r < kGroup; r += kRows) {
        later.share();
        pack_rows<F>(rows.v + r * stride(), stride(), rows.rows - r, kRows, d_,
                     to + r / F::kPair * value_step_, {value_step_, kGroup});
      }
    }
  }

  int64_t stride() const { return memory_.stride(); }
  attention::KeyRows<Element> rows_of(int64_t group, int64_t h) const {
    return memory_.rows(part_, group, heads_.first + h);
  }
  // What pack_values asks for meanwhile.
  cpu::AskRows ahead_of_values(const GroupRange& block, int64_t group, int64_t h) const {
    return ahead_of(block, block.count() + group - block.from, h);
  }

 private:
  static constexpr int64_t kGroupsAhead = 2;

  static int64_t value_step(int64_t d) {
    return attention::right_layout(0, attention::round_up(d, kGroup), false).step;
  }

  // Head h's share of what is read kGroupsAhead behind number `at` of the block's groups of keys and, behind them, of
  // values. Into L2: what L1 waits for from memory keeps it from what has come to L2 meanwhile.
  cpu::AskRows ahead_of(const GroupRange& block, int64_t at, int64_t h) const {
    const int64_t n = block.count(), later = at + kGroupsAhead;
    const bool next = later >= 2 * n;  // the next block's keys
    const int64_t g = next ? block.to + 1 + later - 2 * n : block.from + later % n;
    const attention::KeyRows<Element> rows = rows_of(g, 0);
    const int64_t begin = rows.rows * h / heads_.count, end = rows.rows * (h + 1) / heads_.count;
    if (begin == end) return {};
    constexpr int64_t kSize = sizeof(Element);
    const Element* first = (next || later < n ? rows.k : rows.v) + begin * stride();
    return {{.first = reinterpret_cast<const uint8_t*>(first),
             .rows = end - begin,
             .bytes = heads_.count * d_ * kSize,
             .stride = stride() * kSize},
            attention::kAskingPieces};
  }

  const attention::KeyMemory<Element> memory_;
  const attention::Part& part_;
  const KeyHeads heads_;
  const int64_t d_, value_step_;
  Word *const keys_, *const values_;
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
