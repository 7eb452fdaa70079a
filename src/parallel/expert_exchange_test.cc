// ExpertExchange: every (token, expert) row arrives once, at its expert's rank, in its sender's
// order, and finds its way back.
//
// Fails if a row is lost, doubled, given to another expert, or mixed with another sender's; also
// with experts that nobody chose and ranks without a row.
#include "parallel/expert_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/random.h"
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

constexpr int64_t kExperts = 8, kRows = 37, kWidth = 3;

// Rows of a rank by expert: [E+1] bounds, drawn so that some experts and some ranks have none.
std::vector<int64_t> draw_rows(int rank, uint64_t seed) {
  std::vector<int64_t> bounds = {0};
  for (int64_t e = 0; e < kExperts; ++e) {
    const uint64_t index = static_cast<uint64_t>(rank * kExperts + e);
    const bool none = rank == 1 || random_below(3, seed, Stream::kTest, 1, index) == 0;
    const int64_t most = (kRows - bounds.back()) / (kExperts - e);
    const int64_t n = none ? 0
                           : static_cast<int64_t>(random_below(static_cast<uint64_t>(2 * most + 1),
                                                               seed, Stream::kTest, 2, index));
    bounds.push_back(std::min(kRows, bounds.back() + n));
  }
  return bounds;
}

float tag(int rank, int64_t row, int64_t column) {
  return static_cast<float>(rank * 10000 + row * 10 + column);
}

// Rows of each expert, in the order of the routes.
std::vector<int64_t> by_position(const ExpertRoutes& routes, const std::vector<int64_t>& bounds) {
  std::vector<int64_t> counts(kExperts), ordered = {0};
  for (size_t e = 0; e < counts.size(); ++e)
    counts[static_cast<size_t>(routes.position[e])] = bounds[e + 1] - bounds[e];
  for (const int64_t n : counts) ordered.push_back(ordered.back() + n);
  return ordered;
}

// Every group has the rows of the expert that the placement says, in the sender's order.
void check_sender(const ExpertExchange& exchange, int s, const std::vector<int64_t>& sent,
                  const SenderRows& from, const Tensor& in) {
  const PlacementShape& shape = exchange.shape();
  const ExpertRoutes theirs = make_routes(shape, exchange.placement(1), s);
  const std::vector<int64_t> rows = by_position(theirs, sent);
  for (int64_t j = 0; j < exchange.groups(); ++j) {
    const size_t group = static_cast<size_t>(j);
    const int32_t e = exchange.routes(1).served[static_cast<size_t>(s * exchange.groups()) + group];
    const int64_t count = from.rows[group + 1] - from.rows[group];
    if (e < 0) {
      ASSERT_EQ(count, 0);
      continue;
    }
    ASSERT_EQ(exchange.placement(1).server[static_cast<size_t>(s * kExperts + e)],
              exchange.member());
    const size_t expert = static_cast<size_t>(e);
    ASSERT_EQ(count, sent[expert + 1] - sent[expert]);
    const int64_t first = rows[static_cast<size_t>(theirs.position[expert])];
    for (int64_t i = 0; i < count * kWidth; ++i)
      ASSERT_EQ(in.as<float>()[(from.begin + from.rows[group]) * kWidth + i],
                tag(s, first + i / kWidth, i % kWidth));
  }
}

