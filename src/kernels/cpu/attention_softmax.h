// AttentionSoftmax: scores of a panel with a block of keys become weights.
//
// The maximum goes along from block to block, and earlier sums are scaled when it grows: online softmax.
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_panels.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_SOFTMAX_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_SOFTMAX_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_SOFTMAX_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_SOFTMAX_H_
#endif

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

// Groups [from, to] of a block of keys, seen by a panel.
struct PanelBlock {
  Panel* panel;
  int64_t from, to;
  float* scores;   // group `from` first
  Word* weights;   // likewise
  float* rescale;  // [kGroup] what earlier sums of a slot are worth now
};

template <class F>
class PanelSoftmax {
 public:
  static constexpr int64_t kGroup = attention::kGroup;
  using Layout = ScoreLayout<F, attention::kBlock>;

  explicit PanelSoftmax(const AttentionForward& a)
      : window_(a.window), log2_scale_(a.scale * 0x1.715476p0f) {}  // log2(e)

  void weigh(const attention::Part& part, const PanelBlock& block) const {
    begin(part, block);
    for (int64_t s = 0; s < block.panel->slots; ++s) weigh_slot(block, s);
  }

 private:
  // Finds the maxima, behind which slots can be weighed.
  HWY_NOINLINE void begin(const attention::Part& part, const PanelBlock& block) const {
    mask(part, block);
    const DF df;
    const VF scale = hn::Set(df, log2_scale_);
    Panel& panel = *block.panel;
    alignas(64) float largest[kGroup] = {};
    for (int64_t s = 0; s < panel.slots; ++s) {
      const float* score = block.scores + s * Layout::kScoreRow;
      VF most = hn::LoadU(df, score);
      for (int64_t g = 0; g <= block.to - block.from; ++g) {
        for (int v = 0; v < kGroupVectors; ++v) {
          most = hn::Max(most, hn::LoadU(df, score + g * Layout::kScoreGroup + v * kLanes));
        }
      }
      largest[s] = hn::GetLane(hn::MaxOfLanes(df, most));
    }
    for (int64_t s = 0; s < kGroup; s += kLanes) {
      const VF before = hn::LoadU(df, panel.maximum + s);
      const VF now = hn::Max(before, hn::Mul(hn::LoadU(df, largest + s), scale));
      hn::StoreU(now, df, panel.maximum + s);
      hn::StoreU(exp2_f(df, hn::Sub(before, shift(now))), df, block.rescale + s);
    }
  }

  // Scores of slot s become weights exp(score - maximum).
  HWY_NOINLINE void weigh_slot(const PanelBlock& block, int64_t s) const {
    const DF df;
    Panel& panel = *block.panel;
    const VF scale = hn::Set(df, log2_scale_), most = shift(hn::Set(df, panel.maximum[s])),
             factor = hn::Set(df, block.rescale[s]);
    VF sum[kGroupVectors];
    for (int v = 0; v < kGroupVectors; ++v) {
      sum[v] = hn::Mul(hn::LoadU(df, panel.sum[s] + v * kLanes), factor);
    }
    const int64_t groups = block.to - block.from + 1;
    for (int64_t g = 0; g < groups; ++g) {
      const float* score = block.scores + s * Layout::kScoreRow + g * Layout::kScoreGroup;
      Word* weight = block.weights + Layout::left_at(s, g);
      for (int v = 0; v < kGroupVectors; ++v) {
        const int64_t j = v * kLanes;
        const VF p = exp2_f(df, hn::MulSub(hn::LoadU(df, score + j), scale, most));
        sum[v] = hn::Add(sum[v], p);
        store_left(F(), p, weight + j / F::kPair);
      }
    }
    if (F::kTiles && groups % 2 != 0) {  // the other half of a dot
      for (int v = 0; v < kGroupVectors; ++v) {
        store_left(F(), hn::Zero(df),
                   block.weights + Layout::left_at(s, groups) + v * kLanes / F::kPair);
      }
    }
    for (int v = 0; v < kGroupVectors; ++v) hn::StoreU(sum[v], df, panel.sum[s] + v * kLanes);
  }

  // A row that has seen no key yet (a window's edge) subtracts 0 in place of -inf.
  static HWY_INLINE VF shift(VF maximum) {
    return hn::IfThenZeroElse(hn::Eq(maximum, hn::Set(DF(), -HUGE_VALF)), maximum);
  }

  // Scores of keys that a row does not see become -inf. Only the row's own group, the lower edge of a window and the
  // last keys of a part hold any.
  HWY_INLINE void mask(const attention::Part& part, const PanelBlock& block) const {
    const DF df;
    const Panel& panel = *block.panel;
    for (int64_t g = block.from; g <= block.to; ++g) {
      const int64_t ahead = (panel.group - g) * kGroup;
      const bool edge = window_ > 0 && ahead + kGroup > window_;
      const int64_t here = part.keys - g * kGroup;
      if (g != panel.group && !edge && here >= kGroup) continue;
      for (int64_t s = 0; s < panel.slots; ++s) {
        const int64_t lane = ahead + panel.slot_lane[s], hi = std::min(lane, here - 1),
                      lo = edge ? lane - window_ + 1 : 0;
        float* score =
            block.scores + s * Layout::kScoreRow + (g - block.from) * Layout::kScoreGroup;
        for (int v = 0; v < kGroupVectors; ++v) {
          const VF masked = hn::IfThenElse(
              visible(df, v, lo, hi), hn::LoadU(df, score + v * kLanes), hn::Set(df, -HUGE_VALF));
          hn::StoreU(masked, df, score + v * kLanes);
        }
      }
    }
  }

  const int64_t window_;
  const float log2_scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
