// Backward attention with SIMD: four groups of rows meet four groups of keys, one tile after
// another.
//
// A tile recomputes the weights P from lse, makes dS, and adds to dq of its rows and to dk, dv of
// its keys; sums of a row run over keys ascending, sums of a key over heads, then rows ascending,
// in f32, whichever way tiles are handed to tasks. Where all keys of a document fit a worker's
// scratch, one task per key head does everything (10 d flops per pair). Longer documents are cut
// into tasks that own rows and tasks that own keys, which both compute P and dS (14 d).
#include "kernels/attention.h"

#include <cstring>
#include <type_traits>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cc"
#include "hwy/foreach_target.h"

#include "kernels/attention_part.h"
#include "kernels/cpu/attention_packing.h"
#include "kernels/cpu/attention_products.h"
#include "kernels/cpu/attention_tasks.h"
#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

using namespace attention;

// Up to kTileGroups groups of keys from `group` on.
struct KeyPack {
  int64_t group, groups;
  Word* k_columns;  // [words, kTile], steps kColumnStep apart
  Word* v_columns;  // the same
  Word* k_rows;     // [kTile / kPair, width], BackwardSizes::row_step apart
  float *dk, *dv;   // [kTile, width]; with tiles [width, kTile]
};

// Up to kTileGroups groups of rows of one head.
struct RowPack {
  int64_t group, groups, head;
  Word* q_columns;   // [kTileGroups, words, kGroup]; with tiles [kTileGroups, kGroup, words]
  Word* do_columns;  // the same
  Word* q_rows;      // [kTile / kPair, width], likewise; with tiles [width, kTile / kPair]
  Word* do_rows;     // the same
  float* dq;         // [kTile, width]
  float lse[kTile];  // in units of log 2; +inf behind the document's end, so that weights are zero
  float delta[kTile];
};

// over_parts: of the keys; gradients are f32 and added to. Not one more parameter of the template: only stores differ.
template <class F>
class BackwardWorker {
 public:
  using Element = typename F::Element;

  BackwardWorker(const AttentionBackward& a, int64_t key_head, bool over_parts, Word* scratch)
      : a_(a),
        over_parts_(over_parts),
        key_head_(key_head),
        H_(a.q.dims[1]),
        K_(a.k.dims[1]),
        d_(a.q.dims[2]),
        sizes_(d_, F::kPair, F::kTiles),
        width_(sizes_.width),
        log2_scale_(a.scale * 0x1.715476p0f),  // log2(e)
        carver_(scratch) {
    scores_ = carver_.take(kGroup * kTile);
    slopes_ = carver_.take(kGroup * kTile);
    weights_ = carver_.take(kTile * kTileWords);
    ds_by_row_ = carver_.take(kTile * kTileWords);
    ds_by_key_ = F::kPair == 1 ? ds_by_row_ : carver_.take(kTile * kTileWords);
  }

  // dk, dv of the keys of `part`; dq too if that is a whole document that fits.
  void run_keys(const Share& part, bool with_dq) {
    RowPack& rows = *take_row_packs(1, true);
    const int64_t first = part.begin / kGroup, end = (part.end + kGroup - 1) / kGroup;
    int64_t capacity = carver_.left() / key_pack_words();
    const int64_t wanted = (end - first + kTileGroups - 1) / kTileGroups;
    MR_CHECK(capacity > 0 && (!with_dq || capacity >= wanted), "%ld keys of width %ld",
             long(part.end - part.begin), long(d_));
    capacity = std::min(capacity, wanted);
    KeyPack* packs = take_key_packs(capacity, true);
    for (int64_t g = first; g < end; g += capacity * kTileGroups) {
      const int64_t stop = std::min(end, g + capacity * kTileGroups);
      int64_t num_packs = 0;
      for (int64_t at = g; at < stop; at += kTileGroups) {
        pack_keys(part, at, std::min(kTileGroups, stop - at), packs[num_packs++], true);
      }
      walk_rows(part, g, stop, packs, num_packs, rows, with_dq);
      for (int64_t i = 0; i < num_packs; ++i) store_keys(part, packs[i]);
    }
  }

