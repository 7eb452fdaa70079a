// ServingPlacer: what ranks have seen becomes the same guests on all of them, with their weights, or none.
//
// Fails if ranks place differently, a slot has another expert's weights than its table says, a hot expert or a slow
// rank is not answered, what would not pay is done, or rows are counted wrong.
#include "parallel/serving_placer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "base/error.h"
#include "comm/all_ranks.h"
#include "comm/thread_ranks.h"
#include "kernels/gpu/gpu_arena_memory.h"
#include "parallel/test_late_gpu.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::Rig;

constexpr int kMembers = 3;
constexpr int64_t kServed = 7, kLayerCount = 2, kRowCount = 700;  // experts; rows of a step

struct ServingJob {
  ServingPlacement options = {.mode = PlacementMode::kBalanced,
                              .slots = 2,
                              .every_steps = 4,
                              .gate = 0.05,
                              .across_hosts = true};
  bool hot = true;  // half of all rows of layer 1 go to expert 0
  double slow = 1;  // times the time of a row on rank 2
  double row_seconds = 1e-4;
  int64_t steps = 60;  // without those while weights are under way
};

struct ServingAnswer {
  std::vector<GuestTable> tables;  // by rank and layer
  std::vector<double> share;       // of the rows of the last step, by rank
  int64_t wrong_bytes = 0;         // in slots
  ServingLoad load = {};
  int64_t changes = 0;
};

// Every byte of an expert's pack, of layer and matrix.
uint8_t pattern(int64_t layer, int64_t expert, int64_t matrix) {
  return static_cast<uint8_t>(1 + layer * 50 + expert * 3 + matrix);
}

// One rank: its experts' packs are filled with what says whose they are.
class ServingRank {
 public:
  ServingRank(Transport& transport, const ServingJob& job)
      : job_(job),
        comm_(transport, all_ranks(transport), 0, "experts", 60),
        background_(transport, all_ranks(transport), 1, "guests", 60),
        gather_(comm_, kServed, gather_places(comm_, job.options, kLayerCount, kServed)),
        guests_(background_, gather_.shape()),
        placer_(gather_, gather_.shape().slots > 0 ? &guests_ : nullptr, job.options) {
    for (int64_t l = 0; l < kLayerCount; ++l)
      guests_.add_layer(arena_, {.gate_up = held(l, 0, 8), .down = held(l, 1, 4)});
  }

  void run(ServingAnswer* answer, std::mutex& mutex) {
    const Tensor expert = rig_.zeros({kRowCount, 1}, DType::kI32),
                 group = rig_.zeros({kRowCount, 1}, DType::kI32);
    int64_t mine = 0, changes = 0;
    for (int64_t step = 0; step < job_.steps; step += placer_.sends() ? 0 : 1) {
      for (int64_t l = 0; l < kLayerCount; ++l) {
        for (int64_t i = 0; i < kRowCount; ++i)
          expert.as<int32_t>()[i] =
              l == 1 && job_.hot && i % 2 == 0 ? 0 : static_cast<int32_t>(i / 2 % kServed);
        mine = rows_here(gather_.split(ctx_, l, expert, group));
        gather_.computed(job_.row_seconds * static_cast<double>(mine) *
                         (comm_.rank() == 2 ? job_.slow : 1));
      }
      placer_.end_step();
      changes += placer_.take_change() ? 1 : 0;
    }
    const std::lock_guard lock(mutex);
    for (int64_t l = 0; l < kLayerCount; ++l) answer->tables.push_back(gather_.guests(l));
    answer->wrong_bytes += wrong_bytes();
    if (comm_.rank() == 0) answer->load = placer_.load(), answer->changes = changes;
    answer->share.resize(kMembers);
    answer->share[static_cast<size_t>(comm_.rank())] =
        static_cast<double>(mine) / static_cast<double>(kRowCount);
  }

 private:
  PackedMatrix held(int64_t layer, int64_t matrix, int64_t n) {
    const int64_t me = comm_.rank(), held = gather_.shape().held(me);
    const PackedMatrix pack = take_packed(arena_, "packs", {.groups = held, .n = n, .k = 4});
    const int64_t bytes = packed_group_bytes(pack);
    for (int64_t e = 0; e < held; ++e)
      std::memset(packed_group(pack, e), pattern(layer, gather_.shape().begin(me) + e, matrix),
                  static_cast<size_t>(bytes));
    return pack;
  }

  int64_t rows_here(const Tensor& group) const {
    const int64_t begin = gather_.group_begin(comm_.rank()),
                  end = gather_.group_begin(comm_.rank() + 1);
    int64_t rows = 0;
    for (int64_t i = 0; i < kRowCount; ++i)
      rows += group.as<int32_t>()[i] >= begin && group.as<int32_t>()[i] < end ? 1 : 0;
    return rows;
  }

