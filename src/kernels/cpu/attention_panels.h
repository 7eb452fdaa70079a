// AttentionPanels: the rows of forward attention's panels, beside the products with keys and values.
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_packing.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_PANELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_PANELS_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_PANELS_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_PANELS_H_
#endif

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

// Sixteen slots, each one row of one head; all rows in the same group of positions.
struct Panel {
  static constexpr int64_t kSlots = attention::kGroup;
  int64_t group;
  int64_t slots;
  int64_t slot_row[kSlots];   // row * H + head: which row of q, o and lse
  int64_t slot_lane[kSlots];  // position in the group
  Word* q;                    // [words, kSlots]; with tiles [kSlots, words]
  float* o;                   // [kSlots, width]
  float maximum[kSlots];      // of scores in units of log 2
  float sum[kSlots][kSlots];  // by position of the key modulo kGroup
};

// Over parts of the keys, a row may see none, and o is f32. Not one more parameter of the template: only stores differ.
template <class F>
class PanelRows {
 public:
  using Element = typename F::Element;

  PanelRows(const AttentionForward& a, bool over_parts)
      : a_(a),
        over_parts_(over_parts),
        H_(a.q.dims[1]),
        d_(a.q.dims[2]),
        words_(words<F>(d_)),
        width_(attention::round_up(d_, kGroup)),
        log2_scale_(a.scale * 0x1.715476p0f) {}  // log2(e)

  // Queries of the panel's slots; no key has been seen.
  HWY_NOINLINE void start(Panel& panel) const {
    const Element* q = a_.q.as<Element>();
    std::memset(panel.sum, 0, sizeof panel.sum);
    std::memset(panel.o, 0, static_cast<size_t>(kGroup * width_) * sizeof(float));
    for (float& m : panel.maximum) m = -HUGE_VALF;
    if constexpr (F::kTiles) {
      for (int64_t s = 0; s < kGroup; ++s) {
        Word* row = panel.q + s * words_;
        const auto bytes = static_cast<size_t>(s < panel.slots ? d_ : 0) * sizeof(Element);
        std::memset(row, 0, static_cast<size_t>(words_) * sizeof(Word));
        std::memcpy(row, q + panel.slot_row[s < panel.slots ? s : 0] * d_, bytes);
      }
      return;
    }
    bool regular = panel.slots == kGroup;  // one head: a fixed distance between slots
    for (int64_t s = 1; s < panel.slots; ++s) {
      regular = regular && panel.slot_row[s] == panel.slot_row[0] + s * H_;
    }
    if (regular) {
      pack_columns<F>(q + panel.slot_row[0] * d_, H_ * d_, kGroup, d_, panel.q, kGroup);
      return;
    }
    for (int64_t s = 0; s < kGroup; ++s) {
      for (int64_t w = 0; w < words_; ++w) {
        const Element* p = q + panel.slot_row[s < panel.slots ? s : 0] * d_ + w * F::kPair;
        panel.q[w * kGroup + s] = s < panel.slots ? load_word(F(), p, w * F::kPair, d_) : 0;
      }
    }
  }

  // Scores, [slots][kBlock], of groups [from, to]: of keys that a row does not see they become -inf. Only the row's own
  // group, the lower edge of a window and the last keys of a part hold any.
  HWY_NOINLINE void mask(const attention::Part& part, const Panel& panel, float* scores,
                         int64_t from, int64_t to) const {
    const DF df;
    for (int64_t g = from; g <= to; ++g) {
      const int64_t ahead = (panel.group - g) * kGroup;
      const bool edge = a_.window > 0 && ahead + kGroup > a_.window;
      const int64_t here = part.keys - g * kGroup;
      if (g != panel.group && !edge && here >= kGroup) continue;
      for (int64_t s = 0; s < panel.slots; ++s) {
        const int64_t lane = ahead + panel.slot_lane[s], hi = std::min(lane, here - 1),
                      lo = edge ? lane - a_.window + 1 : 0;
        float* score = scores + s * kBlock + (g - from) * kGroup;
        for (int v = 0; v < kGroupVectors; ++v) {
          const VF masked = hn::IfThenElse(
              visible(df, v, lo, hi), hn::LoadU(df, score + v * kLanes), hn::Set(df, -HUGE_VALF));
          hn::StoreU(masked, df, score + v * kLanes);
        }
      }
    }
  }

