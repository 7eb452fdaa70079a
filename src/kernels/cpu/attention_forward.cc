// Forward attention with SIMD: a panel of sixteen rows keeps its running maximum, sum and output
// while the blocks of keys of its document go by.
//
// A task owns some groups of rows for one key head and the query heads that share it, or for several
// key heads. It packs each block of keys once, and all its panels use it. The rows of a panel belong
// to one group of positions: sixteen rows of one head, or, where the batch has few rows of a document
// (decoding), several heads that share keys. Then all key heads take turns, with tiles at a block of keys,
// with vectors at a strip (attention_few.h): heads lie side by side in memory, which decoding waits for,
// and are read from it together.
#include "kernels/attention.h"

#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_forward.cc"
#include "hwy/foreach_target.h"

#include "kernels/attention_part.h"
#include "kernels/cpu/attention_few.h"
#include "kernels/cpu/attention_keys.h"
#include "kernels/cpu/attention_packing.h"
#include "kernels/cpu/attention_panels.h"
#include "kernels/cpu/attention_products.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/attention_tasks.h"
#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

using namespace attention;

template <class F>
class ForwardWorker {
 public:
  using Element = typename F::Element;
  using Keys = KeyRows<Element>;
  using Ahead = KeysAhead<Element>;

  ForwardWorker(const AttentionForward& a, const ForwardTask& task, Word* scratch)
      : a_(a),
        task_(task),
        memory_(a),
        of_(a, !task.keys.empty()),
        softmax_(a),
        H_(a.q.dims[1]),
        K_(a.k.dims[1]),
        d_(a.q.dims[2]),
        words_(words<F>(d_)),
        width_(round_up(d_, kGroup)),
        key_layout_(right_layout(words_, kBlock, F::kTiles)),
        value_layout_(right_layout(kValueSteps, width_, F::kTiles)) {
    end_ = scratch + kWorkerScratchBytes / sizeof(Word);
    keys_ = take(scratch, right_words(key_layout_, words_, kBlock));
    values_ = take(scratch, right_words(value_layout_, kValueSteps, width_));
    scores_ = take(scratch, kTogether * kGroup * kBlock);
    weights_ = take(scratch, kTogether * kGroup * kBlock);
    rescale_ = take(scratch, kTogether * kGroup);
    const auto panel_words = static_cast<int64_t>(sizeof(Panel) / sizeof(Word)) + 16;
    const int64_t each = panel_words + words_of_rows();
    capacity_ = (end_ - scratch) / each;
    MR_CHECK(capacity_ > 0, "width %ld", long(d_));
    panels_ = reinterpret_cast<Panel*>(take(scratch, capacity_ * panel_words));
    rows_ = scratch;
  }

  void run() {
    const Documents documents = {a_.segments, task_.keys, a_.pages};
    for_parts(documents, task_.row_begin, task_.row_end, [&](const Part& part) {
      const int64_t heads = task_.key_end - task_.key_begin;
      few_ = panels_of_head(part) <= kFewPanels && few_fit(kFewPanels * heads);
      for (key_head_ = task_.key_begin; key_head_ < task_.key_end; ++key_head_) {
        for (int64_t g = part.begin / kGroup; g * kGroup < part.end; ++g) {
          const int64_t begin = std::max(part.begin, g * kGroup),
                        end = std::min(part.end, (g + 1) * kGroup);
          add_group(part, g, begin, end);
        }
        if (!few_) flush(part);
      }
      if (few_) flush(part);
    });
  }

 private:
  // Panels whose scores are computed, then weighed, then multiplied: what tiles have just stored, or a vector stores
  // for tiles, is waited for before it can be read.
  static constexpr int64_t kTogether = F::kTiles ? 4 : 1;
  // Half a dot more than there are: sums may begin with any group, and end with one that the block does not have.
  static constexpr int64_t kValueSteps = kBlock / F::kPair + (F::kTiles ? kGroup / F::kPair : 0);
  static constexpr int64_t kGroupsAhead = 2;          // of prefetches: 16 KiB at width 128
  static constexpr int64_t kRow = kBlock / F::kPair;  // words of a slot's weights
  static constexpr int64_t kPieceUnit = F::kTiles ? F::kPair * kGroup : kGroup;
  static constexpr int64_t kPieces = 4;  // of a group's keys, and of its values, between prefetches

  // Groups [from, to] of keys, of a block.
  struct KeyGroups {
    int64_t block, from, to;
  };

  static Word* take(Word*& from, int64_t n) {
    Word* p = from;
    from += round_up(n, 16);  // 64 bytes
    return p;
  }

