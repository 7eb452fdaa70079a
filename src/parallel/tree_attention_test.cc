// TreeAttention: fails if rows over a cache cut among ranks differ from rows over the whole cache
// beyond rounding, if ranks disagree in one bit, or if a repetition differs.
#include "parallel/tree_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/thread_ranks.h"
#include "kernels/attention.h"
#include "kernels/attention_allowed.h"
#include "parallel/test_packed.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

// Two documents in the cache; rows [first, length) of each are asked for.
struct Case {
  int64_t ranks, H, K, d, window;
  int64_t length[2], first[2];
};

constexpr Case kCases[] = {
    {1, 4, 2, 16, 0, {50, 9}, {49, 8}},
    {2, 4, 2, 24, 0, {50, 9}, {49, 8}},       // a decode row each
    {4, 2, 1, 64, 0, {301, 2}, {300, 0}},     // ranks without a key of the second
    {4, 8, 2, 33, 40, {301, 60}, {300, 59}},  // a window on few ranks
    {3, 2, 2, 8, 0, {40, 70}, {33, 66}},      // several rows, no power of two
    {4, 2, 1, 16, 5, {64, 64}, {50, 62}},     // rows whose keys begin after a part
};

// Positions of a document on a rank.
RowRange part_of(const Case& c, int64_t length, int64_t rank) {
  return {rank * length / c.ranks, (rank + 1) * length / c.ranks};
}

struct Whole {
  Whole(Rig& rig, const Case& c, DType dtype) {
    rows = c.length[0] - c.first[0] + c.length[1] - c.first[1];
    const int64_t R = c.length[0] + c.length[1];
    q = rig.normal({rows, c.H, c.d}, dtype, 1, 1.5), k = rig.normal({R, c.K, c.d}, dtype, 2, 1.5);
    v = rig.normal({R, c.K, c.d}, dtype, 3);
    o = rig.zeros({rows, c.H, c.d}, DType::kF64), lse = rig.zeros({rows, c.H}, DType::kF64);
    scale = static_cast<float>(1 / std::sqrt(double(c.d)));
    const int64_t first = c.length[0] - c.first[0];
    segments = {{0, first, c.first[0], 0}, {first, rows - first, c.first[1], c.length[0]}};
    ref::attention_forward({.o = o,
                            .lse = lse,
                            .q = q,
                            .k = k,
                            .v = v,
                            .segments = segments,
                            .window = c.window,
                            .scale = scale});
  }
  int64_t rows;
  Tensor q, k, v, o, lse;
  std::vector<Segment> segments;
  float scale;
};

// o and lse of each rank.
std::vector<std::pair<Tensor, Tensor>> run_ranks(Rig& out, const Case& c, const Whole& w) {
  std::vector<std::pair<Tensor, Tensor>> results;
  for (int64_t r = 0; r < c.ranks; ++r) {
    results.emplace_back(out.zeros({w.rows, c.H, c.d}, w.q.dtype),
                         out.zeros({w.rows, c.H}, DType::kF32));
  }
  run_thread_ranks(static_cast<int>(c.ranks), [&](Transport& transport) {
    Communicator comm = world_of(transport);
    Rig rig(Backend::kCpu, 1);
    Arena arena(Arena::Mode::kReal);
    TreeAttention tree(arena, comm.size(), w.rows + 2, c.H, c.d);
    std::vector<Segment> segments;
    std::vector<int64_t> keys;
    // This rank's keys: its part of the first document, then of the second, after a gap.
    const RowRange part[2] = {part_of(c, c.length[0], comm.rank()),
                              part_of(c, c.length[1], comm.rank())};
    const int64_t at[2] = {1, 4 + part[0].count()}, R = at[1] + part[1].count();
    const Tensor k = rig.normal({R, c.K, c.d}, w.k.dtype, 8),
                 v = rig.normal({R, c.K, c.d}, w.k.dtype, 9);
    for (const int i : {0, 1}) {
      const int64_t begin = w.segments[static_cast<size_t>(i)].key_begin;
      for (const auto& [to, from] : {std::pair(k, w.k), {v, w.v}}) {
        const Tensor rows = from.rows(begin + part[i].begin, begin + part[i].end);
        std::memcpy(to.rows(at[i], at[i] + part[i].count()).data, rows.data,
                    static_cast<size_t>(rows.bytes()));
      }
      const Segment& s = w.segments[static_cast<size_t>(i)];
      add_cache_part({.row_begin = s.row_begin,
                      .rows = s.rows,
                      .position = s.position_begin,
                      .begin = part[i].begin,
                      .end = part[i].end,
                      .key_row = at[i]},
                     c.window, segments, keys);
    }
    const auto& [o, lse] = results[static_cast<size_t>(comm.rank())];
    tree.forward(rig.ctx, comm,
                 {.o = o,
                  .lse = lse,
                  .q = w.q,
                  .k = k,
                  .v = v,
                  .segments = segments,
                  .keys = keys,
                  .window = c.window,
                  .scale = w.scale});
  });
  return results;
}

TEST(TreeAttention, EveryRankHasTheAnswerOfTheWholeCache) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " ranks " + std::to_string(c.ranks) +
                   " window " + std::to_string(c.window));
      Rig rig;
      const Whole w(rig, c, dtype);
      const Tensor none = rig.zeros({w.rows, c.H, c.d}, DType::kF64),
                   delta = rig.zeros({w.rows, c.H}, DType::kF64);
      const AttentionAllowed allowed(
          {.q = w.q,
           .k = w.k,
           .v = w.v,
           .do_ = none,
           .lse = w.lse,
           .delta = delta,
           .scale = w.scale},
          c.ranks, [&](const auto& pair) { for_visible_pairs(w.segments, {}, c.window, pair); });
      const auto first = run_ranks(rig, c, w), second = run_ranks(rig, c, w);
      expect_allowed(first[0].first, w.o, allowed.o, "o");
      EXPECT_CLOSE(first[0].second, w.lse, tolerance(DType::kF32, c.length[0] + c.d));
      for (size_t r = 0; r < first.size(); ++r) {
        EXPECT_SAME_BITS(first[r].first, first[0].first);
        EXPECT_SAME_BITS(first[r].second, first[0].second);
        EXPECT_SAME_BITS(second[r].first, first[0].first);
        EXPECT_SAME_BITS(second[r].second, first[0].second);
      }
    }
  }
}

}  // namespace
}  // namespace moraine