  // Scores become weights exp(score - maximum), [slots][kBlock / kPair]; rescale: what earlier sums are worth now.
  HWY_NOINLINE void weigh(Panel& panel, const float* scores, int64_t groups, Word* weights,
                          float* rescale) const {
    const DF df;
    const VF scale = hn::Set(df, log2_scale_);
    alignas(64) float largest[kGroup] = {};
    for (int64_t s = 0; s < panel.slots; ++s) {
      const float* score = scores + s * kBlock;
      VF most = hn::LoadU(df, score);
      for (int64_t j = kLanes; j < groups * kGroup; j += kLanes) {
        most = hn::Max(most, hn::LoadU(df, score + j));
      }
      largest[s] = hn::GetLane(hn::MaxOfLanes(df, most));
    }
    for (int64_t s = 0; s < kGroup; s += kLanes) {
      const VF before = hn::LoadU(df, panel.maximum + s);
      const VF now = hn::Max(before, hn::Mul(hn::LoadU(df, largest + s), scale));
      hn::StoreU(now, df, panel.maximum + s);
      // A row that has seen no key yet (a window's edge) subtracts 0 in place of -inf.
      const VF shift = hn::IfThenZeroElse(hn::Eq(now, hn::Set(df, -HUGE_VALF)), now);
      hn::StoreU(shift, df, largest + s);
      hn::StoreU(exp2_f(df, hn::Sub(before, shift)), df, rescale + s);
    }
    for (int64_t s = 0; s < panel.slots; ++s) {
      const VF shift = hn::Set(df, largest[s]), factor = hn::Set(df, rescale[s]);
      VF sum[kGroupVectors];
      for (int v = 0; v < kGroupVectors; ++v) {
        sum[v] = hn::Mul(hn::LoadU(df, panel.sum[s] + v * kLanes), factor);
      }
      const float* score = scores + s * kBlock;
      Word* weight = weights + s * (kBlock / F::kPair);
      for (int64_t g = 0; g < groups; ++g) {
        for (int v = 0; v < kGroupVectors; ++v) {
          const int64_t j = g * kGroup + v * kLanes;
          const VF p = exp2_f(df, hn::MulSub(hn::LoadU(df, score + j), scale, shift));
          sum[v] = hn::Add(sum[v], p);
          store_left(F(), p, weight + j / F::kPair);
        }
      }
      for (int v = 0; v < kGroupVectors; ++v) hn::StoreU(sum[v], df, panel.sum[s] + v * kLanes);
    }
  }

  // Sums become outputs.
  HWY_NOINLINE void finish(const Panel& panel) const {
    const DF df;
    alignas(64) float total[kGroup] = {};
    for (int64_t s = 0; s < kGroup; ++s) {
      VF sum = hn::LoadU(df, panel.sum[s]);
      for (int v = 1; v < kGroupVectors; ++v) {
        sum = hn::Add(sum, hn::LoadU(df, panel.sum[s] + v * kLanes));
      }
      total[s] = s < panel.slots ? hn::GetLane(hn::SumOfLanes(df, sum)) : 1.0f;
    }
    alignas(64) float lse[kGroup];
    for (int64_t s = 0; s < kGroup; s += kLanes) {
      const VF both =
          hn::Add(hn::Log2(df, hn::LoadU(df, total + s)), hn::LoadU(df, panel.maximum + s));
      hn::StoreU(hn::Mul(both, hn::Set(df, 0x1.62e430p-1f)), df, lse + s);  // log(2)
    }
    for (int64_t s = 0; s < panel.slots; ++s) {
      const bool blind = over_parts_ && total[s] == 0;  // saw no key
      if (blind) lse[s] = -HUGE_VALF;
      const float norm = blind ? 0 : 1 / total[s], *from = panel.o + s * width_;
      const int64_t to = panel.slot_row[s] * d_;
      if (over_parts_) {
        store_row(from, norm, a_.o.as<float>() + to);
      } else {
        store_row(from, norm, a_.o.as<Element>() + to);
      }
      a_.lse.as<float>()[panel.slot_row[s]] = lse[s];
    }
  }

 private:
  static constexpr int64_t kGroup = attention::kGroup, kBlock = attention::kBlock;

  template <class Output>
  void store_row(const float* from, float norm, Output* to) const {
    const DF df;
    for (int64_t c = 0; c < d_; c += kLanes) {
      const VF value = hn::Mul(hn::LoadU(df, from + c), hn::Set(df, norm));
      if (c + kLanes <= d_) {
        store(value, df, to + c);
      } else {
        store_n(value, df, to + c, static_cast<size_t>(d_ - c));
      }
    }
  }

  const AttentionForward& a_;
  const bool over_parts_;
  const int64_t H_, d_, words_, width_;
  const float log2_scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
