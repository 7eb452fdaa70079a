// TreeAttention, CacheShare: fails if rows over a cache dealt to ranks differ from rows over the whole cache
// beyond rounding, if ranks disagree in one bit, or if a repetition differs.
#include "parallel/tree_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/thread_ranks.h"
#include "kernels/attention.h"
#include "kernels/attention_allowed.h"
#include "parallel/cache_share.h"
#include "parallel/test_packed.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

// Two documents in the cache, dealt in blocks; rows [first, length) of each are asked for.
struct TreeCase {
  int64_t ranks, H, K, d, block;
  int64_t length[2], first[2];
};

constexpr TreeCase kTreeCases[] = {
    {1, 4, 2, 16, 16, {50, 9}, {49, 8}},
    {2, 4, 2, 24, 16, {50, 9}, {49, 8}},    // a decode row each; one rank has no key of the second
    {4, 2, 1, 64, 32, {301, 2}, {300, 0}},  // a prompt's first rows
    {3, 2, 2, 8, 16, {40, 70}, {31, 16}},   // chunks that begin on a block and before its end
    {2, 8, 2, 33, 64, {200, 128}, {0, 127}},  // a whole prompt; one that ends with a block
    {4, 2, 1, 16, 16, {64, 65}, {63, 64}},    // the last row of a round, the first of the next
};

struct WholeCache {
  WholeCache(Rig& rig, const TreeCase& c, DType dtype) {
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
                            .window = 0,
                            .scale = scale});
  }
  int64_t rows;
  Tensor q, k, v, o, lse;
  std::vector<Segment> segments;
  float scale;
};

void copy_row(const Tensor& to, int64_t to_row, const Tensor& from, int64_t from_row) {
  const Tensor source = from.rows(from_row, from_row + 1);
  std::memcpy(to.rows(to_row, to_row + 1).data, source.data, static_cast<size_t>(source.bytes()));
}

// o and lse of each rank.
std::vector<std::pair<Tensor, Tensor>> run_ranks(Rig& out, const TreeCase& c, const WholeCache& w) {
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
    // Pages of both documents, scattered; what this rank does not hold stays noise.
    const CacheShare share = {.members = c.ranks, .member = comm.rank(), .block = c.block};
    const auto pages_of = [&](int64_t length) { return (length - 1) / (c.block * c.ranks) + 1; };
    const int64_t first = pages_of(c.length[0]), pages = first + pages_of(c.length[1]);
    std::vector<int32_t> page;
    for (int64_t i = 0; i < pages; ++i)
      page.push_back(static_cast<int32_t>(2 * (pages - 1 - i) + 1));
    const int64_t R = (2 * pages + 1) * c.block;
    const Tensor k = rig.normal({R, c.K, c.d}, w.k.dtype, 8),
                 v = rig.normal({R, c.K, c.d}, w.k.dtype, 9);
    std::vector<Segment> segments;
    std::vector<int64_t> keys;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      Segment s = w.segments[i];
      const int64_t begin = s.key_begin;
      s.key_begin = i == 0 ? 0 : first;
      for (int64_t p = 0; p < c.length[i]; ++p) {
        if (!share.holds(p)) continue;
        const int64_t row = KeyPages{page, c.block}.row(s, share.held_before(p));
        copy_row(k, row, w.k, begin + p);
        copy_row(v, row, w.v, begin + p);
      }
      add_held_part(share, s, segments, keys);
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
                  .scale = w.scale,
                  .pages = {page, c.block}});
  });
  return results;
}

TEST(TreeAttention, EveryRankHasTheAnswerOfTheWholeCache) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const TreeCase& c : kTreeCases) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " ranks " + std::to_string(c.ranks) +
                   " block " + std::to_string(c.block));
      Rig rig;
      const WholeCache w(rig, c, dtype);
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
          c.ranks, [&](const auto& pair) { for_visible_pairs(w.segments, {}, 0, pair); });
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

// How many positions here each row of a chunk sees, by the pieces.
std::vector<int64_t> seen(const CacheShare& share, int64_t begin, int64_t rows) {
  std::vector<Segment> segments;
  std::vector<int64_t> keys, seen(static_cast<size_t>(rows));
  add_held_part(share, {.row_begin = 5, .rows = rows, .position_begin = begin, .key_begin = 7},
                segments, keys);
  for (size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(segments[i].key_begin, 7);
    for (int64_t t = 0; t < segments[i].rows; ++t)
      seen.at(static_cast<size_t>(segments[i].row_begin - 5 + t)) +=
          std::min(segments[i].position_begin + t + 1, keys[i]);
  }
  return seen;
}

// However a prompt is cut, each row sees the positions up to its own that are here.
TEST(CacheShare, PiecesOfAChunkSeeWhatEachRowSees) {
  for (const CacheShare share : {CacheShare{1, 0, 4}, CacheShare{2, 0, 4}, CacheShare{2, 1, 4},
                                 CacheShare{3, 0, 4}, CacheShare{3, 1, 4}, CacheShare{3, 2, 4}}) {
    std::vector<int64_t> held = {0};  // before each position
    for (int64_t p = 0; p < 50; ++p) held.push_back(held.back() + (share.holds(p) ? 1 : 0));
    for (int64_t begin = 0; begin < 30; ++begin) {
      EXPECT_EQ(share.held_before(begin), held[static_cast<size_t>(begin)]);
      for (int64_t rows = 1; rows < 14; ++rows)
        EXPECT_EQ(seen(share, begin, rows),
                  std::vector<int64_t>(held.begin() + begin + 1, held.begin() + begin + 1 + rows));
    }
  }
}

}  // namespace
}  // namespace moraine
