// AttentionPanels: the rows of forward attention's panels, beside the products with keys and values.
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_packing.h"
#include "kernels/cpu/attention_products.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_PANELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_PANELS_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_PANELS_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_PANELS_H_
#endif

#include <cmath>
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
  Word* q;                    // [words, kSlots]; with tiles a left operand, or a right one (turned)
  float* o;                   // [kSlots, width]; with tiles sums
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
        sum_row_(F::kTiles ? kGroup : width_),
        sum_group_(F::kTiles ? kTileWords : kGroup) {}

  // Queries of the panel's slots; no key has been seen.
  HWY_NOINLINE void start(Panel& panel) const {
    const Element* q = a_.q.as<Element>();
    std::memset(panel.sum, 0, sizeof panel.sum);
    for (float& m : panel.maximum) m = -HUGE_VALF;
    if constexpr (F::kTiles) {
      for (int64_t s = 0; s < kGroup; ++s) {
        const bool used = s < panel.slots;
        pack_left_row(q + panel.slot_row[used ? s : 0] * d_, used ? d_ : 0, words_,
                      panel.q + s * kGroup);
      }
      return clear_sums(panel);
    }
    bool regular = panel.slots == kGroup;  // one head: a fixed distance between slots
    for (int64_t s = 1; s < panel.slots; ++s) {
      regular = regular && panel.slot_row[s] == panel.slot_row[0] + s * H_;
    }
    if (regular) {
      pack_columns<F>(q + panel.slot_row[0] * d_, H_ * d_, kGroup, d_, panel.q, kGroup);
      return clear_sums(panel);
    }
    auto* rows = reinterpret_cast<Element*>(panel.o);  // has no sums yet
    for (int64_t s = 0; s < panel.slots; ++s) {
      std::memcpy(rows + s * d_, q + panel.slot_row[s] * d_,
                  static_cast<size_t>(d_) * sizeof(Element));
    }
    pack_columns<F>(rows, d_, panel.slots, d_, panel.q, kGroup);
    clear_sums(panel);
  }

  // What the panel's sums are worth now.
  HWY_NOINLINE void scale_sums(const Panel& panel, const float* rescale) const {
    const DF df;
    for (int64_t s = 0; s < panel.slots; ++s) {
      if (rescale[s] == 1) continue;
      const VF scale = hn::Set(df, rescale[s]);
      for (int64_t c = 0; c < width_; c += kLanes) {
        float* sum = panel.o + s * sum_row_ + sum_column(c);
        hn::StoreU(hn::Mul(hn::LoadU(df, sum), scale), df, sum);
      }
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
      const float norm = blind ? 0 : 1 / total[s], *from = panel.o + s * sum_row_;
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
  static constexpr int64_t kGroup = attention::kGroup;

  void clear_sums(Panel& panel) const {
    std::memset(panel.o, 0, static_cast<size_t>(kGroup * width_) * sizeof(float));
  }

  int64_t sum_column(int64_t c) const { return c / kGroup * sum_group_ + c % kGroup; }

  template <class Output>
  void store_row(const float* from, float norm, Output* to) const {
    const DF df;
    for (int64_t c = 0; c < d_; c += kLanes) {
      const VF value = hn::Mul(hn::LoadU(df, from + sum_column(c)), hn::Set(df, norm));
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
  const int64_t sum_row_,
      sum_group_;  // from a slot's sums to the next slot's; from a group of columns to the next
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
