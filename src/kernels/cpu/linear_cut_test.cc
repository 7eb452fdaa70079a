// Fails if a product over rows is cut into tasks whose sums have no room, or that read the same weights.
#include "kernels/cpu/linear_cut.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>

#include "kernels/quantised.h"
#include "testing/rig.h"

namespace moraine::cpu {
namespace {

using moraine::testing::for_each_isa;

constexpr WeightFormat kFormats[] = {WeightFormat::kPlain, WeightFormat::kQ8, WeightFormat::kQ6,
                                     WeightFormat::kQ4};

// Of no memory: how it is cut depends on sizes alone.
RowsProduct product_of(int64_t n, int64_t k, WeightFormat format, std::span<const int64_t> rows) {
  return {.y = {},
          .x = {},
          .w = {.dtype = DType::kBF16, .groups = 1, .n = n, .k = k, .format = format},
          .rows = rows};
}

void expect_room(const RowsProduct& p, const LinearEngine& e) {
  for (const int threads : {1, 2, 16, 64}) {
    const RowsCut cut = choose_cut(p, e, threads);
    EXPECT_LE(waiting_bytes(p, e, cut), kWaitingBytes) << threads << " threads";
    EXPECT_GE(cut.column_blocks, 1);
    EXPECT_LE(cut.row_tiles, kMaxRowTiles);
  }
}

TEST(LinearCut, SumsThatWaitHaveRoom) {
  for_each_isa([](Isa cap) {
    for (const WeightFormat format : kFormats) {
      const LinearEngine e = linear_engine(product_of(1, 1, format, {}).w);
      for (const int64_t rows : {1, 33, 128, 480, 512, 2048, 4096}) {
        for (const int64_t n : {31, 1824, 2048, 4096, 8192, 262144}) {
          for (const int64_t k : {1024, 1152, 2048, 9728}) {
            SCOPED_TRACE(fmt::format("{} {} rows={} n={} k={}", isa_name(cap),
                                     weight_format_name(format), rows, n, k));
            const int64_t bounds[] = {0, rows};
            expect_room(product_of(n, k, format, bounds), e);
          }
        }
      }
    }
  });
}

// Else each tile's task would read it for itself.
TEST(LinearCut, TilesTakeAPanelFromMemoryTogether) {
  int64_t seen = 0;
  for_each_isa([&](Isa cap) {
    for (const WeightFormat format : kFormats) {
      const LinearEngine e = linear_engine(product_of(1, 1, format, {}).w);
      for (const int64_t tiles : {2, 3, 4}) {
        const int64_t rows = tiles * e.tile_rows - 1, bounds[] = {0, rows};
        const RowsProduct p = product_of(16384, 2048, format, bounds);
        if (!streams(p, e) || rows < e.ahead_rows) continue;
        for (const int threads : {1, 2, 16}) {
          const RowsCut cut = choose_cut(p, e, threads);
          EXPECT_EQ(cut.row_tiles, tiles) << isa_name(cap) << " " << weight_format_name(format);
          EXPECT_GE(cut.column_blocks, threads);
          ++seen;
        }
      }
    }
  });
  if (seen == 0) GTEST_SKIP() << "NOT TESTED: no engine of this machine asks for what comes next";
}

}  // namespace
}  // namespace moraine::cpu