void check_exchange(int ranks, uint64_t seed, int64_t slots) {
  std::mutex mutex;
  std::map<float, int> arrived;  // by tag of column 0
  run_thread_ranks(ranks, [&](Transport& transport) {
    Ranks all(transport, make_mesh(ranks, transport.rank(), ranks, 1, ranks, kExperts), 30);
    Rig rig(Backend::kCpu, 1);
    const int me = transport.rank();
    ExpertExchange exchange(all.experts, kExperts, {.layers = 2, .slots = slots});
    const PlacementShape& shape = exchange.shape();
    if (slots > 0) exchange.place(1, shuffled_placement(shape, seed, 0));
    const ExpertRoutes& routes = exchange.routes(1);
    const Tensor rows = rig.int64s(by_position(routes, draw_rows(me, seed)));
    const Tensor received = rig.zeros({exchange.senders(), exchange.groups() + 1}, DType::kI64);
    const Tensor out = rig.zeros({kRows, kWidth}, DType::kF32),
                 in = rig.zeros({ranks * kRows, kWidth}, DType::kF32),
                 back = rig.zeros({kRows, kWidth}, DType::kF32);
    const int64_t used = rows.as<int64_t>()[kExperts];
    for (int64_t r = 0; r < used; ++r)
      for (int64_t c = 0; c < kWidth; ++c) out.as<float>()[r * kWidth + c] = tag(me, r, c);
    exchange.exchange_counts(1, rows, received);
    exchange.to_experts(rig.ctx,
                        {.out = in, .in = out, .rows = rows, .received = received, .layer = 1});
    {
      const std::lock_guard lock(mutex);
      for (int s = 0; s < ranks; ++s) {
        check_sender(exchange, s, draw_rows(s, seed), sender_rows(received, s), in);
        for (int64_t i = sender_rows(received, s).begin; i < sender_rows(received, s).end; ++i)
          ++arrived[in.as<float>()[i * kWidth]];
      }
    }
    exchange.to_tokens(rig.ctx,
                       {.out = back, .in = in, .rows = rows, .received = received, .layer = 1});
    for (int64_t i = 0; i < used * kWidth; ++i)
      ASSERT_EQ(back.as<float>()[i], out.as<float>()[i]) << i;
  });
  size_t sent = 0;
  for (int r = 0; r < ranks; ++r) sent += static_cast<size_t>(draw_rows(r, seed).back());
  EXPECT_EQ(arrived.size(), sent);
  for (const auto& [row, times] : arrived) EXPECT_EQ(times, 1) << row;
}

TEST(ExpertExchange, EveryRowArrivesOnceAndComesBack) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) check_exchange(ranks, seed, 0);
  }
}

TEST(ExpertExchange, LikewiseWhoeverServesWhat) {
  for (const int ranks : {2, 4, 8}) {
    for (const int64_t slots : {1, 2, 6}) {
      for (uint64_t seed = 1; seed <= 10; ++seed) check_exchange(ranks, seed, slots);
    }
  }
}

TEST(ExpertExchange, CountsAndPositionsAreThoseOfTheExperts) {
  run_thread_ranks(2, [&](Transport& transport) {
    Ranks all(transport, make_mesh(2, transport.rank(), 2, 1, 2, kExperts), 30);
    Rig rig(Backend::kCpu, 1);
    ExpertExchange exchange(all.experts, kExperts, {.layers = 1, .slots = 3});
    const Tensor expert = rig.int32s({0, 1, 2, 3, 4, 5, 6, 7, 8, 0}).reshaped({5, 2}),
                 out = rig.zeros({5, 2}, DType::kI32);
    EXPECT_EQ(exchange.positions(0, expert, {}).data, expert.data);
    exchange.place(0, shuffled_placement(exchange.shape(), 2, 0));
    const Tensor placed = exchange.positions(0, expert, out);
    const Tensor load = rig.zeros({kExperts + 1}, DType::kI64);
    for (int64_t i = 0; i < 10; ++i) ++load.as<int64_t>()[placed.as<int32_t>()[i]];
    exchange.counts_by_expert(0, load);
    for (int64_t e = 0; e <= kExperts; ++e) EXPECT_EQ(load.as<int64_t>()[e], e == 0 ? 2 : 1);
  });
}

struct SentRows {
  int rank;
  float exchanged;
  std::vector<int64_t> rows;  // by expert
};