  // dq of the rows of `part`.
  void run_rows(const Share& part) {
    KeyPack& keys = *take_key_packs(1, false);
    const int64_t first = part.begin / kGroup, end = (part.end + kGroup - 1) / kGroup,
                  group = H_ / K_, blocks = (end - first + kTileGroups - 1) / kTileGroups;
    const int64_t capacity = std::min(group * blocks, carver_.left() / row_pack_words());
    MR_CHECK(capacity > 0, "width %ld", long(d_));
    RowPack* packs = take_row_packs(capacity, false);
    int64_t num_packs = 0;
    for (int64_t i = 0; i < group * blocks; ++i) {  // heads inside, to keep the walk short
      const int64_t g = first + i / group * kTileGroups;
      pack_rows_of(part, key_head_ * group + i % group, g, std::min(kTileGroups, end - g),
                   packs[num_packs++], false);
      if (num_packs == capacity || i + 1 == group * blocks) {
        walk_keys(part, packs, num_packs, keys);
        num_packs = 0;
      }
    }
  }

 private:
  static constexpr int64_t kColumnStep = packed_step(kTile, F::kTiles);
  static constexpr int64_t kTileWords = kTile / F::kPair;
  static constexpr int64_t struct_words(size_t bytes) {
    return round_up(static_cast<int64_t>(bytes / sizeof(Word)), kGroup);
  }
  int64_t key_pack_words() const { return struct_words(sizeof(KeyPack)) + sizes_.keys(); }
  int64_t row_pack_words() const { return struct_words(sizeof(RowPack)) + sizes_.rows(false); }

