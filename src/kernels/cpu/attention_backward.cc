// Backward attention with SIMD: a block of rows meets a block of keys, one after another.
//
// A meeting recomputes the weights P from lse, makes dS, and adds to dq of its rows and to dk, dv of
// its keys; sums of a row run over keys ascending, sums of a key over heads, then rows ascending,
// in f32, whichever way blocks are handed to tasks. Where all keys of a document fit a worker's
// scratch, one task per key head does everything (10 d flops per pair). Longer documents are cut
// into tasks that own rows and tasks that own keys, which both compute P and dS (14 d).
#include "kernels/attention.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cc"
#include "hwy/foreach_target.h"

#include "kernels/attention_part.h"
#include "kernels/cpu/attention_gradients.h"
#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

using namespace attention;

template <class F>
class BackwardWorker : Meeting<F> {
 public:
  using Meeting<F>::kSide, Meeting<F>::kSideGroups, Meeting<F>::kSideWords, Meeting<F>::kUnit;
  using Meeting<F>::kScoreRow, Meeting<F>::kScoreGroup, Meeting<F>::kWeights, Meeting<F>::left_at;
  using Rows = RowPack<F>;

  BackwardWorker(const AttentionBackward& a, int64_t key_head, bool over_parts,
                 std::span<Word> scratch)
      : window_(a.window),
        key_head_(key_head),
        heads_(a.q.dims[1] / a.k.dims[1]),
        log2_scale_(a.scale * 0x1.715476p0f),  // log2(e)
        carver_(scratch),
        packs_(a, key_head, carver_),
        gradients_(a, key_head, over_parts),
        sizes_(packs_.sizes()),
        width_(sizes_.width) {
    scores_ = carver_.take(sizes_.scores);
    slopes_ = carver_.take(sizes_.scores);
    weights_ = carver_.take(kSide * kSideWords);
    ds_by_row_ = carver_.take(kSide * kSideWords);
    ds_by_key_ = F::kPair == 1 ? ds_by_row_ : carver_.take(kSide * kSideWords);
  }

  // dk, dv of the keys of `part`; dq too if that is a whole document that fits.
  void run_keys(const Share& part, bool with_dq) {
    Rows& rows = *packs_.take_row_packs(1, true);
    const int64_t first = part.begin / kGroup, end = (part.end + kGroup - 1) / kGroup;
    int64_t capacity = packs_.key_packs_left();
    const int64_t wanted = (end - first + kSideGroups - 1) / kSideGroups;
    MR_CHECK(capacity > 0 && (!with_dq || capacity >= wanted), "%ld keys of width %ld",
             long(part.end - part.begin), long(width_));
    capacity = std::min(capacity, wanted);
    KeyPack* packs = packs_.take_key_packs(capacity, true);
    for (int64_t g = first; g < end; g += capacity * kSideGroups) {
      const int64_t stop = std::min(end, g + capacity * kSideGroups);
      int64_t num_packs = 0;
      for (int64_t at = g; at < stop; at += kSideGroups) {
        packs_.pack_keys(part, at, std::min(kSideGroups, stop - at), packs[num_packs++], true);
      }
      walk_rows(part, g, stop, packs, num_packs, rows, with_dq);
      for (int64_t i = 0; i < num_packs; ++i) gradients_.store_keys(part, packs[i]);
    }
  }

  // dq of the rows of `part`.
  void run_rows(const Share& part) {
    KeyPack& keys = *packs_.take_key_packs(1, false);
    const int64_t first = part.begin / kGroup, end = (part.end + kGroup - 1) / kGroup,
                  blocks = (end - first + kSideGroups - 1) / kSideGroups;
    const int64_t capacity = std::min(heads_ * blocks, packs_.row_packs_left());
    MR_CHECK(capacity > 0, "width %ld", long(width_));
    Rows* packs = packs_.take_row_packs(capacity, false);
    int64_t num_packs = 0;
    for (int64_t i = 0; i < heads_ * blocks; ++i) {  // heads inside, to keep the walk short
      const int64_t g = first + i / heads_ * kSideGroups;
      packs_.pack_rows(part, {key_head_ * heads_ + i % heads_, g, std::min(kSideGroups, end - g)},
                       packs[num_packs++], false);
      if (num_packs == capacity || i + 1 == heads_ * blocks) {
        walk_keys(part, packs, num_packs, keys);
        num_packs = 0;
      }
    }
  }