  // Query heads of key head h that are the task's.
  std::pair<int64_t, int64_t> heads_of(int64_t h) const {
    const int64_t each = H_ / K_;
    return {std::max(task_.head_begin, h * each), std::min(task_.head_end, (h + 1) * each)};
  }

  int64_t words_of_rows() const { return round_up(kGroup * (words_ + width_), 16); }

  bool few_fit(int64_t panels) const {
    const int64_t more = F::kTiles ? 0 : FewRows<F>::scratch_words(d_, panels);
    return panels <= capacity_ && panels * words_of_rows() + more <= end_ - rows_;
  }

  int64_t panels_of_head(const Part& part) const {
    const auto [first, last] = heads_of(task_.key_begin);
    int64_t panels = 0;
    for (int64_t at = part.begin; at < part.end && panels <= kFewPanels;) {
      const int64_t end = std::min(part.end, (at / kGroup + 1) * kGroup);
      panels += ((end - at) * (last - first) + kGroup - 1) / kGroup;
      at = end;
    }
    return panels;
  }

  // Panels for rows [begin, end) of group g: the rows of every head of key_head_, in this order, by sixteens.
  void add_group(const Part& part, int64_t g, int64_t begin, int64_t end) {
    auto [head, head_end] = heads_of(key_head_);
    int64_t position = begin;
    while (head < head_end) {
      if (num_panels_ == capacity_) flush(part);
      Panel& panel = panels_[num_panels_];
      panel.q = rows_ + num_panels_ * words_of_rows();
      panel.o = panel.q + kGroup * words_;
      ++num_panels_;
      panel.group = g;
      panel.slots = 0;
      while (panel.slots < kGroup && head < head_end) {
        panel.slot_row[panel.slots] = part.row(position) * H_ + head;
        panel.slot_lane[panel.slots++] = position - g * kGroup;
        if (++position == end) {
          position = begin;
          ++head;
        }
      }
      of_.start(panel);
    }
  }

  // All keys that the panels see, block by block; then the panels are done. Few are of all key heads, as many of each.
  void flush(const Part& part) {
    if (num_panels_ == 0) return;
    if constexpr (!F::kTiles) {
      if (few_) return flush_few(part);
    }
    const int64_t first = first_key_group(panels_[0].group * kGroup, a_.window),
                  last = std::min((part.keys - 1) / kGroup, panels_[num_panels_ - 1].group),
                  first_block = first / kBlockGroups;
    turned_ = few_ && F::kTiles && d_ % (2 * cpu::kAmxWords) == 0;
    if (turned_) turn_queries();
    if (in_turns()) ask_for_block(part, first_block);
    for (int64_t block = first_block; block <= last / kBlockGroups; ++block) {
      const KeyGroups here = {block, std::max(block * kBlockGroups, first),
                              std::min((block + 1) * kBlockGroups - 1, last)};
      if (!few_) {
        add_keys(part, here, 0, num_panels_);
        continue;
      }
      const int64_t each = num_panels_ / (task_.key_end - task_.key_begin);
      key_head_ = task_.key_begin;
      for (int64_t i = 0; i < num_panels_; i += each, ++key_head_)
        add_keys(part, here, i, i + each);
    }
    finish();
  }

  void flush_few(const Part& part) {
    const FewPanels few = {.panels = {panels_, static_cast<size_t>(num_panels_)},
                           .heads = {task_.key_begin, task_.key_end - task_.key_begin}};
    FewRows<F>(a_, part, few, rows_ + num_panels_ * words_of_rows()).run();
    finish();
  }

  void finish() {
    for (int64_t i = 0; i < num_panels_; ++i) of_.finish(panels_[i]);
    num_panels_ = 0;
  }

  // Panels [first, end), all of which see groups [from, to] of a block; none if first == end.
  struct Together {
    int64_t first, end, from, to;
    bool begins;  // no earlier groups

    bool any() const { return first < end; }
  };

  // The first ones of panels [first, end) that see any of the block.
  Together next(const KeyGroups& here, int64_t first, int64_t end) const {
    const auto seen_by = [&](int64_t i) {
      const int64_t g = panels_[i].group, begin = first_key_group(g * kGroup, a_.window),
                    from = std::max(here.from, begin);
      return Together{i, i + 1, from, std::min(here.to, g), from == begin};
    };
    for (int64_t i = first; i < end; ++i) {
      Together seen = seen_by(i);
      if (seen.from > seen.to) continue;
      const auto also = [&](const Together& t) {
        return t.from == seen.from && t.to == seen.to && t.begins == seen.begins;
      };
      while (seen.end < end && seen.end - i < kTogether && also(seen_by(seen.end))) ++seen.end;
      return seen;
    }
    return {end, end, 0, 0, false};
  }

