// ExpertGather: fails if a rank misses an answer, if its bits depend on which way it came, or if ranks choose different
// ways.
#include "parallel/expert_gather.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"
#include "comm/all_ranks.h"
#include "comm/thread_ranks.h"
#include "parallel/slot_choice.h"

namespace moraine {
namespace {

constexpr int64_t kGatheredExperts = 7, kGatheredWidth = 33, kMost = 12;

// Gathers a step of n rows, of which the last `skipped` have no expert; how many elements are wrong.
int64_t wrong_after(ExpertGather& gather, int64_t n, int64_t skipped) {
  std::vector<int64_t> at;
  for (int64_t e = 0; e <= kGatheredExperts; ++e)
    at.push_back((n - skipped) * e / kGatheredExperts);
  std::vector<float> memory(static_cast<size_t>((kMost + 1) * kGatheredWidth), -1);
  const Tensor y = gather.place(make_tensor(memory.data(), DType::kF32, {n, kGatheredWidth}));
  const auto value = [&](int64_t i) { return static_cast<float>(1000 * n + i); };
  const int64_t begin = at[static_cast<size_t>(gather.expert_begin())] * kGatheredWidth,
                end = at[static_cast<size_t>(gather.expert_end())] * kGatheredWidth;
  for (int64_t i = begin; i < end; ++i) y.as<float>()[i] = value(i);
  Context ctx;
  gather.gather(ctx, y, make_tensor(at.data(), DType::kI64, {kGatheredExperts + 1}));
  int64_t wrong = 0;
  for (int64_t i = 0; i < at.back() * kGatheredWidth; ++i) wrong += y.as<float>()[i] != value(i);
  return wrong;
}

TEST(ExpertGather, EveryAnswerIsThereAroundTheNumberOfRowsThatChangesTheWay) {
  for (const int ranks : {1, 2, 3, 7}) {
    run_thread_ranks(ranks, [](Transport& t) {
      Communicator comm(t, all_ranks(t), 0, "experts", 60);
      ExpertGather gather(comm, kGatheredExperts);
      gather.add_slots(kMost, kGatheredWidth, DType::kF32);
      for (const int64_t most : {int64_t{0}, int64_t{1}, kMost - 1, kMost}) {
        gather.use_slots(most);
        for (int round = 0; round < 5; ++round) {
          for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{2}, kMost - 1, kMost, kMost + 1})
            EXPECT_EQ(wrong_after(gather, n, n / 3), 0) << n << " rows, slots up to " << most;
        }
      }
      gather.settle();
    });
  }
}

TEST(SlotChoice, AllRanksChooseTheSameAndGatherRight) {
  const GatheredRows rows = {.rows = kMost, .width = kGatheredWidth, .dtype = DType::kF32};
  for (const std::string wanted : {"on", "off", "auto"}) {
    std::mutex mutex;
    std::set<int64_t> chosen;
    run_thread_ranks(3, [&](Transport& t) {
      Communicator comm(t, all_ranks(t), 0, "experts", 60);
      ExpertGather gather(comm, kGatheredExperts);
      const SlotChoice choice = choose_slots(gather, rows, wanted);
      EXPECT_EQ(choice.slots_us > 0, wanted == "auto");
      EXPECT_EQ(choice.all_gather_us > 0, wanted == "auto");
      for (const int64_t n : {int64_t{1}, choice.rows, choice.rows + 1})
        EXPECT_EQ(wrong_after(gather, n, 0), 0) << n;
      gather.settle();
      const std::lock_guard lock(mutex);
      chosen.insert(choice.rows);
    });
    ASSERT_EQ(chosen.size(), 1u) << wanted;
    EXPECT_GE(*chosen.begin(), wanted == "on" ? kMost : 0);
    EXPECT_LE(*chosen.begin(), wanted == "off" ? 0 : kMost);
  }
}

TEST(SlotChoice, SlotsAreForFewRows) {
  run_thread_ranks(2, [](Transport& t) {
    Communicator comm(t, all_ranks(t), 0, "experts", 60);
    ExpertGather gather(comm, kGatheredExperts);
    EXPECT_EQ(choose_slots(gather, {.rows = 4096, .width = 1}, "on").rows, kMostSlotRows);
  });
}

TEST(SlotChoice, AnotherWordIsRefused) {
  run_thread_ranks(1, [](Transport& t) {
    Communicator comm(t, all_ranks(t), 0, "experts", 60);
    ExpertGather gather(comm, kGatheredExperts);
    EXPECT_THROW(choose_slots(gather, {.rows = 1, .width = 1}, "yes"), Error);
  });
}

}  // namespace
}  // namespace moraine