 private:
  // Walks start at even groups: tiles cut sums over positions at multiples of 32, for every walk alike.
  static constexpr int64_t even(int64_t group) { return group / 2 * 2; }

  // All rows that see keys of groups [begin, end), which are packed.
  void walk_rows(const Share& part, int64_t begin, int64_t end, KeyPack* packs, int64_t num_packs,
                 Rows& rows, bool with_dq) {
    const int64_t first = even(part.of.first_row(begin));
    const int64_t last = part.of.last_row(end - 1, part.of.row_groups());
    for (int64_t head = key_head_ * heads_; head < (key_head_ + 1) * heads_; ++head) {
      for (int64_t g = first; g <= last; g += kSideGroups) {
        packs_.pack_rows(part, {head, g, std::min(kSideGroups, last + 1 - g)}, rows, true);
        const int64_t key_begin = std::max(begin, part.of.first_key(g)),
                      key_last = std::min(end - 1, part.of.last_key(g + rows.groups - 1));
        for (int64_t i = (key_begin - begin) / kSideGroups;
             i <= (key_last - begin) / kSideGroups && i < num_packs; ++i) {
          meet(part.of, rows, packs[i], with_dq, true);
        }
        if (with_dq) gradients_.store_rows(part, rows);
      }
    }
  }

  // All keys that the packed rows see.
  void walk_keys(const Share& part, Rows* packs, int64_t num_packs, KeyPack& keys) {
    const Rows& back = packs[num_packs - 1];
    const int64_t first = even(part.of.first_key(packs[0].group)),
                  end = part.of.last_key(back.group + back.groups - 1) + 1;
    for (int64_t g = first; g < end; g += kSideGroups) {
      packs_.pack_keys(part, g, std::min(kSideGroups, end - g), keys, false);
      for (int64_t i = 0; i < num_packs; ++i) meet(part.of, packs[i], keys, true, false);
    }
    for (int64_t i = 0; i < num_packs; ++i) gradients_.store_rows(part, packs[i]);
  }

  // Groups [from, to] of a pack, as units.
  static std::pair<int64_t, int64_t> in_units(int64_t from, int64_t to) {
    return {from / kUnit * kUnit, (to / kUnit + 1) * kUnit - 1};
  }

  // Adds what rows and keys owe each other.
  void meet(const RowsAndKeys& of, Rows& rows, KeyPack& keys, bool with_dq, bool with_dkdv) {
    for (int64_t i = 0; i < rows.groups; i += kUnit) {
      const int64_t g = rows.group + i, first = std::max(keys.group, of.first_key(g)),
                    last = std::min(keys.group + keys.groups - 1, of.last_key(g + kUnit - 1));
      if (first > last) continue;
      const auto [from, to] = in_units(first - keys.group, last - keys.group);
      meet_unit(of, rows, i, keys, from, to, with_dkdv);
      if (with_dq) add_dq(rows, i, keys, from, to);
    }
    if (!with_dkdv) return;
    // Groups of the pack's rows that see keys of unit j; from > to: none.
    const auto seen_by = [&](int64_t j) {
      const int64_t g = keys.group + j, first = std::max(rows.group, of.first_row(g)) - rows.group,
                    last = of.last_row(g + kUnit - 1, rows.group + rows.groups) - rows.group;
      return first <= last ? in_units(first, last) : std::pair<int64_t, int64_t>(0, -1);
    };
    for (int64_t j = 0; j < keys.groups;) {
      const std::pair<int64_t, int64_t> seen = seen_by(j);
      const int64_t begin = j;
      do {
        j += kUnit;
      } while (j < keys.groups && seen_by(j) == seen);
      if (seen.first <= seen.second) add_dkdv(rows, keys, {seen.first, seen.second, begin, j});
    }
  }

