// ContextRows: fails if a row has no rank or two, if a (row, key) pair of a document is computed
// never or twice, or if a halo crosses a document border or stops at the border of a chunk.
#include "parallel/context_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "kernels/attention_allowed.h"
#include "parallel/test_packed.h"

namespace moraine {
namespace {

using testing::for_visible_pairs;
using testing::Packed;
using testing::random_packed;

int64_t document_begin(const Packed& p, int64_t row) {
  return *(std::upper_bound(p.segment_begin.begin(), p.segment_begin.end(), row) - 1);
}

template <class F>
void for_random_cuts(const F& f) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    for (const int64_t ranks : {1, 2, 4}) {
      for (const int64_t length : {16, 17, 23, 61}) {
        const Packed p = random_packed(ranks, 1 + static_cast<int64_t>(seed % 3), length, seed);
        SCOPED_TRACE("seed " + std::to_string(seed) + " ranks " + std::to_string(ranks) +
                     " length " + std::to_string(length));
        f(p);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ContextRows, EveryRowHasOneRankAndItsPlaceInItsDocument) {
  for_random_cuts([](const Packed& p) {
    std::set<int64_t> seen;
    for (int64_t r = 0; r < p.layout.ranks; ++r) {
      const ContextRows mine = make_context_rows(p.layout, r, p.segment_begin);
      ASSERT_EQ(mine.rows(), p.layout.rows_of(r));
      ASSERT_LE(mine.rows(), p.layout.most_rows());
      int64_t at = 0;
      for (const Segment& s : mine.segments) {
        ASSERT_EQ(s.row_begin, at);
        for (int64_t t = 0; t < s.rows; ++t, ++at) {
          const int64_t row = mine.row[static_cast<size_t>(at)];
          ASSERT_TRUE(seen.insert(row).second) << row;
          ASSERT_EQ(s.key_begin, document_begin(p, row));
          ASSERT_EQ(s.key_begin + s.position_begin + t, row);
        }
      }
      ASSERT_EQ(at, mine.rows());
    }
    ASSERT_EQ(static_cast<int64_t>(seen.size()), p.layout.rows());
  });
}

TEST(ContextRows, LocalBeginIsWhereTheChunkLies) {
  for_random_cuts([](const Packed& p) {
    for (int64_t r = 0; r < p.layout.ranks; ++r) {
      const ContextRows mine = make_context_rows(p.layout, r, p.segment_begin);
      for (int64_t b = 0; b < p.layout.sequences; ++b) {
        for (const int slot : {0, 1}) {
          const int64_t at = p.layout.local_begin(r, b, slot);
          EXPECT_EQ(mine.row[static_cast<size_t>(at)],
                    p.layout.chunk(b, p.layout.chunk_of(r, slot)).begin);
          EXPECT_EQ(p.layout.owner(p.layout.chunk_of(r, slot)), r);
        }
      }
    }
  });
}

// All pairs of the hops, as rows of the batch; keys through the owner's rows.
using Pairs = std::map<std::pair<int64_t, int64_t>, int>;

Pairs wanted_pairs(const Packed& p, int64_t window) {
  Pairs pairs;
  for (int64_t i = 0; i < p.layout.rows(); ++i) {
    int64_t lo = document_begin(p, i);
    if (window > 0) lo = std::max(lo, i - window + 1);
    for (int64_t j = lo; j <= i; ++j) pairs[{i, j}] = 1;
  }
  return pairs;
}

TEST(ContextRows, HopsSeeEveryPairOnce) {
  for_random_cuts([](const Packed& p) {
    std::vector<ContextRows> of_rank;
    for (int64_t r = 0; r < p.layout.ranks; ++r) {
      of_rank.push_back(make_context_rows(p.layout, r, p.segment_begin));
    }
    for (const int64_t window : {0, 1, 5, 20}) {
      Pairs got;
      int64_t count = 0;
      for (const ContextRows& mine : of_rank) {
        const std::vector<RingHop> hops = ring_hops(mine, window);
        ASSERT_EQ(static_cast<int64_t>(hops.size()), p.layout.ranks);
        for (size_t h = 0; h < hops.size(); ++h) {
          ASSERT_EQ(hops[h].owner,
                    (mine.rank + p.layout.ranks - static_cast<int64_t>(h)) % p.layout.ranks);
          const ContextRows& owner = of_rank[static_cast<size_t>(hops[h].owner)];
          for (const KeyParts& parts : hops[h].slot) {
            for (size_t s = 0; s < parts.keys.size(); ++s) {
              const Segment& segment = parts.segments[s];
              ASSERT_GE(segment.position_begin, 0);
              ASSERT_LE(segment.key_begin + parts.keys[s], owner.rows());
              int64_t seen = 0;
              for_visible_pairs(
                  {&segment, 1}, {&parts.keys[s], 1}, window, [&](int64_t t, int64_t j) {
                    ++got[{mine.row[static_cast<size_t>(t)], owner.row[static_cast<size_t>(j)]}];
                    ++seen;
                  });
              ASSERT_GT(seen, 0) << "work for nothing";
            }
          }
        }
        count += visible_pairs(hops, window);
      }
      ASSERT_EQ(got, wanted_pairs(p, window)) << "window " << window;
      ASSERT_EQ(count, static_cast<int64_t>(got.size()));
    }
  });
}

TEST(ContextRows, GatheredPartsSeeEveryPairOnce) {
  for_random_cuts([](const Packed& p) {
    Pairs got;
    for (int64_t r = 0; r < p.layout.ranks; ++r) {
      const ContextRows mine = make_context_rows(p.layout, r, p.segment_begin);
      const KeyParts parts = gathered_parts(mine);
      for_visible_pairs(parts.segments, parts.keys, 6, [&](int64_t t, int64_t j) {
        ++got[{mine.row[static_cast<size_t>(t)], j}];
      });
    }
    ASSERT_EQ(got, wanted_pairs(p, 6));
  });
}

TEST(ContextRows, HalosStopAtDocumentsNotAtChunks) {
  for_random_cuts([](const Packed& p) {
    for (int64_t r = 0; r < p.layout.ranks; ++r) {
      const ContextRows mine = make_context_rows(p.layout, r, p.segment_begin);
      for (size_t s = 0; s < mine.segments.size(); ++s) {
        const bool continues = mine.segments[s].position_begin > 0;
        ASSERT_EQ(mine.halo_row[s] >= 0, continues);
      }
      for (int64_t b = 0; b < p.layout.sequences; ++b) {
        for (const int slot : {0, 1}) {
          const int64_t chunk = p.layout.chunk_of(r, slot);
          const RowRange rows = p.layout.chunk(b, chunk);
          const size_t halo = static_cast<size_t>(2 * b + slot);
          const int64_t before = rows.begin - document_begin(p, rows.begin);
          EXPECT_EQ(mine.before[halo], std::min<int64_t>(2, before));
          if (chunk + 1 == 2 * p.layout.ranks) {
            EXPECT_EQ(mine.after[halo], 0);
            continue;
          }
          const ContextRows next =
              make_context_rows(p.layout, p.layout.owner(chunk + 1), p.segment_begin);
          const size_t next_slot = chunk + 1 < p.layout.ranks ? 0 : 1;
          EXPECT_EQ(mine.after[halo], next.before[static_cast<size_t>(2 * b) + next_slot]);
        }
      }
    }
  });
}

// One document: the work of all ranks is equal to within a chunk squared.
TEST(ContextRows, ZigZagBalancesTheWork) {
  const ContextLayout layout = {4, 1, 256};
  const std::vector<int64_t> begin = {0};
  for (int64_t r = 0; r < 4; ++r) {
    const auto hops = ring_hops(make_context_rows(layout, r, begin), 0);
    EXPECT_EQ(visible_pairs(hops, 0), 256 * 257 / 2 / 4);
  }
}

TEST(ContextRows, HopsThatNobodySeesAreEmpty) {
  const ContextLayout layout = {4, 1, 64};
  const std::vector<int64_t> chunks = {0, 8, 16, 24, 32, 40, 48, 56};  // a document a chunk
  for (int64_t r = 0; r < 4; ++r) {
    const auto hops = ring_hops(make_context_rows(layout, r, chunks), 0);
    EXPECT_FALSE(hops[0].empty());
    for (size_t h = 1; h < 4; ++h) EXPECT_TRUE(hops[h].empty());
  }
  const std::vector<int64_t> whole = {0};
  const auto hops = ring_hops(make_context_rows(layout, 0, whole), 8);  // a window of a chunk
  EXPECT_TRUE(hops[2].empty());   // chunks 2 and 5 are not beside 0 and 7
  EXPECT_FALSE(hops[3].empty());  // chunk 6 is beside 7
}

TEST(ContextRows, SequencesTooShortAreRefused) {
  EXPECT_NO_THROW(check_context({4, 1, 16}));
  EXPECT_THROW(check_context({4, 1, 15}), Error);
}

}  // namespace
}  // namespace moraine
