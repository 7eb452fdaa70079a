// AttentionPacks: fills the packs of rows and keys that meet in the backward.
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
#include "kernels/cpu/attention_meeting.h"
#include "kernels/cpu/attention_packing.h"

#if defined(MORAINE_KERNELS_CPU_ATTENTION_PACKS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_PACKS_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_PACKS_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_PACKS_H_
#endif

#include <cmath>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

// Takes packs from a worker's scratch and fills them.
template <class F>
class BackwardPacks {
 public:
  using Element = typename F::Element;
  using Rows = RowPack<F>;
  using Share = attention::Share;
  using Layout = Meeting<F>;

  // Groups [group, group + groups) of rows of a head.
  struct RowsOf {
    int64_t head, group, groups;
  };

  BackwardPacks(const AttentionBackward& a, int64_t key_head, attention::Carver& carver)
      : a_(a),
        key_head_(key_head),
        H_(a.q.dims[1]),
        K_(a.k.dims[1]),
        d_(a.q.dims[2]),
        sizes_(d_, F::kPair, F::kTiles),
        carver_(carver) {}

  const attention::BackwardSizes& sizes() const { return sizes_; }
  int64_t key_packs_left() const { return carver_.left() / attention::key_pack_words(sizes_); }
  int64_t row_packs_left() const {
    return carver_.left() / (struct_words(sizeof(Rows)) + sizes_.rows(false));
  }

  KeyPack* take_key_packs(int64_t n, bool gradients) {
    static_assert(struct_words(sizeof(KeyPack)) == kGroup);  // key_pack_words
    auto* packs = reinterpret_cast<KeyPack*>(carver_.take(n * struct_words(sizeof(KeyPack))));
    for (int64_t i = 0; i < n; ++i) {
      KeyPack& p = packs[i];
      p.k_columns = carver_.take(sizes_.key_columns);
      p.v_columns = carver_.take(sizes_.key_columns);
      p.k_rows = carver_.take(sizes_.by_rows);
      p.dk = gradients ? carver_.take(sizes_.sums) : nullptr;
      p.dv = gradients ? carver_.take(sizes_.sums) : nullptr;
    }
    return packs;
  }
  Rows* take_row_packs(int64_t n, bool as_rows) {
    auto* packs = reinterpret_cast<Rows*>(carver_.take(n * struct_words(sizeof(Rows))));
    for (int64_t i = 0; i < n; ++i) {
      Rows& p = packs[i];
      p.q_columns = carver_.take(sizes_.row_columns);
      p.do_columns = carver_.take(sizes_.row_columns);
      p.q_rows = as_rows ? carver_.take(sizes_.by_rows) : nullptr;
      p.do_rows = as_rows ? carver_.take(sizes_.by_rows) : nullptr;
      p.dq = carver_.take(sizes_.sums);
    }
    return packs;
  }

  HWY_NOINLINE void pack_keys(const Share& part, int64_t group, int64_t groups, KeyPack& pack,
                              bool gradients) {
    const Element *k = a_.k.as<Element>(), *v = a_.v.as<Element>();
    pack.group = group;
    pack.groups = groups;
    const attention::RightLayout& columns = sizes_.columns_layout;
    for (int64_t i = 0; i < Layout::in_whole_units(groups); ++i) {
      const int64_t first = (group + i) * kGroup,
                    rows = i < groups ? std::min(kGroup, part.of.keys - first) : 0,
                    offset = ((part.of.segment->key_begin + first) * K_ + key_head_) * d_;
      pack_columns<F>(k + offset, K_ * d_, rows, d_, pack.k_columns + i * columns.group,
                      columns.step);
      pack_columns<F>(v + offset, K_ * d_, rows, d_, pack.v_columns + i * columns.group,
                      columns.step);
      HWY_NAMESPACE::pack_rows<F>(k + offset, K_ * d_, rows, kGroup, d_,
                                  pack.k_rows + i * kGroup / F::kPair * sizes_.rows_layout.step,
                                  sizes_.rows_layout);
    }
    if (gradients) {
      const auto bytes = static_cast<size_t>(sizes_.sums) * sizeof(float);
      std::memset(pack.dk, 0, bytes);
      std::memset(pack.dv, 0, bytes);
    }
  }

  HWY_NOINLINE void pack_rows(const Share& part, const RowsOf& of, Rows& pack, bool as_rows) {
    const Element *q = a_.q.as<Element>(), *do_ = a_.do_.as<Element>();
    const float *lse = a_.lse.as<float>(), *delta = a_.delta.as<float>();
    const auto [head, group, groups] = of;
    pack.group = group;
    pack.groups = groups;
    pack.head = head;
    for (int64_t i = 0; i < Layout::in_whole_units(groups); ++i) {
      const Segment& segment = *part.of.segment;
      const int64_t first = (group + i) * kGroup,
                    rows = i < groups ? std::min(kGroup, segment.rows - first) : 0,
                    stride = H_ * d_, row = (segment.row_begin + first) * H_ + head;
      pack_group_of(q + row * d_, stride, rows, i, pack.q_columns, as_rows ? pack.q_rows : nullptr);
      pack_group_of(do_ + row * d_, stride, rows, i, pack.do_columns,
                    as_rows ? pack.do_rows : nullptr);
      for (int64_t r = 0; r < kGroup; ++r) {
        pack.lse[i * kGroup + r] = r < rows ? lse[row + r * H_] * 0x1.715476p0f : HUGE_VALF;
        pack.delta[i * kGroup + r] = r < rows ? delta[row + r * H_] : 0;
      }
    }
    std::memset(pack.dq, 0, static_cast<size_t>(sizes_.sums) * sizeof(float));
  }

 private:
  static constexpr int64_t kGroup = attention::kGroup;

  static constexpr int64_t struct_words(size_t bytes) {
    return attention::round_up(static_cast<int64_t>(bytes / sizeof(Word)), kGroup);
  }

  // Group i of a row pack: as the left operand of scores and slopes, and (unless null) as what sums
  // over rows need.
  HWY_INLINE void pack_group_of(const Element* from, int64_t stride, int64_t rows, int64_t i,
                                Word* columns, Word* as_rows) {
    columns += i * sizes_.words * kGroup;
    if constexpr (F::kTiles) {
      pack_left(from, stride, rows, d_, columns);
      if (as_rows == nullptr) return;
      pack_left_columns(from, stride, rows, d_, as_rows + Layout::left_at(0, i),
                        kGroup * Layout::kSideWords, sizes_.width);
    } else {
      pack_columns<F>(from, stride, rows, d_, columns, kGroup);
      if (as_rows == nullptr) return;
      HWY_NAMESPACE::pack_rows<F>(from, stride, rows, kGroup, d_,
                                  as_rows + i * kGroup / F::kPair * sizes_.rows_layout.step,
                                  sizes_.rows_layout);
    }
  }

  const AttentionBackward& a_;
  const int64_t key_head_, H_, K_, d_;
  const attention::BackwardSizes sizes_;
  attention::Carver& carver_;
};

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