  // P and dS of unit i of the rows with groups [from, to] of the keys.
  void meet_unit(const RowsAndKeys& of, const Rows& rows, int64_t i, const KeyPack& keys,
                 int64_t from, int64_t to, bool by_key) {
    const int64_t at = i * sizes_.words * kGroup;
    const auto multiply = [&](const Word* left, const Word* right, float* sums) {
      const Word* seen = right + from * sizes_.columns_layout.group;
      if constexpr (F::kTiles) {
        multiply_tiles<Start::kZero>(tiles_, {.a = left + at,
                                              .b = seen,
                                              .c = sums + from * kScoreGroup,
                                              .a_rows = kGroup * sizes_.words,
                                              .b_columns = sizes_.columns_layout.group,
                                              .c_rows = kGroup * kSide,
                                              .rows = kUnit,
                                              .columns = to - from + 1,
                                              .dots = sizes_.words / kGroup});
      } else {
        multiply_lanes<F, 1, kGroup, Start::kZero>(Product{.a = left + at,
                                                           .b = seen,
                                                           .c = sums + from * kScoreGroup,
                                                           .b_step = sizes_.columns_layout.step,
                                                           .c_row = kSide,
                                                           .steps = sizes_.words,
                                                           .rows = kGroup,
                                                           .columns = (to - from + 1) * kGroup});
      }
    };
    multiply(rows.q_columns, keys.k_columns, scores_);
    multiply(rows.do_columns, keys.v_columns, slopes_);
    for (int64_t u = 0; u < kUnit; ++u) weigh(of, rows, i + u, keys, from, to, by_key);
  }

  HWY_NOINLINE void weigh(const RowsAndKeys& of, const Rows& rows, int64_t i, const KeyPack& keys,
                          int64_t from, int64_t to, bool by_key) {
    const DF df;
    const VF scale = hn::Set(df, log2_scale_);
    for (int64_t j = from; j <= to; ++j) {
      const int64_t first = (keys.group + j) * kGroup, here = j < keys.groups ? of.keys - first : 0,
                    ahead = of.position() + (rows.group + i) * kGroup - first,
                    unit = i % kUnit * kGroup * kSide + j * kScoreGroup;
      const bool window_edge = window_ > 0 && ahead + kGroup > window_;
      const bool edge = window_edge || ahead < kGroup - 1 || here < kGroup;
      for (int64_t r = 0; r < kGroup; r += F::kPair) {
        for (int v = 0; v < kGroupVectors; ++v) {
          const int64_t lane = v * kLanes;
          VF p[F::kPair], ds[F::kPair];
          for (int e = 0; e < F::kPair; ++e) {
            const int64_t from_unit = unit + (r + e) * kScoreRow + lane;
            const float *score = scores_ + from_unit, *slope = slopes_ + from_unit;
            const int64_t row = i * kGroup + r + e;
            p[e] = exp2_f(df, hn::MulSub(hn::LoadU(df, score), scale, hn::Set(df, rows.lse[row])));
            if (edge) {
              const int64_t hi = ahead + r + e, lo = window_edge ? hi - window_ + 1 : 0;
              p[e] = hn::IfThenElseZero(visible(df, v, lo, std::min(hi, here - 1)), p[e]);
            }
            ds[e] = hn::Mul(p[e], hn::Sub(hn::LoadU(df, slope), hn::Set(df, rows.delta[row])));
            store_left(F(), ds[e], ds_by_row_ + left_at(row, j) + lane / F::kPair);
          }
          if (by_key) {
            const int64_t at =
                (i * kGroup + r) / F::kPair * kWeights.step + j * kWeights.group + lane;
            store_pairs(F(), p, weights_ + at);
            if constexpr (F::kPair > 1) store_pairs(F(), ds, ds_by_key_ + at);
          }
        }
      }
    }
  }

  void add_dq(Rows& rows, int64_t i, const KeyPack& keys, int64_t from, int64_t to) {
    const Word *ds = ds_by_row_ + left_at(i * kGroup, from),
               *k = keys.k_rows + from * kGroup / F::kPair * sizes_.rows_layout.step;
    float* dq = rows.dq + i * kGroup * width_;
    if constexpr (F::kTiles) {
      multiply_tiles<Start::kAdd>(tiles_, {.a = ds,
                                           .b = k,
                                           .c = dq,
                                           .a_rows = kGroup * kSideWords,
                                           .b_columns = sizes_.rows_layout.group,
                                           .c_rows = kGroup * width_,
                                           .rows = kUnit,
                                           .columns = width_ / kGroup,
                                           .dots = (to - from + 1) / kUnit});
    } else {
      multiply_lanes<F, kSideWords, 1, Start::kAdd>(
          Product{.a = ds,
                  .b = k,
                  .c = dq,
                  .b_step = sizes_.rows_layout.step,
                  .c_row = width_,
                  .steps = (to - from + 1) * kGroup / F::kPair,
                  .rows = kGroup,
                  .columns = width_});
    }
  }

  // Groups [row_begin, row_last] of a row pack, seen by groups [key_begin, key_end) of a key pack.
  struct Seen {
    int64_t row_begin, row_last, key_begin, key_end;
  };