  // Keys of key_head_ to its panels, [first, end).
  void add_keys(const Part& part, const KeyGroups& here, int64_t first, int64_t end) {
    prepare(part, here, first, end);
    for (Together now = next(here, first, end); now.any(); now = next(here, now.end, end)) {
      turned_ ? turn_scores(now.first - first, now, here) : score(now, here);
      for (int64_t i = 0; i < now.end - now.first; ++i) {
        softmax_.weigh(part, {.panel = &panels_[now.first + i],
                              .from = now.from,
                              .to = now.to,
                              .scores = scores_ + i * kGroup * kBlock,
                              .weights = weights_ + i * kGroup * kRow,
                              .rescale = rescale_ + i * kGroup});
      }
      add_values(now, here);
    }
  }

  HWY_INLINE void prepare(const Part& part, const KeyGroups& here, [[maybe_unused]] int64_t first,
                          [[maybe_unused]] int64_t end) {
    if constexpr (F::kTiles) {
      if (turned_) return score_keys(part, here, first, end);
    }
    pack_keys(part, here);
  }

  // Positions that the document does not have yet become zeros. In pieces, because what is asked for at once waits for
  // a place among the few lines that a core has under way, and all behind it.
  HWY_NOINLINE void pack_keys(const Part& part, const KeyGroups& here) {
    const int64_t piece = round_up((d_ + kPieces - 1) / kPieces, kPieceUnit);
    for (int64_t g = here.from; g <= here.to; ++g) {
      const int64_t number = g - here.block * kBlockGroups;
      const Keys keys = memory_.rows(part, g, key_head_);
      const Ahead ahead = ahead_of(part, g);
      for (int64_t i = 0; i < kPieces; ++i) {
        memory_.ask_for(ahead, i);
        const int64_t c = i * piece, n = std::min(piece, d_ - c);
        if (n <= 0) continue;
        pack_columns<F>(keys.k + c, K_ * d_, keys.rows, n,
                        keys_ + c / F::kPair * key_layout_.step + number * key_layout_.group,
                        key_layout_.step);
      }
      pack_values(keys, ahead, number);
    }
    end_values(here);
  }

  // Those of the block's group `number`.
  HWY_INLINE void pack_values(const Keys& keys, const Ahead& ahead, int64_t number) {
    for (int64_t i = 0; i < kPieces; ++i) {
      memory_.ask_for(ahead, kPieces + i);
      const int64_t r = i * kGroup / kPieces;
      pack_rows<F>(keys.v + r * K_ * d_, K_ * d_, keys.rows - r, kGroup / kPieces, d_,
                   values_ + (number * kGroup + r) / F::kPair * value_layout_.step, value_layout_);
    }
  }

  // A dot that ends in half multiplies zero weights with the group behind, which must be numbers.
  HWY_INLINE void end_values(const KeyGroups& here) {
    if constexpr (F::kTiles) {
      Word* behind = values_ + (here.to + 1 - here.block * kBlockGroups) * kGroup / F::kPair *
                                   value_layout_.step;
      for (int64_t c = 0; c < width_; c += kGroup, behind += value_layout_.group)
        std::memset(behind, 0, kTileWords / 2 * sizeof(Word));
    }
  }

  // Few panels on tiles: keys are the left operand as they lie in memory and queries the right one, which takes the
  // same sums; then the scores of a group, 16 keys x 16 slots, are turned round.
  float* turned(int64_t panel, int64_t number) {
    return scores_ + (kFewPanels + panel) * kGroup * kBlock + number * kTileWords;
  }

  void turn_queries() {
    for (int64_t i = 0; i < num_panels_; ++i) {
      for (int64_t w = 0; w < words_ * kGroup; w += kTileWords) {
        pack_columns<F>(reinterpret_cast<const Element*>(panels_[i].q + w), F::kPair * kGroup,
                        kGroup, F::kPair * kGroup, keys_ + w, kGroup);
      }
      std::memcpy(panels_[i].q, keys_, static_cast<size_t>(words_ * kGroup) * sizeof(Word));
    }
  }