  int64_t wrong_bytes() const {
    int64_t wrong = 0;
    for (int64_t l = 0; l < kLayerCount; ++l) {
      for (int64_t c = 0; c < gather_.shape().slots; ++c) {
        const int32_t e =
            gather_.guests(l).expert[static_cast<size_t>(comm_.rank() * gather_.shape().slots + c)];
        if (e < 0) continue;
        wrong += wrong_in(guests_.packs(l).gate_up, c, pattern(l, e, 0)) +
                 wrong_in(guests_.packs(l).down, c, pattern(l, e, 1));
      }
    }
    return wrong;
  }
  static int64_t wrong_in(const PackedMatrix& pack, int64_t slot, uint8_t want) {
    const int64_t bytes = packed_group_bytes(pack);
    const std::byte* at = packed_group(pack, slot);
    return bytes - std::count(at, at + bytes, std::byte{want});
  }

  const ServingJob& job_;
  Communicator comm_, background_;
  ExpertGather gather_;
  Context ctx_;
  Arena arena_{Arena::Mode::kReal};
  Rig rig_{Backend::kCpu, 1};
  ServingGuests guests_;
  ServingPlacer placer_;
};

ServingAnswer serve(const ServingJob& job) {
  ServingAnswer answer;
  std::mutex mutex;
  run_thread_ranks(kMembers,
                   [&](Transport& transport) { ServingRank(transport, job).run(&answer, mutex); });
  for (size_t i = kLayerCount; i < answer.tables.size(); ++i)
    EXPECT_EQ(answer.tables[i], answer.tables[i % kLayerCount]) << "ranks place differently";
  EXPECT_EQ(answer.wrong_bytes, 0);
  return answer;
}

// Packs in a device's memory have no padding, which what is not worth its bytes is measured by.
TEST(ServingGuests, OfADeviceWhatTravelsIsCounted) {
  run_thread_ranks(2, [](Transport& transport) {
    Communicator comm(transport, all_ranks(transport), 1, "guests", 60);
    testing::LateGpu gpu;
    gpu::GpuArenaMemory memory{gpu};
    Arena arena{Arena::Mode::kReal, &memory};
    ServingGuests guests(comm, {.experts = 2, .members = 2, .slots = 1}, &gpu);
    const auto pack = [&arena](int64_t n) {
      constexpr int64_t kWidth = 3;
      return PackedMatrix{
          .data = arena.take_bytes("packs", "weights", n * kWidth * dtype_bytes(DType::kBF16)),
          .dtype = DType::kBF16,
          .n = n,
          .k = kWidth};
    };
    guests.add_layer(arena, {.gate_up = pack(5), .down = pack(3)});
    guests.send(0, {.expert = {1, 0}});
    guests.wait();
    constexpr int64_t kBytes = (5 + 3) * 3 * 2;
    EXPECT_EQ(guests.bytes_of_guest(0), kBytes);
    EXPECT_EQ(guests.bytes_sent(), kBytes);
  });
}

TEST(ServingPlacer, AHotExpertIsSharedInItsLayerAlone) {
  const ServingAnswer answer = serve({});
  // 2 + 2 + 3 experts of a seventh each: 9/7 of the mean at home, and rank 0 has half of layer 1 more.
  EXPECT_GE(count_guests(answer.tables[1]), 1);
  EXPECT_NEAR(answer.load.home_load_over_mean, (9.0 / 7 + 3 * (0.5 + 0.5 * 2 / 7)) / 2, 0.02);
  EXPECT_LT(answer.load.rank_load_over_mean, 1.15);
  for (const double share : answer.share) EXPECT_NEAR(share, 1.0 / 3, 0.05);
  EXPECT_GE(answer.changes, 1);
  EXPECT_EQ(answer.load.guests, count_guests(answer.tables[0]) + count_guests(answer.tables[1]));
}

TEST(ServingPlacer, WhatDoesNotPayIsNotDone) {
  ServingJob job;
  job.options.gate = 0.9;
  EXPECT_EQ(serve(job).load.guests, 0);
  job = {};
  job.row_seconds = 1e-12;  // sending takes longer
  EXPECT_EQ(serve(job).load.guests, 0);
  job = {};
  job.options.mode = PlacementMode::kStatic;
  const ServingAnswer answer = serve(job);
  EXPECT_EQ(answer.load.guests, 0);
  EXPECT_GT(answer.load.home_load_over_mean, 1.3);
  EXPECT_EQ(answer.load.rank_load_over_mean, answer.load.home_load_over_mean);
}

TEST(ServingPlacer, ASlowRankGetsFewerRows) {
  const ServingAnswer answer = serve({.hot = false, .slow = 3});
  // Rates 1, 1, 1/3: of all rows 3/7, 3/7, 1/7.
  EXPECT_NEAR(answer.share[2], 1.0 / 7, 0.05);
  EXPECT_NEAR(answer.share[0], 3.0 / 7, 0.05);
}

TEST(ServingPlacer, ShuffledFillsSlotsWithTheirWeightsAtEveryStep) {
  ServingJob job;
  job.options.mode = PlacementMode::kShuffled;
  std::vector<GuestTable> before;
  for (const int64_t steps : {1, 2, 30}) {
    job.steps = steps;
    const ServingAnswer answer = serve(job);
    EXPECT_NE(answer.tables, before);
    EXPECT_EQ(answer.load.placed, steps);
    before = answer.tables;
  }
}

TEST(ServingPlacer, AnotherWordIsRefused) { EXPECT_THROW(placement_mode("some"), Error); }

}  // namespace
}  // namespace moraine