  void add_dkdv(const Rows& rows, KeyPack& keys, const Seen& seen) {
    add_keys(weights_, rows.do_rows, keys.dv, seen);
    add_keys(ds_by_key_, rows.q_rows, keys.dk, seen);
  }

  // sums[key] += sum over rows of weight[row, key] * row. With tiles the transpose of it: weights are
  // made with keys side by side, which is a right operand.
  HWY_INLINE void add_keys(const Word* weights, const Word* as_rows, float* sums,
                           const Seen& seen) {
    const int64_t first = seen.row_begin * kGroup / F::kPair,
                  groups = seen.key_end - seen.key_begin,
                  num_rows = seen.row_last - seen.row_begin + 1;
    const Word* seen_weights = weights + first * kWeights.step + seen.key_begin * kWeights.group;
    if constexpr (F::kTiles) {
      multiply_tiles<Start::kAdd>(tiles_, {.a = as_rows + left_at(0, seen.row_begin),
                                           .b = seen_weights,
                                           .c = sums + seen.key_begin * kTileWords,
                                           .a_rows = kGroup * kSideWords,
                                           .b_columns = kWeights.group,
                                           .c_rows = kGroup * kSide,
                                           .rows = width_ / kGroup,
                                           .columns = groups,
                                           .dots = num_rows / kUnit});
    } else {
      multiply_lanes<F, 1, kSide, Start::kAdd>(
          Product{.a = seen_weights,
                  .b = as_rows + first * sizes_.rows_layout.step,
                  .c = sums + seen.key_begin * kGroup * width_,
                  .b_step = sizes_.rows_layout.step,
                  .c_row = width_,
                  .steps = num_rows * kGroup / F::kPair,
                  .rows = groups * kGroup,
                  .columns = width_});
    }
  }

  const int64_t window_, key_head_;
  const int64_t heads_;  // of queries, of a key head
  const float log2_scale_;
  Carver carver_;
  BackwardPacks<F> packs_;
  const BackwardGradients<F> gradients_;
  const BackwardSizes& sizes_;
  const int64_t width_;
  typename F::Tiles tiles_;
  float *scores_, *slopes_;  // q . k and do . v of a unit of rows, as Meeting says
  Word* weights_;            // P of a pack of rows and one of keys by pairs of rows, kWeights
  Word* ds_by_key_;          // the same of dS
  Word* ds_by_row_;          // dS by pairs of keys, left_at
};

RowsAndKeys rows_and_keys(const AttentionBackward& a, std::span<const int64_t> keys, size_t s) {
  return {&a.segments[s], key_count(a.segments, keys, s), a.window};
}

// Whole documents: rows and keys are the same positions.
template <class F>
void run_documents(const AttentionBackward& a, const BackwardTask& task) {
  if (task.whole != nullptr) {
    const Share all = {{task.whole, task.whole->rows, a.window}, 0, task.whole->rows};
    BackwardWorker<F>(a, task.key_head, false, task.scratch).run_keys(all, true);
    return;
  }
  for_parts({a.segments, {}, {}}, task.row_begin, task.row_end, [&](const Part& part) {
    if (task.plan->whole(*part.segment)) return;
    const Share share = {{part.segment, part.keys, a.window}, part.begin, part.end};
    BackwardWorker<F> worker(a, task.key_head, false, task.scratch);
    task.owns_keys ? worker.run_keys(share, false) : worker.run_rows(share);
  });
}

// Parts of keys: rows of q or rows of k in [row_begin, row_end), segment by segment.
template <class F>
void run_parts(const AttentionBackward& a, const BackwardTask& task) {
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
    BackwardWorker<F> worker(a, task.key_head, true, task.scratch);
    const Share share = {of, begin, end};
    task.owns_keys ? worker.run_keys(share, false) : worker.run_rows(share);
  }
}

template <class F>
void run_task(const AttentionBackward& a, const BackwardTask& task) {
  task.keys.empty() ? run_documents<F>(a, task) : run_parts<F>(a, task);
}