// Every group has the rows of the expert that the placement says, which stand by expert at their sender.
void check_groups(const ExpertExchange& exchange, const SentRows& sent, const SenderRows& from,
                  const Tensor& in) {
  for (int64_t j = 0; j < exchange.groups(); ++j) {
    const size_t group = static_cast<size_t>(j);
    const int32_t e =
        exchange.routes(1).served[static_cast<size_t>(sent.rank * exchange.groups()) + group];
    const int64_t first = from.rows[group], count = from.rows[group + 1] - first;
    const size_t expert = static_cast<size_t>(std::max(e, 0));
    ASSERT_EQ(count, e < 0 ? 0 : sent.rows[expert + 1] - sent.rows[expert]);
    for (int64_t i = 0; i < count * kWidth; ++i)
      ASSERT_EQ(in.as<float>()[(from.begin + first) * kWidth + i],
                tag(sent.rank, sent.rows[expert] + i / kWidth, i % kWidth) + sent.exchanged)
          << sent.rank << " " << i;
  }
}

// Four exchanges with other rows each, and nobody waits between: what is staged for one is used again by the next.
void check_device(int64_t slots) {
  constexpr int kRanks = 4;
  constexpr uint64_t kExchanges = 4;
  run_thread_ranks(kRanks, [slots](Transport& transport) {
    Ranks all(transport, make_mesh(kRanks, transport.rank(), kRanks, 1, kRanks, kExperts), 30);
    Rig rig(Backend::kCpu, 1);
    LateGpu gpu;
    gpu::GpuArenaMemory memory(gpu);
    Arena arena(Arena::Mode::kReal, &memory);
    Pool pool(1);
    Context ctx = make_context(gpu, pool);
    const int me = transport.rank();
    ExpertExchange exchange(all.experts, kExperts, {.layers = 2, .slots = slots});
    exchange.stage(arena, DType::kF32, kRows, kWidth);
    if (slots > 0) exchange.place(1, shuffled_placement(exchange.shape(), 3, 0));
    const auto rows_there = [&](const char* name, int64_t rows) {
      return arena.take(name, "activations", DType::kF32, {rows, kWidth});
    };
    struct Exchanged {
      Tensor rows, received, out, in, back;
    };
    std::vector<Exchanged> done;
    for (uint64_t seed = 1; seed <= kExchanges; ++seed) {
      const Tensor sent = rig.zeros({kRows, kWidth}, DType::kF32);
      for (int64_t i = 0; i < sent.count(); ++i)
        sent.as<float>()[i] = tag(me, i / kWidth, i % kWidth) + static_cast<float>(seed) / 8;
      done.push_back({rig.int64s(draw_rows(me, seed)),
                      rig.zeros({exchange.senders(), exchange.groups() + 1}, DType::kI64),
                      rows_there("out", kRows), rows_there("in", kRanks * kRows),
                      rows_there("back", kRows)});
      copy_in(ctx, done.back().out, sent);
    }
    for (const Exchanged& e : done) {
      exchange.exchange_counts(1, e.rows, e.received);
      exchange.to_experts(
          ctx, {.out = e.in, .in = e.out, .rows = e.rows, .received = e.received, .layer = 1});
      exchange.to_tokens(
          ctx, {.out = e.back, .in = e.in, .rows = e.rows, .received = e.received, .layer = 1});
    }
    for (uint64_t seed = 1; seed <= kExchanges; ++seed) {
      const Exchanged& e = done[seed - 1];
      const float exchanged = static_cast<float>(seed) / 8;
      const Tensor in = rig.zeros({kRanks * kRows, kWidth}, DType::kF32),
                   back = rig.zeros({kRows, kWidth}, DType::kF32);
      copy_out(ctx, in, e.in);
      copy_out(ctx, back, e.back);
      for (int64_t i = 0; i < e.rows.as<int64_t>()[kExperts] * kWidth; ++i)
        ASSERT_EQ(back.as<float>()[i], tag(me, i / kWidth, i % kWidth) + exchanged) << i;
      for (int s = 0; s < kRanks; ++s) {
        check_groups(exchange, {s, exchanged, draw_rows(s, seed)}, sender_rows(e.received, s), in);
      }
    }
  });
}

TEST(ExpertExchange, RowsOfADeviceArriveAndComeBackThroughPinnedMemory) {
  for (const int64_t slots : {0, 1, 3}) check_device(slots);
}

}  // namespace
}  // namespace moraine
