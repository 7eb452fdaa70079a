// Fails if slots are added in another order than neighbours first, or what one step left is in the
// next.
#include "train/slot_tree.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

float slot_value(int64_t slot, int64_t i, uint64_t step) {
  return static_cast<float>(
      random_uniform(step, Stream::kTest, static_cast<uint64_t>(slot), static_cast<uint64_t>(i)) *
          1e3 -
      500);
}

// The sum of slots [begin, end): the first 2^k < n, and the rest.
float tree(int64_t begin, int64_t end, int64_t i, uint64_t step) {
  if (end - begin == 1) return slot_value(begin, i, step);
  int64_t middle = begin + 1;
  while (begin + 2 * (middle - begin) < end) middle = begin + 2 * (middle - begin);
  return tree(begin, middle, i, step) + tree(middle, end, i, step);
}

TEST(SlotTree, SumsNeighboursFirstForEveryNumberOfSlots) {
  constexpr int64_t kCount = 1000;
  for (const int64_t slots : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 24, 32, 48, 64}) {
    Rig rig;
    Arena arena(Arena::Mode::kReal);
    SlotTree sum(arena, slots, kCount);
    int64_t buffers = 1;
    for (int64_t s = 1; s < slots; s *= 2) ++buffers;
    EXPECT_EQ(static_cast<int64_t>(arena.entries().size()), buffers);
    for (uint64_t step = 0; step < 3;
         ++step) {  // again and again, with no trace of the step before
      for (int64_t slot = 0; slot < slots; ++slot) {
        const Tensor t = sum.begin_slot(rig.ctx);
        for (int64_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(t.as<float>()[i], 0);
          t.as<float>()[i] = slot_value(slot, i, step);
        }
        sum.add(rig.ctx);
      }
      const Tensor root = sum.root();
      for (int64_t i = 0; i < kCount; ++i)
        ASSERT_EQ(root.as<float>()[i], tree(0, slots, i, step)) << "slots=" << slots << " i=" << i;
    }
  }
}

// Large and small by turns: another order rounds otherwise, and who leaves one out is far off.
double tree(std::span<const double> values) {
  if (values.size() == 1) return values[0];
  const size_t left = std::bit_ceil(values.size()) / 2;
  return tree(values.first(left)) + tree(values.subspan(left));
}

TEST(SlotTree, NumbersAreSummedInTheSameTree) {
  std::vector<double> values;
  for (int slots = 1; slots <= 64; ++slots) {
    values.push_back(slots % 3 == 0 ? 1e17 + slots : 1.0 / slots);
    EXPECT_EQ(slot_tree_sum(values), tree(values)) << slots;
  }
  EXPECT_EQ(slot_tree_sum({1, 2, 4}), 7);
}

TEST(SlotTreeDeathTest, OnlyWholeSums) {
  Rig rig;
  Arena arena(Arena::Mode::kReal);
  SlotTree sum(arena, 4, 8);
  sum.begin_slot(rig.ctx);
  sum.add(rig.ctx);
  EXPECT_DEATH(sum.root(), "1 of 4");
}

}  // namespace
}  // namespace moraine
