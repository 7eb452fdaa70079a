// ExpertExchange: every (token, expert) row arrives once, at its expert's rank, in its sender's
// order, and finds its way back.
//
// Fails if a row is lost, doubled, given to another expert, or mixed with another sender's; also
// with experts that nobody chose and ranks without a row.
#include "parallel/expert_exchange.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "base/random.h"
#include "comm/thread_ranks.h"
#include "parallel/ranks.h"
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

void check_exchange(int ranks, uint64_t seed) {
  std::mutex mutex;
  std::map<float, int> arrived;  // by tag of column 0
  run_thread_ranks(ranks, [&](Transport& transport) {
    Ranks all(transport, make_mesh(ranks, transport.rank(), ranks, 1, ranks, kExperts), 30);
    Rig rig(Backend::kCpu, 1);
    const int me = transport.rank();
    ExpertExchange exchange(all.experts, kExperts);
    const Tensor rows = rig.int64s(draw_rows(me, seed));
    const Tensor received = rig.zeros({exchange.senders(), exchange.experts() + 1}, DType::kI64);
    const Tensor out = rig.zeros({kRows, kWidth}, DType::kF32),
                 in = rig.zeros({ranks * kRows, kWidth}, DType::kF32),
                 back = rig.zeros({kRows, kWidth}, DType::kF32);
    const int64_t used = rows.as<int64_t>()[kExperts];
    for (int64_t r = 0; r < used; ++r)
      for (int64_t c = 0; c < kWidth; ++c) out.as<float>()[r * kWidth + c] = tag(me, r, c);
    exchange.exchange_counts(rows, received);
    exchange.to_experts(in, out, rows, received);
    {
      const std::lock_guard lock(mutex);
      for (int s = 0; s < ranks; ++s) {
        const std::vector<int64_t> sent = draw_rows(s, seed);
        const SenderRows from = sender_rows(received, s);
        for (int64_t e = 0; e < exchange.experts(); ++e) {
          const size_t expert = static_cast<size_t>(exchange.expert_begin() + e);
          ASSERT_EQ(from.rows[static_cast<size_t>(e) + 1] - from.rows[static_cast<size_t>(e)],
                    sent[expert + 1] - sent[expert]);
          for (int64_t i = 0; i < sent[expert + 1] - sent[expert]; ++i) {
            const int64_t at = from.begin + from.rows[static_cast<size_t>(e)] + i;
            for (int64_t c = 0; c < kWidth; ++c)
              ASSERT_EQ(in.as<float>()[at * kWidth + c], tag(s, sent[expert] + i, c));
            ++arrived[in.as<float>()[at * kWidth]];
          }
        }
      }
    }
    exchange.to_tokens(back, in, rows, received);
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
    for (uint64_t seed = 1; seed <= 5; ++seed) check_exchange(ranks, seed);
  }
}

}  // namespace
}  // namespace moraine
