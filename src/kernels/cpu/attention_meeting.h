// AttentionMeeting: what is packed of rows and keys that meet in the backward, and where their weights lie.
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_products.h"
#include "kernels/cpu/attention_tasks.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_MEETING_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_MEETING_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_MEETING_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_MEETING_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

// Where what a meeting computes lies in memory.
template <class F>
struct Meeting : ScoreLayout<F, attention::meeting_side(F::kTiles)> {
  static constexpr int64_t kGroup = attention::kGroup;
  static constexpr int64_t kSide = attention::meeting_side(F::kTiles), kSideGroups = kSide / kGroup,
                           kSideWords = kSide / F::kPair;
  // Groups of rows, and of keys, that are computed together: with tiles those of a dot, of which each is whole. Weights
  // of what a row does not see are zero.
  static constexpr int64_t kUnit = F::kTiles ? 2 : 1;
  // P and dS by pairs of rows: with tiles a right operand.
  static constexpr attention::RightLayout kWeights =
      F::kTiles ? attention::right_layout(kSideWords, kSide, true)
                : attention::RightLayout{kSide, kGroup};

  static constexpr int64_t in_whole_units(int64_t groups) {
    return attention::round_up(groups, kUnit);
  }
};

// Groups of keys from `group` on, up to kSideGroups.
struct KeyPack {
  int64_t group, groups;
  Word* k_columns;  // right operand of `words` steps
  Word* v_columns;  // the same
  Word* k_rows;     // right operand of keys
  float *dk, *dv;   // [side, width]; with tiles sums of [width, side]
};

// Groups of rows of one head, likewise.
template <class F>
struct RowPack {
  static constexpr int64_t kSide = Meeting<F>::kSide;

  int64_t group, groups, head;
  Word* q_columns;   // [groups, words, kGroup]; with tiles a left operand of `words` steps
  Word* do_columns;  // the same
  Word* q_rows;      // right operand of rows; with tiles its columns as rows of a left one
  Word* do_rows;     // the same
  float* dq;         // [side, width]; with tiles sums
  float lse[kSide];  // in units of log 2; of a row that is not there +inf: its weights are zero
  float delta[kSide];
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