void run_backward(const AttentionBackward& a, const BackwardTask& task, Isa isa) {
  if (a.q.dtype == DType::kF32) return run_task<WideF32>(a, task);
#if HWY_TARGET == HWY_AVX3
  if (isa == Isa::kAmx) return run_task<AmxDot>(a, task);
  if (isa == Isa::kAvx512Bf16) return run_task<Bf16Dot>(a, task);
#endif
  (void)isa;
  run_task<WideBf16>(a, task);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(run_backward);

namespace {

constexpr int64_t kLeastRows = 64;  // of a task that owns rows or keys: they share what it packs
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kSizes = 4;  // passes over whole documents, halving sizes: long ones first

// Of rows of this type and width, on this machine.
attention::BackwardSizes backward_sizes(int64_t d, DType dtype) {
  const bool pairs = dtype == DType::kBF16 && isa() >= Isa::kAvx512Bf16;
  return {d, pairs ? 2 : 1, pairs && isa() == Isa::kAmx};
}

// Rows of a task that owns rows or keys, for so many key heads: fewer than most if threads would have too little to do.
// Beside the products of tiles packing takes longer.
int64_t task_rows(const attention::BackwardSizes& sizes, int64_t rows, int64_t heads,
                  int64_t threads) {
  const bool tiles = sizes.side == attention::meeting_side(true);
  int64_t task = tiles ? 512 : 128;
  while (task > kLeastRows && (rows + task - 1) / task * heads < kTasksPerThread * threads)
    task /= 2;
  return task;
}

std::span<Word> scratch_of(const Context& ctx, int worker) {
  return {ctx.worker_scratch<Word>(worker), static_cast<size_t>(ctx.worker_bytes()) / sizeof(Word)};
}

// Which of kSizes passes takes a document of `rows`.
int64_t size_class(int64_t rows, int64_t longest) {
  int64_t c = 0;
  while (c + 1 < kSizes && rows <= longest >> (c + 1)) ++c;
  return c;
}

}  // namespace

int64_t attention_worker_bytes(const AttentionExtents& a) {
  constexpr int64_t kMostBytes = int64_t{32} << 20;  // measured up to 29 MiB
  if (a.documents * a.kv_heads < a.threads)
    return kWorkerScratchBytes;  // cut, for all to have work
  const int64_t wanted = attention::bytes_for_rows(backward_sizes(a.head_dim, a.dtype), a.rows);
  return std::clamp(attention::round_up(wanted, 64), kWorkerScratchBytes, kMostBytes);
}

void attention_backward(Context& ctx, const AttentionBackward& a) {
  const int64_t T = a.q.dims[0], K = a.k.dims[1], threads = ctx.pool->threads();
  const auto num_segments = static_cast<int64_t>(a.segments.size());
  MR_CHECK(a.q.dtype != DType::kF64, "f64 is for the reference");
  MR_CHECK(a.q.dims[2] <= attention::kMaxWidth, "head width %ld", long(a.q.dims[2]));
  cpu::attention_delta(ctx, {.delta = a.delta, .do_ = a.do_, .o = a.o});

  const Isa best = isa();
  const attention::BackwardSizes sizes = backward_sizes(a.q.dims[2], a.q.dtype);
  const attention::BackwardPlan plan = attention::make_backward_plan(a, ctx, sizes);
  int64_t longest = 0;
  bool all_whole = true;
  for (const Segment& s : a.segments) {
    plan.whole(s) ? void(longest = std::max(longest, s.rows)) : void(all_whole = false);
  }
  const int64_t rows = task_rows(sizes, T, K, threads);
  const int64_t blocks = all_whole ? 0 : (T + rows - 1) / rows, cut = 2 * blocks * K,
                whole = longest > 0 ? kSizes * num_segments * K : 0;
  const auto run = HWY_DYNAMIC_DISPATCH(run_backward);
  ctx.pool->parallel_for(cut + whole, [&](int64_t index, int worker) {
    attention::BackwardTask task = {.plan = &plan};
    task.scratch = scratch_of(ctx, worker);
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
    run(a, task, best);
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
  const int64_t rows = task_rows(backward_sizes(a.q.dims[2], a.q.dtype), T + R, K, threads);
  const int64_t row_blocks = (T + rows - 1) / rows, key_blocks = (R + rows - 1) / rows;
  const auto run = HWY_DYNAMIC_DISPATCH(run_backward);
  const Isa best = isa();
  ctx.pool->parallel_for((row_blocks + key_blocks) * K, [&](int64_t index, int worker) {
    attention::BackwardTask task = {
        .key_head = index % K, .keys = p.keys, .scratch = scratch_of(ctx, worker)};
    // Keys in order and rows from the last on: long walks first.
    const int64_t i = index / K;
    task.owns_keys = i < key_blocks;
    task.row_begin = (task.owns_keys ? i : key_blocks + row_blocks - 1 - i) * rows;
    task.row_end = std::min(task.owns_keys ? R : T, task.row_begin + rows);
    run(a, task, best);
  });
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
