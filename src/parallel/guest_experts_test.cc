// GuestExperts of ranks with an emulated GPU each, whose copies happen late: fails if a guest's weights are another
// expert's, old, or not there when a layer has waited for them, or if a sum comes home to another expert or source,
// from another layer, or not at all.
#include "parallel/guest_experts.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/thread_ranks.h"
#include "kernels/gpu/gpu_arena_memory.h"
#include "kernels/host_copy.h"
#include "parallel/plan_placement.h"
#include "parallel/ranks.h"
#include "parallel/test_late_gpu.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

constexpr int kGuestRanks = 4;
constexpr int64_t kGuestExperts = 8, kHeld = kGuestExperts / kGuestRanks, kSlots = 3,
                  kGuestLayers = 4;
// Of the one matrix of an expert: less than a CPU's pack has.
constexpr int64_t kOutputs = 3, kInputs = 5, kElements = kOutputs * kInputs;

float weight(int round, int64_t layer, int64_t expert, int64_t pack) {
  return static_cast<float>(((round * kGuestLayers + layer) * kGuestExperts + expert) * 2 + pack);
}

float sum(int round, int64_t layer, int64_t expert, int64_t source) {
  return static_cast<float>(
      ((round * kGuestLayers + layer) * kGuestExperts + expert) * kGuestRanks + source);
}

// What a rank has of each layer, on its device.
struct RankGuests {
  explicit RankGuests(Transport& transport)
      : all(transport,
            make_mesh(kGuestRanks, transport.rank(), kGuestRanks, 1, kGuestRanks, kGuestExperts),
            30),
        exchange(all.experts, kGuestExperts, {.layers = kGuestLayers, .slots = kSlots}),
        guests(arena, all.guests, exchange,
               {.layers = kGuestLayers, .matrices = {kElements}, .training = true, .gpu = &gpu}) {
    for (int64_t l = 0; l < kGuestLayers; ++l) {
      packs.emplace_back();
      for (const auto& [n, k] : {std::pair(kOutputs, kInputs), {kInputs, kOutputs}})
        packs.back().push_back(take_packed(
            arena, "packs", {.dtype = DType::kF32, .groups = kHeld + kSlots, .n = n, .k = k}));
      guests.add_layer(arena, packs.back());
      home.push_back(arena.take("home", "gradients", DType::kF32, {kGuestRanks, kHeld, kElements}));
    }
  }
  // Elements of group or row i.
  Tensor row(const void* data, int64_t i) const {
    return make_tensor(static_cast<float*>(const_cast<void*>(data)) + i * kElements, DType::kF32,
                       {kElements});
  }
  void fill(const Tensor& there, float value) {
    const std::vector<float> host(kElements, value);
    copy_in(ctx, there, row(host.data(), 0));
  }
  void expect(const Tensor& there, float value) {
    std::vector<float> host(kElements);
    copy_out(ctx, row(host.data(), 0), there);
    EXPECT_EQ(host, std::vector<float>(kElements, value));
  }
  const std::vector<int32_t>& here(int64_t layer) const {
    return exchange.routes(layer).guests[static_cast<size_t>(exchange.member())];
  }
  bool served_at_home(int64_t layer, int64_t source, int64_t expert) const {
    return exchange.placement(layer).server[static_cast<size_t>(source * kGuestExperts + expert)] ==
           exchange.member();
  }

  LateGpu gpu;
  gpu::GpuArenaMemory memory{gpu};
  Arena arena{Arena::Mode::kReal, &memory};
  Pool pool{1};
  Context ctx = make_context(gpu, pool);
  Ranks all;
  ExpertExchange exchange;
  GuestExperts guests;
  std::vector<std::vector<PackedMatrix>> packs;  // by layer: of both directions
  std::vector<Tensor> home;                      // by layer [sources, held, elements]
};

// New weights and another placement, as after a step.
void send(RankGuests& r, int round) {
  r.guests.wait();
  for (int64_t l = 0; l < kGuestLayers; ++l) {
    r.exchange.place(l, shuffled_placement(r.exchange.shape(), 5,
                                           static_cast<uint64_t>(round * kGuestLayers + l)));
    for (int64_t e = 0; e < kHeld; ++e)
      for (size_t p = 0; p < 2; ++p)
        r.fill(r.row(r.packs[static_cast<size_t>(l)][p].data, e),
               weight(round, l, r.exchange.expert_begin() + e, static_cast<int64_t>(p)));
  }
  r.guests.send_weights();
}

int64_t expect_weights(RankGuests& r, int round, int64_t layer) {
  r.guests.wait_weights(layer);
  const std::vector<int32_t>& here = r.here(layer);
  for (size_t c = 0; c < here.size(); ++c)
    for (size_t p = 0; p < 2; ++p)
      r.expect(r.row(r.packs[static_cast<size_t>(layer)][p].data, kHeld + static_cast<int64_t>(c)),
               weight(round, layer, here[c], static_cast<int64_t>(p)));
  return static_cast<int64_t>(here.size());
}

// All layers' sums go home, more of them than are on their way at once.
void return_sums(RankGuests& r, int round) {
  for (int64_t l = kGuestLayers - 1; l >= 0; --l) {
    for (int64_t s = 0; s < kGuestRanks; ++s) {
      for (int64_t e = 0; e < kHeld; ++e)
        r.fill(r.row(r.home[static_cast<size_t>(l)].data, s * kHeld + e), -1);
      for (size_t c = 0; c < r.here(l).size(); ++c)
        r.fill(r.guests.gradient(l, s, 0)
                   .rows(static_cast<int64_t>(c), static_cast<int64_t>(c) + 1)
                   .reshaped({kElements}),
               sum(round, l, r.here(l)[c], s));
    }
    std::vector<Tensor> home;
    for (int64_t s = 0; s < kGuestRanks; ++s)
      home.push_back(r.home[static_cast<size_t>(l)].rows(s, s + 1).reshaped({kHeld, kElements}));
    r.guests.return_gradients(l, home);
  }
  r.guests.wait_gradients();
}

void expect_sums(RankGuests& r, int round) {
  for (int64_t l = 0; l < kGuestLayers; ++l) {
    for (int64_t s = 0; s < kGuestRanks; ++s) {
      for (int64_t e = 0; e < kHeld; ++e) {
        const int64_t expert = r.exchange.expert_begin() + e;
        r.expect(r.row(r.home[static_cast<size_t>(l)].data, s * kHeld + e),
                 r.served_at_home(l, s, expert) ? -1 : sum(round, l, expert, s));
      }
    }
  }
}

// Several steps, and in one of them no layer waits for its weights.
TEST(GuestExperts, OfADeviceWeightsComeAndSumsGoHomeThroughPinnedMemory) {
  run_thread_ranks(kGuestRanks, [](Transport& transport) {
    RankGuests r(transport);
    int64_t guests = 0;
    for (int round = 0; round < 4; ++round) {
      send(r, round);
      if (round == 1) continue;
      for (int64_t l = 0; l < kGuestLayers; ++l) guests += expect_weights(r, round, l);
      return_sums(r, round);
      expect_sums(r, round);
    }
    EXPECT_GT(guests, 0) << "the test shows nothing";
  });
}

}  // namespace
}  // namespace moraine
