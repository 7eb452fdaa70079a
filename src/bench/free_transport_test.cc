// With payloads left where they are, and with them again.
#include "bench/free_transport.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/collectives.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

constexpr int64_t kCount = 9000;
const Shares kShares = {{{0, 3000}}, {{3000, 3001}, {4000, 6000}}, {{6000, 9000}}};

Tensor view(std::vector<float>& data) {
  return make_tensor(data.data(), DType::kF32, {static_cast<int64_t>(data.size())});
}

TEST(FreeTransport, PayloadsStayAndCountsMove) {
  run_thread_ranks(3, [&](Transport& real) {
    FreeTransport transport(real);
    Communicator comm(transport, {0, 1, 2}, 0, "shared", 30);
    const std::vector<float> own(kCount, static_cast<float>(transport.rank() + 1));
    std::vector<float> data = own;
    transport.set_free(true);
    reduce_scatter(comm, view(data), kShares);
    EXPECT_EQ(data, own);  // plus zeros
    reduce_scatter(comm, view(data), kShares, {.dtype = ReduceDType::kBF16});
    all_gather(comm, view(data), kShares);
    EXPECT_EQ(data, own);
    std::vector<int64_t> sum = {1};
    all_reduce_sum(comm, sum);
    EXPECT_EQ(sum[0], 3);
    EXPECT_EQ(all_gather_text(comm, "x").size(), 3u);
    transport.set_free(false);
    all_gather(comm, view(data), kShares);
    EXPECT_EQ(data[0], 1);
    EXPECT_EQ(data[3000], 2);
    EXPECT_EQ(data[6000], 3);
    reduce_scatter(comm, view(data), kShares);
    const Range mine = kShares[static_cast<size_t>(transport.rank())].back();
    EXPECT_EQ(data[static_cast<size_t>(mine.begin)], 3 * static_cast<float>(transport.rank() + 1));
  });
}

TEST(FreeTransport, OtherGroupsMoveEverything) {
  run_thread_ranks(3, [&](Transport& real) {
    FreeTransport transport(real);
    Communicator comm(transport, {0, 1, 2}, 0, "world", 30);
    transport.set_free(true);
    std::vector<float> data(kCount, static_cast<float>(transport.rank() + 1));
    all_gather(comm, view(data), kShares);
    EXPECT_EQ(data[0], 1);
    EXPECT_EQ(data[8999], 3);
  });
}

}  // namespace
}  // namespace moraine