  KeyPack* take_key_packs(int64_t n, bool gradients) {
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
  RowPack* take_row_packs(int64_t n, bool as_rows) {
    auto* packs = reinterpret_cast<RowPack*>(carver_.take(n * struct_words(sizeof(RowPack))));
    for (int64_t i = 0; i < n; ++i) {
      RowPack& p = packs[i];
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
    for (int64_t i = 0; i < groups; ++i) {
      const int64_t first = (group + i) * kGroup, rows = std::min(kGroup, part.of.keys - first),
                    offset = ((part.of.segment->key_begin + first) * K_ + key_head_) * d_;
      pack_columns<F>(k + offset, K_ * d_, rows, d_, pack.k_columns + i * kGroup, kColumnStep);
      pack_columns<F>(v + offset, K_ * d_, rows, d_, pack.v_columns + i * kGroup, kColumnStep);
      pack_rows<F>(k + offset, K_ * d_, rows, kGroup, d_,
                   pack.k_rows + i * kGroup / F::kPair * sizes_.row_step, sizes_.row_step);
    }
    if (gradients) {
      const auto bytes = static_cast<size_t>(sizes_.sums) * sizeof(float);
      std::memset(pack.dk, 0, bytes);
      std::memset(pack.dv, 0, bytes);
    }
  }

  // Group i of a row pack: as the left operand of scores and slopes, and (unless null) as what sums
  // over rows need.
  HWY_INLINE void pack_group_of(const Element* from, int64_t stride, int64_t rows, int64_t i,
                                Word* columns, Word* as_rows) {
    columns += i * sizes_.words * kGroup;
    if constexpr (F::kTiles) {
      pack_left(from, stride, rows, d_, columns, sizes_.words);
      if (as_rows == nullptr) return;
      pack_left_columns(from, stride, rows, d_, as_rows + i * kGroup / F::kPair, kTileWords,
                        width_);
    } else {
      pack_columns<F>(from, stride, rows, d_, columns, kGroup);
      if (as_rows == nullptr) return;
      pack_rows<F>(from, stride, rows, kGroup, d_,
                   as_rows + i * kGroup / F::kPair * sizes_.row_step, sizes_.row_step);
    }
  }

  HWY_NOINLINE void pack_rows_of(const Share& part, int64_t head, int64_t group, int64_t groups,
                                 RowPack& pack, bool as_rows) {
    const Element *q = a_.q.as<Element>(), *do_ = a_.do_.as<Element>();
    const float *lse = a_.lse.as<float>(), *delta = a_.delta.as<float>();
    pack.group = group;
    pack.groups = groups;
    pack.head = head;
    for (int64_t i = 0; i < groups; ++i) {
      const Segment& segment = *part.of.segment;
      const int64_t first = (group + i) * kGroup, rows = std::min(kGroup, segment.rows - first),
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

  // Walks start at even groups: tiles cut sums over positions at multiples of 32, for every walk alike.
  static constexpr int64_t even(int64_t group) { return group / 2 * 2; }

  // All rows that see keys of groups [begin, end), which are packed.
  void walk_rows(const Share& part, int64_t begin, int64_t end, KeyPack* packs, int64_t num_packs,
                 RowPack& rows, bool with_dq) {
    const int64_t heads = H_ / K_, first = even(part.of.first_row(begin));
    const int64_t last = part.of.last_row(end - 1, part.of.row_groups());
    for (int64_t head = key_head_ * heads; head < (key_head_ + 1) * heads; ++head) {
      for (int64_t g = first; g <= last; g += kTileGroups) {
        pack_rows_of(part, head, g, std::min(kTileGroups, last + 1 - g), rows, true);
        const int64_t key_begin = std::max(begin, part.of.first_key(g)),
                      key_last = std::min(end - 1, part.of.last_key(g + rows.groups - 1));
        for (int64_t i = (key_begin - begin) / kTileGroups;
             i <= (key_last - begin) / kTileGroups && i < num_packs; ++i) {
          meet(part.of, rows, packs[i], with_dq, true);
        }
        if (with_dq) store_rows(part, rows);
      }
    }
  }

  // All keys that the packed rows see.
  void walk_keys(const Share& part, RowPack* packs, int64_t num_packs, KeyPack& keys) {
    const RowPack& back = packs[num_packs - 1];
    const int64_t first = even(part.of.first_key(packs[0].group)),
                  end = part.of.last_key(back.group + back.groups - 1) + 1;
    for (int64_t g = first; g < end; g += kTileGroups) {
      pack_keys(part, g, std::min(kTileGroups, end - g), keys, false);
      for (int64_t i = 0; i < num_packs; ++i) meet(part.of, packs[i], keys, true, false);
    }
    for (int64_t i = 0; i < num_packs; ++i) store_rows(part, packs[i]);
  }

  // Adds what rows and keys owe each other.
  void meet(const RowsAndKeys& of, RowPack& rows, KeyPack& keys, bool with_dq, bool with_dkdv) {
    for (int64_t i = 0; i < rows.groups; ++i) {
      const int64_t g = rows.group + i, from = std::max(keys.group, of.first_key(g)),
                    to = std::min(keys.group + keys.groups - 1, of.last_key(g));
      if (from > to) continue;
      meet_group(of, rows, i, keys, from - keys.group, to - keys.group, with_dkdv);
      if (with_dq) add_dq(rows, i, keys, from - keys.group, to - keys.group);
    }
    if (!with_dkdv) return;
    const auto seen_by = [&](int64_t j) {  // groups of the pack's rows that see keys of group j
      const int64_t g = keys.group + j;
      return std::pair(std::max(rows.group, of.first_row(g)) - rows.group,
                       of.last_row(g, rows.group + rows.groups) - rows.group);
    };
    for (int64_t j = 0; j < keys.groups;) {
      const auto [from, to] = seen_by(j);
      const int64_t first = j++;
      while (j < keys.groups && seen_by(j) == std::pair(from, to)) ++j;
      if (from <= to) add_dkdv(rows, keys, {from, to, first, j, (rows.group + from) % 2 != 0});
    }
  }

  // P and dS of group i of the rows with groups [from, to] of the keys.
  void meet_group(const RowsAndKeys& of, const RowPack& rows, int64_t i, const KeyPack& keys,
                  int64_t from, int64_t to, bool by_key) {
    const int64_t at = i * sizes_.words * kGroup, column = from * kGroup,
                  columns = (to - from + 1) * kGroup;
    Product product = {.a = rows.q_columns + at,
                       .b = keys.k_columns + column,
                       .c = scores_ + column,
                       .a_row = sizes_.words,
                       .b_step = kColumnStep,
                       .c_row = kTile,
                       .steps = sizes_.words,
                       .rows = kGroup,
                       .columns = columns};
    multiply<F, 1, kGroup, Start::kZero>(tiles_, product);
    product.a = rows.do_columns + at;
    product.b = keys.v_columns + column;
    product.c = slopes_ + column;
    multiply<F, 1, kGroup, Start::kZero>(tiles_, product);
    weigh(of, rows, i, keys, from, to, by_key);
  }

  HWY_NOINLINE void weigh(const RowsAndKeys& of, const RowPack& rows, int64_t i,
                          const KeyPack& keys, int64_t from, int64_t to, bool by_key) {
    const DF df;
    const VF scale = hn::Set(df, log2_scale_);
    for (int64_t j = from; j <= to; ++j) {
      const int64_t first = (keys.group + j) * kGroup, here = of.keys - first,
                    ahead = of.position() + (rows.group + i) * kGroup - first;
      const bool window_edge = a_.window > 0 && ahead + kGroup > a_.window;
      const bool edge = window_edge || ahead < kGroup - 1 || here < kGroup;
      for (int64_t r = 0; r < kGroup; r += F::kPair) {
        for (int v = 0; v < kGroupVectors; ++v) {
          const int64_t column = j * kGroup + v * kLanes;
          VF p[F::kPair], ds[F::kPair];
          for (int e = 0; e < F::kPair; ++e) {
            const float *score = scores_ + (r + e) * kTile + column,
                        *slope = slopes_ + (r + e) * kTile + column;
            const int64_t row = i * kGroup + r + e;
            p[e] = exp2_f(df, hn::MulSub(hn::LoadU(df, score), scale, hn::Set(df, rows.lse[row])));
            if (edge) {
              const int64_t hi = ahead + r + e, lo = window_edge ? hi - a_.window + 1 : 0;
              p[e] = hn::IfThenElseZero(visible(df, v, lo, std::min(hi, here - 1)), p[e]);
            }
            ds[e] = hn::Mul(p[e], hn::Sub(hn::LoadU(df, slope), hn::Set(df, rows.delta[row])));
            store_left(F(), ds[e], ds_by_row_ + (row * kTile + column) / F::kPair);
          }
          if (by_key) {
            const int64_t at = (i * kGroup + r) / F::kPair * kTile + column;
            store_pairs(F(), p, weights_ + at);
            if constexpr (F::kPair > 1) store_pairs(F(), ds, ds_by_key_ + at);
          }
        }
      }
    }
  }

  void add_dq(RowPack& rows, int64_t i, const KeyPack& keys, int64_t from, int64_t to) {
    multiply<F, kTileWords, 1, Start::kAdd>(
        tiles_, {.a = ds_by_row_ + i * kGroup * kTileWords + from * kGroup / F::kPair,
                 .b = keys.k_rows + from * kGroup / F::kPair * sizes_.row_step,
                 .c = rows.dq + i * kGroup * width_,
                 .a_row = kTileWords,
                 .b_step = sizes_.row_step,
                 .c_row = width_,
                 .steps = (to - from + 1) * kGroup / F::kPair,
                 .rows = kGroup,
                 .columns = width_,
                 .half_first = (keys.group + from) % 2 != 0});
  }

  // Groups [row_begin, row_last] of a row pack, seen by groups [key_begin, key_end) of a key pack.
  struct Seen {
    int64_t row_begin, row_last, key_begin, key_end;
    bool odd;  // the first group of rows, counted from the segment's first row
  };

  void add_dkdv(const RowPack& rows, KeyPack& keys, const Seen& seen) {
    add_keys(weights_, rows.do_rows, keys.dv, seen);
    add_keys(ds_by_key_, rows.q_rows, keys.dk, seen);
  }

  // sums[key] += sum over rows of weight[row, key] * row. With tiles the transpose of it: weights are
  // made with keys side by side, which is a right operand.
  HWY_INLINE void add_keys(const Word* weights, const Word* as_rows, float* sums,
                           const Seen& seen) {
    const int64_t first = seen.row_begin * kGroup / F::kPair, key = seen.key_begin * kGroup,
                  num_keys = (seen.key_end - seen.key_begin) * kGroup;
    Product product = {.a = weights + first * kTile + key,
                       .b = as_rows + first * sizes_.row_step,
                       .c = sums + key * width_,
                       .a_row = kTileWords,
                       .b_step = sizes_.row_step,
                       .c_row = width_,
                       .steps = (seen.row_last - seen.row_begin + 1) * kGroup / F::kPair,
                       .rows = num_keys,
                       .columns = width_,
                       .half_first = seen.odd};
    if constexpr (F::kTiles) {
      product.a = as_rows + first;
      product.b = weights + first * kTile + key;
      product.c = sums + key;
      product.b_step = product.c_row = kTile;
      product.rows = width_;
      product.columns = num_keys;
    }
    multiply<F, 1, kTile, Start::kAdd>(tiles_, product);
  }

  // scale * from, to d elements of `gradient` from `at` on.
  void store_row(const float* from, float scale, const Tensor& gradient, int64_t at) {
    over_parts_ ? store_row_as<true>(from, scale, gradient.as<float>() + at)
                : store_row_as<false>(from, scale, gradient.as<Element>() + at);
  }

  template <bool kAdd, class Gradient>
  void store_row_as(const float* from, float scale, Gradient* to) {
    const DF df;
    for (int64_t c = 0; c < d_; c += kLanes) {
      const bool whole = c + kLanes <= d_;
      const auto rest = static_cast<size_t>(d_ - c);
      VF value = hn::Mul(hn::LoadU(df, from + c), hn::Set(df, scale));
      if constexpr (kAdd) {
        value = hn::Add(value, whole ? load(df, to + c) : load_n(df, to + c, rest));
      }
      whole ? store(value, df, to + c) : store_n(value, df, to + c, rest);
    }
  }

  HWY_NOINLINE void store_rows(const Share& part, const RowPack& pack) {
    const Segment& segment = *part.of.segment;
    const int64_t begin = pack.group * kGroup,
                  end = std::min(begin + pack.groups * kGroup, segment.rows);
    for (int64_t i = begin; i < end; ++i) {
      store_row(pack.dq + (i - begin) * width_, a_.scale, a_.dq,
                ((segment.row_begin + i) * H_ + pack.head) * d_);
    }
  }

  // Only keys of the share: of a group across its border, another task stores the others.
  HWY_NOINLINE void store_keys(const Share& part, const KeyPack& pack) {
    const int64_t begin = pack.group * kGroup,
                  end = std::min(begin + pack.groups * kGroup, part.end);
    for (int64_t j = std::max(begin, part.begin); j < end; ++j) {
      const int64_t to = ((part.of.segment->key_begin + j) * K_ + key_head_) * d_;
      store_row(key_sums(pack.dk, j - begin), a_.scale, a_.dk, to);
      store_row(key_sums(pack.dv, j - begin), 1, a_.dv, to);
    }
  }

  // [width] of key j of a pack.
  const float* key_sums(const float* sums, int64_t j) {
    if constexpr (!F::kTiles) return sums + j * width_;
    for (int64_t c = 0; c < width_; ++c) scores_[c] = sums[c * kTile + j];
    return scores_;
  }

  const AttentionBackward& a_;
  const bool over_parts_;
  const int64_t key_head_, H_, K_, d_;
  const BackwardSizes sizes_;
  const int64_t width_;
  const float log2_scale_;
  Carver carver_;
  typename F::Tiles tiles_;
  float *scores_, *slopes_;  // [kGroup, kTile] q . k and do . v of one group of rows
  Word* weights_;            // [kTile rows / kPair, kTile] P, pairs of rows
  Word* ds_by_key_;          // the same of dS
  Word* ds_by_row_;          // [kTile rows, kTile / kPair] dS, pairs of keys
};

RowsAndKeys rows_and_keys(const AttentionBackward& a, std::span<const int64_t> keys, size_t s) {
  return {&a.segments[s], key_count(a.segments, keys, s), a.window};
}

// Whole documents: rows and keys are the same positions.
template <class F>
void run_documents(const AttentionBackward& a, const BackwardTask& task, Word* scratch) {
  if (task.whole != nullptr) {
    const Share all = {{task.whole, task.whole->rows, a.window}, 0, task.whole->rows};
    BackwardWorker<F>(a, task.key_head, false, scratch).run_keys(all, true);
    return;
  }
  for_parts({a.segments, {}, {}}, task.row_begin, task.row_end, [&](const Part& part) {
    if (task.plan->whole(*part.segment)) return;
    const Share share = {{part.segment, part.keys, a.window}, part.begin, part.end};
    BackwardWorker<F> worker(a, task.key_head, false, scratch);
    task.owns_keys ? worker.run_keys(share, false) : worker.run_rows(share);
  });
}

// Parts of keys: rows of q or rows of k in [row_begin, row_end), segment by segment.
template <class F>
void run_parts(const AttentionBackward& a, const BackwardTask& task, Word* scratch) {
  for (size_t s = 0; s < a.segments.size(); ++s) {
    const RowsAndKeys of = rows_and_keys(a, task.keys, s);
    const Segment& segment = *of.segment;
    const int64_t zero = task.owns_keys ? segment.key_begin : segment.row_begin,
                  count = task.owns_keys ? of.keys : segment.rows;
    int64_t begin = std::max<int64_t>(0, task.row_begin - zero),
            end = std::min(count, task.row_end - zero);
    if (!task.owns_keys) {  // groups of rows that begin in the range
      begin = round_up(begin, kGroup);
      end = end <= 0 ? 0 : std::min(count, round_up(end, kGroup));
    }
    if (begin >= end) continue;
    BackwardWorker<F> worker(a, task.key_head, true, scratch);
    const Share share = {of, begin, end};
    task.owns_keys ? worker.run_keys(share, false) : worker.run_rows(share);
  }
}

template <class F>
void run_task(const AttentionBackward& a, const BackwardTask& task, Word* scratch) {
  task.keys.empty() ? run_documents<F>(a, task, scratch) : run_parts<F>(a, task, scratch);
}

void run_backward(const AttentionBackward& a, const BackwardTask& task, Isa isa, Word* scratch) {
  if (a.q.dtype == DType::kF32) return run_task<WideF32>(a, task, scratch);
#if HWY_TARGET == HWY_AVX3
  if (isa == Isa::kAmx) return run_task<AmxDot>(a, task, scratch);
  if (isa == Isa::kAvx512Bf16) return run_task<Bf16Dot>(a, task, scratch);
#endif
  (void)isa;
  run_task<WideBf16>(a, task, scratch);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(run_backward);

namespace {

constexpr int64_t kMostRows = 128;  // of a task that owns rows or keys: they share what it packs
constexpr int64_t kLeastRows = 64;
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kSizes = 4;  // passes over whole documents, halving sizes: long ones first

// Which of kSizes passes takes a document of `rows`.
int64_t size_class(int64_t rows, int64_t longest) {
  int64_t c = 0;
  while (c + 1 < kSizes && rows <= longest >> (c + 1)) ++c;
  return c;
}

}  // namespace

void attention_backward(Context& ctx, const AttentionBackward& a) {
  const int64_t T = a.q.dims[0], K = a.k.dims[1], threads = ctx.pool->threads();
  const auto num_segments = static_cast<int64_t>(a.segments.size());
  MR_CHECK(a.q.dtype != DType::kF64, "f64 is for the reference");
  MR_CHECK(a.q.dims[2] <= attention::kMaxWidth, "head width %ld", long(a.q.dims[2]));
  cpu::attention_delta(ctx, {.delta = a.delta, .do_ = a.do_, .o = a.o});

  const Isa best = isa();
  const int64_t pair = a.q.dtype == DType::kBF16 && best >= Isa::kAvx512Bf16 ? 2 : 1;
  const attention::BackwardSizes sizes(a.q.dims[2], pair, pair == 2 && best == Isa::kAmx);
  const attention::BackwardPlan plan = attention::make_backward_plan(a, threads, sizes);
  int64_t longest = 0;
  bool all_whole = true;
  for (const Segment& s : a.segments) {
    plan.whole(s) ? void(longest = std::max(longest, s.rows)) : void(all_whole = false);
  }
  int64_t rows = kMostRows;
  while (rows > kLeastRows && (T + rows - 1) / rows * K < kTasksPerThread * threads) rows /= 2;
  const int64_t blocks = all_whole ? 0 : (T + rows - 1) / rows, cut = 2 * blocks * K,
                whole = longest > 0 ? kSizes * num_segments * K : 0;
  const auto run = HWY_DYNAMIC_DISPATCH(run_backward);
  ctx.pool->parallel_for(cut + whole, [&](int64_t index, int worker) {
    attention::BackwardTask task = {.plan = &plan};
    task.key_head = index % K;
    if (index < cut) {
      // Keys in order and rows from the last on: long walks first.
      task.owns_keys = index < blocks * K;
      const int64_t i = index / K, block = task.owns_keys ? i : 2 * blocks - 1 - i;
      task.row_begin = block * rows;
      task.row_end = std::min(T, task.row_begin + rows);
    } else {
      const int64_t i = (index - cut) / K;
      const Segment& s = a.segments[static_cast<size_t>(i % num_segments)];
      if (!plan.whole(s) || size_class(s.rows, longest) != i / num_segments) return;
      task.whole = &s;
    }
    run(a, task, best, ctx.worker_scratch<Word>(worker));
  });
}

// Tasks own rows of q or rows of k, whichever segments see them.
void attention_part_backward(Context& ctx, const AttentionPartBackward& p) {
  const int64_t T = p.q.dims[0], R = p.k.dims[0], K = p.k.dims[1], threads = ctx.pool->threads();
  MR_CHECK(p.q.dtype != DType::kF64, "f64 is for the reference");
  MR_CHECK(p.q.dims[2] <= attention::kMaxWidth, "head width %ld", long(p.q.dims[2]));
  const AttentionBackward a = {.dq = p.dq,
                               .dk = p.dk,
                               .dv = p.dv,
                               .delta = p.delta,
                               .do_ = p.do_,
                               .o = {},
                               .lse = p.lse,
                               .q = p.q,
                               .k = p.k,
                               .v = p.v,
                               .segments = p.segments,
                               .window = p.window,
                               .scale = p.scale};
  int64_t rows = kMostRows;
  while (rows > kLeastRows && (T + R + rows - 1) / rows * K < kTasksPerThread * threads) rows /= 2;
  const int64_t row_blocks = (T + rows - 1) / rows, key_blocks = (R + rows - 1) / rows;
  const auto run = HWY_DYNAMIC_DISPATCH(run_backward);
  const Isa best = isa();
  ctx.pool->parallel_for((row_blocks + key_blocks) * K, [&](int64_t index, int worker) {
    attention::BackwardTask task = {.key_head = index % K, .keys = p.keys};
    // Keys in order and rows from the last on: long walks first.
    const int64_t i = index / K;
    task.owns_keys = i < key_blocks;
    task.row_begin = (task.owns_keys ? i : key_blocks + row_blocks - 1 - i) * rows;
    task.row_end = std::min(task.owns_keys ? R : T, task.row_begin + rows);
    run(a, task, best, ctx.worker_scratch<Word>(worker));
  });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
