// RowBlocks: fails if a row is summed twice or never, if more blocks than fit the scratch at once
// lose their order, or if threads change the bits.
#include "kernels/cpu/row_blocks.h"

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "kernels/segment_rows.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

// Sums 1 / (row + column + 1), whose bits depend on the order, and counts the rounds.
std::vector<float> sums_of(Context& ctx, int64_t rows, int64_t width, int* rounds) {
  std::vector<float> total(static_cast<size_t>(width));
  const auto block = [&](int64_t begin, int64_t end, float* sums, int worker) {
    cpu::spare_scratch(ctx, worker)[0] = 1e30f;  // a task's own memory is not that of the sums
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t c = 0; c < width; ++c) sums[c] += 1.0f / static_cast<float>(t + c + 1);
    }
  };
  *rounds = 0;
  cpu::sum_row_blocks(ctx, rows, width, block, [&](const float* sums) {
    ++*rounds;
    for (int64_t c = 0; c < width; ++c) total[static_cast<size_t>(c)] += sums[c];
  });
  return total;
}

TEST(RowBlocks, SumsEveryRowOnce) {
  const int64_t wide = kSumsBytes / 4 / 4;  // four blocks in a round
  struct Case {
    int64_t rows, width;
    int rounds;
  };
  for (const Case& c : {Case{0, 3, 0}, Case{1, 1, 1}, Case{64, 17, 1}, Case{65, 1025, 1},
                        Case{9 * 64 + 1, wide, 3}}) {
    Rig one(Backend::kCpu, 1), three(Backend::kCpu, 3);
    int rounds = 0;
    const std::vector<float> sums = sums_of(one.ctx, c.rows, c.width, &rounds);
    EXPECT_EQ(rounds, c.rounds);
    EXPECT_EQ(sums_of(three.ctx, c.rows, c.width, &rounds), sums);
    for (int64_t column = 0; column < c.width; column += column < 128 ? 1 : 997) {
      double want = 0;
      for (int64_t t = 0; t < c.rows; ++t) want += 1.0 / static_cast<double>(t + column + 1);
      EXPECT_NEAR(sums[static_cast<size_t>(column)], want, 1e-5 * want);
    }
  }
}

TEST(RowBlocks, TasksCoverTheRows) {
  Rig rig(Backend::kCpu, 3);
  for (const int64_t rows : {0, 1, 16, 17, 100}) {
    std::vector<int> seen(static_cast<size_t>(rows));
    cpu::for_row_tasks(rig.ctx, rows, 16, [&](int64_t begin, int64_t end, int) {
      EXPECT_LE(end - begin, 16);
      for (int64_t t = begin; t < end; ++t) ++seen[static_cast<size_t>(t)];
    });
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(rows), 1));
  }
}

TEST(SegmentRows, FindsTheSegmentOfARow) {
  const std::vector<Segment> segments = {{0, 1, 0, 0}, {1, 5, 0, 0}, {6, 1, 0, 0}, {7, 2, 0, 0}};
  check_segments(segments, 9);
  const std::vector<int64_t> want = {0, 1, 1, 1, 1, 1, 2, 3, 3};
  for (int64_t t = 0; t < 9; ++t) EXPECT_EQ(segment_index(segments, t), want[size_t(t)]);
}

TEST(SegmentRowsDeathTest, HolesAndOverlapsAreBugs) {
  const std::vector<Segment> hole = {{0, 1, 0, 0}, {2, 5, 0, 0}};
  EXPECT_DEATH(check_segments(hole, 7), "row 2, wanted 1");
  const std::vector<Segment> empty = {{0, 0, 0, 0}};
  EXPECT_DEATH(check_segments(empty, 0), "has 0 rows");
  const std::vector<Segment> late = {{0, 3, 0, 0}};
  EXPECT_DEATH(check_segments(late, 4), "cover 3 of 4");
}

}  // namespace
}  // namespace moraine
