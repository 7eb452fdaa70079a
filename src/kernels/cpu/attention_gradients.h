// AttentionGradients: sums of the backward become gradients.
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_packs.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_GRADIENTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_GRADIENTS_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_GRADIENTS_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_GRADIENTS_H_
#endif

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

// over_parts: of the keys; gradients are f32 and added to. Not one more parameter of the template: only stores differ.
template <class F>
class BackwardGradients {
 public:
  using Element = typename F::Element;

  BackwardGradients(const AttentionBackward& a, int64_t key_head, bool over_parts)
      : a_(a),
        key_head_(key_head),
        over_parts_(over_parts),
        H_(a.q.dims[1]),
        K_(a.k.dims[1]),
        d_(a.q.dims[2]),
        width_(attention::round_up(d_, kGroup)) {}

  HWY_NOINLINE void store_rows(const attention::Share& part, const RowPack<F>& pack) const {
    const Segment& segment = *part.of.segment;
    const int64_t begin = pack.group * kGroup,
                  end = std::min(begin + pack.groups * kGroup, segment.rows);
    for (int64_t i = begin; i < end; ++i) {
      store_row(sums_of_row(pack.dq, i - begin), a_.scale, a_.dq,
                ((segment.row_begin + i) * H_ + pack.head) * d_);
    }
  }

  // Only keys of the share: of a group across its border, another task stores the others.
  HWY_NOINLINE void store_keys(const attention::Share& part, const KeyPack& pack) const {
    const int64_t begin = pack.group * kGroup,
                  end = std::min(begin + pack.groups * kGroup, part.end);
    turn(pack.dk, pack.groups), turn(pack.dv, pack.groups);
    for (int64_t j = std::max(begin, part.begin); j < end; ++j) {
      const int64_t to = ((part.of.segment->key_begin + j) * K_ + key_head_) * d_;
      store_row(sums_of_key(pack.dk, j - begin), a_.scale, a_.dk, to);
      store_row(sums_of_key(pack.dv, j - begin), 1, a_.dv, to);
    }
  }

 private:
  static constexpr int64_t kGroup = attention::kGroup;

  // Sums of a row or key: from each group of columns to the next `group` words.
  struct RowSums {
    const float* at;
    int64_t group;
  };
  RowSums sums_of_row(const float* dq, int64_t r) const {
    if (!F::kTiles) return {dq + r * width_, kGroup};
    return {dq + r / kGroup * kGroup * width_ + r % kGroup * kGroup, kTileWords};
  }
  RowSums sums_of_key(const float* sums, int64_t j) const {  // turned
    if (!F::kTiles) return {sums + j * width_, kGroup};
    return {sums + j / kGroup * kTileWords + j % kGroup * kGroup, kGroup * Meeting<F>::kSide};
  }

  // With tiles, sums of columns become sums of keys, of so many groups of keys.
  void turn(float* sums, int64_t groups) const {
    if (!F::kTiles) return;
    alignas(64) float turned[kTileWords];
    for (int64_t c = 0; c < width_; c += kGroup, sums += kGroup * Meeting<F>::kSide) {
      for (float* tile = sums; tile < sums + groups * kTileWords; tile += kTileWords) {
        pack_columns<WideF32>(tile, kGroup, kGroup, kGroup, turned, kGroup);
        std::memcpy(tile, turned, sizeof turned);
      }
    }
  }

  // scale * from, to d elements of `gradient` from `at` on.
  void store_row(const RowSums& from, float scale, const Tensor& gradient, int64_t at) const {
    over_parts_ ? store_row_as<true>(from, scale, gradient.as<float>() + at)
                : store_row_as<false>(from, scale, gradient.as<Element>() + at);
  }

  template <bool kAdd, class Gradient>
  void store_row_as(const RowSums& from, float scale, Gradient* to) const {
    const DF df;
    for (int64_t c = 0; c < d_; c += kLanes) {
      const bool whole = c + kLanes <= d_;
      const auto rest = static_cast<size_t>(d_ - c);
      const float* at = from.at + c / kGroup * from.group + c % kGroup;
      VF value = hn::Mul(hn::LoadU(df, at), hn::Set(df, scale));
      if constexpr (kAdd) {
        value = hn::Add(value, whole ? load(df, to + c) : load_n(df, to + c, rest));
      }
      whole ? store(value, df, to + c) : store_n(value, df, to + c, rest);
    }
  }

  const AttentionBackward& a_;
  const int64_t key_head_;
  const bool over_parts_;
  const int64_t H_, K_, d_, width_;
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