  HWY_NOINLINE void score_keys(const Part& part, const KeyGroups& here, int64_t first,
                               int64_t end) {
    for (int64_t g = here.from; g <= here.to; ++g) {
      const int64_t number = g - here.block * kBlockGroups;
      const Keys keys = memory_.rows(part, g, key_head_);
      const Ahead ahead = ahead_of(part, g);
      for (int64_t i = 0; i < kPieces; ++i) memory_.ask_for(ahead, i);
      const bool whole = keys.rows == kGroup;  // else the document's last
      if (!whole) pack_left(keys.k, K_ * d_, keys.rows, d_, keys_);
      for (int64_t i = first; i < end; ++i) {
        multiply_tiles<Start::kZero>(tiles_,
                                     {.a = whole ? reinterpret_cast<const Word*>(keys.k) : keys_,
                                      .b = panels_[i].q,
                                      .c = turned(i - first, number),
                                      .a_row = whole ? K_ * words_ : kGroup,
                                      .a_step = whole ? kGroup : kTileWords,
                                      .rows = 1,
                                      .columns = 1,
                                      .dots = words_ / kGroup});
      }
      pack_values(keys, ahead, number);
    }
    end_values(here);
  }

  // Scores from score_keys, of which the first ones' number is `number`.
  void turn_scores(int64_t number, const Together& of, const KeyGroups& here) {
    for (int64_t i = 0; i < of.end - of.first; ++i) {
      float* scores = scores_ + i * kGroup * kBlock;
      for (int64_t g = of.from; g <= of.to; ++g)
        pack_columns<WideF32>(turned(number + i, g - here.block * kBlockGroups), kGroup, kGroup,
                              panels_[of.first + i].slots, scores + (g - of.from) * kTileWords,
                              kGroup);
    }
  }

  bool in_turns() const { return few_ && task_.key_end - task_.key_begin > 1; }

  // While group g is packed: this head's keys a little later; or if several heads take turns at a block, a share of the
  // next one, of all heads and in the order of memory.
  Ahead ahead_of(const Part& part, int64_t g) const {
    constexpr int64_t kAll = 2 * kPieces;
    if (!in_turns())
      return {memory_.rows(part, g + kGroupsAhead, key_head_), d_, 0, kAll, !turned_};
    const int64_t heads = task_.key_end - task_.key_begin,
                  turn = (key_head_ - task_.key_begin) * kBlockGroups + g % kBlockGroups,
                  later = (g / kBlockGroups + 1) * kBlockGroups + turn / heads;
    return {memory_.rows(part, later, task_.key_begin), heads * d_, turn % heads * kAll,
            heads * kAll, false};
  }

  void ask_for_block(const Part& part, int64_t block) const {
    const int64_t columns = (task_.key_end - task_.key_begin) * d_;
    for (int64_t g = block * kBlockGroups; g < (block + 1) * kBlockGroups; ++g)
      memory_.ask_for({memory_.rows(part, g, task_.key_begin), columns, 0, 1, false}, 0);
  }

  // What is packed of keys and values from group `from` on.
  const Word* packed_keys(int64_t from, const KeyGroups& here) const {
    return keys_ + (from - here.block * kBlockGroups) * key_layout_.group;
  }
  const Word* packed_values(int64_t from, const KeyGroups& here) const {
    return values_ + (from - here.block * kBlockGroups) * kGroup / F::kPair * value_layout_.step;
  }

  void score(const Together& of, const KeyGroups& here) {
    if constexpr (F::kTiles) {
      multiply_tiles<Start::kZero>(tiles_, {.a = panels_[of.first].q,
                                            .b = packed_keys(of.from, here),
                                            .c = scores_,
                                            .a_rows = words_of_rows(),
                                            .b_columns = key_layout_.group,
                                            .c_rows = kGroup * kBlock,
                                            .rows = of.end - of.first,
                                            .columns = of.to - of.from + 1,
                                            .dots = words_ / kGroup});
    } else {
      multiply_lanes<F, 1, kGroup, Start::kZero>(
          Product{.a = panels_[of.first].q,
                  .b = packed_keys(of.from, here),
                  .c = scores_,
                  .b_step = key_layout_.step,
                  .c_row = kBlock,
                  .steps = words_,
                  .rows = panels_[of.first].slots,
                  .columns = (of.to - of.from + 1) * kGroup});
    }
  }

  void add_values(const Together& of, const KeyGroups& here) {
    if constexpr (F::kTiles) {
      for (int64_t i = of.first; i < of.end; i += 2)
        add_values_of(i, std::min(i + 2, of.end), of, here);
    } else {
      multiply_lanes<F, kRow, 1, Start::kScale>(
          Product{.a = weights_,
                  .b = packed_values(of.from, here),
                  .c = panels_[of.first].o,
                  .b_step = value_layout_.step,
                  .c_row = width_,
                  .steps = (of.to - of.from + 1) * kGroup / F::kPair,
                  .rows = panels_[of.first].slots,
                  .columns = width_,
                  .scale = rescale_});
    }
  }

  // The same with tiles, of panels [first, end): sums are scaled just before, which brings them near.
  HWY_INLINE void add_values_of(int64_t first, int64_t end, const Together& of,
                                const KeyGroups& here) {
    for (int64_t i = first; i < end && !of.begins; ++i)
      of_.scale_sums(panels_[i], rescale_ + (i - of.first) * kGroup);
    const TileProduct p = {.a = weights_ + (first - of.first) * kGroup * kRow,
                           .b = packed_values(of.from, here),
                           .c = panels_[first].o,
                           .a_rows = kGroup * kRow,
                           .b_columns = value_layout_.group,
                           .c_rows = words_of_rows(),
                           .rows = end - first,
                           .columns = width_ / kGroup,
                           .dots = (of.to - of.from + 2) / 2};
    of.begins ? multiply_tiles<Start::kZero>(tiles_, p) : multiply_tiles<Start::kAdd>(tiles_, p);
  }

  const AttentionForward& a_;
  const ForwardTask& task_;
  const KeyMemory<Element> memory_;
  const PanelRows<F> of_;
  const PanelSoftmax<F> softmax_;
  const int64_t H_, K_, d_, words_, width_;
  const RightLayout key_layout_, value_layout_;
  Word *keys_, *values_, *weights_, *rows_, *end_;
  float *scores_, *rescale_;
  Panel* panels_;
  typename F::Tiles tiles_;
  int64_t capacity_, num_panels_ = 0;
  int64_t key_head_ = 0;
  bool few_ = false;     // panels of each key head, all at once
  bool turned_ = false;  // score_keys, not pack_keys
};

void run_forward(const AttentionForward& a, const ForwardTask& task, Isa isa, Word* scratch) {
  if (a.q.dtype == DType::kF32) {
    ForwardWorker<WideF32>(a, task, scratch).run();
    return;
  }
#if HWY_TARGET == HWY_AVX3
  if (isa == Isa::kAmx) {
    ForwardWorker<AmxDot>(a, task, scratch).run();
    return;
  }
  if (isa == Isa::kAvx512Bf16) {
    ForwardWorker<Bf16Dot>(a, task, scratch).run();
    return;
  }
#endif
  (void)isa;
  ForwardWorker<WideBf16>(a, task, scratch).run();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {

HWY_EXPORT(run_forward);

namespace {

// Any split gives the same bits. The last rows of the batch, which tend to see most keys, go first.
void forward_tasks(Context& ctx, const AttentionForward& a, std::span<const int64_t> keys) {
  const int64_t T = a.q.dims[0], H = a.q.dims[1], group = H / a.k.dims[1];
  MR_CHECK(a.q.dtype != DType::kF64, "f64 is for the reference");
  MR_CHECK(a.q.dims[2] <= attention::kMaxWidth, "head width %ld", long(a.q.dims[2]));
  if (T == 0) return;
  const attention::ForwardPlan plan = attention::make_forward_plan(a, ctx.pool->threads());
  const int64_t rows = plan.rows, splits = plan.splits;
  const int64_t blocks = (T + rows - 1) / rows, heads = H / splits;
  const auto run = HWY_DYNAMIC_DISPATCH(run_forward);
  const Isa best = isa();
  ctx.pool->parallel_for(blocks * splits, [&](int64_t index, int worker) {
    const int64_t block = blocks - 1 - index / splits, head = index % splits * heads;
    run(a,
        {.row_begin = block * rows,
         .row_end = std::min(T, (block + 1) * rows),
         .key_begin = head / group,
         .key_end = (head + heads - 1) / group + 1,
         .head_begin = head,
         .head_end = head + heads,
         .keys = keys},
        best, ctx.worker_scratch<Word>(worker));
  });
}

}  // namespace

void attention_forward(Context& ctx, const AttentionForward& a) { forward_tasks(ctx, a, {}); }

void attention_part_forward(Context& ctx, const AttentionPartForward& a) {
  forward_tasks(ctx,
                {.o = a.o,
                 .lse = a.lse,
                 .q = a.q,
                 .k = a.k,
                 .v = a.v,
                 .segments = a.segments,
                 .window = a.window,
                 .scale = a.scale,
                 .pages = a.pages},
                a.keys);
}

}  // namespace moraine::cpu
#endif  // HWY_ONCE
