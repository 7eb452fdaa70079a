// Collectives over rails between ranks on addresses of this host. Breaks if a byte lands elsewhere, a rank that ends
// is not named, or a stranger is let in.
#include <gtest/gtest.h>

#include <numeric>

#include "base/clock.h"
#include "comm/collectives.h"
#include "comm/exchange.h"
#include "comm/stream.h"
#include "comm/test_rails.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

constexpr double kDeadline = 60;

Communicator world(Transport& t, int channel = 0, double deadline = kDeadline) {
  std::vector<int> ranks(static_cast<size_t>(t.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Communicator(t, ranks, channel, "world", deadline);
}

void expect_no_errors(const std::vector<std::string>& texts) {
  for (size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], "") << "rank " << r;
}

// Sums of values that are exact, and bytes of known places: what every rank must have afterwards.
void work(Communicator& comm, int64_t count) {
  const int me = comm.rank(), size = comm.size();
  Shares shares;
  for (int m = 0; m < size; ++m) shares.push_back({{count * m / size, count * (m + 1) / size}});
  std::vector<float> data;
  for (int64_t i = 0; i < count; ++i) data.push_back(static_cast<float>(i % 1000 + me));
  const Tensor all = make_tensor(data.data(), DType::kF32, {count});
  reduce_scatter(comm, all, shares);
  all_gather(comm, all, shares);
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i)
    wrong += data[static_cast<size_t>(i)] !=
             static_cast<float>(size * (i % 1000) + size * (size - 1) / 2);
  std::vector<std::vector<std::byte>> out, in;
  for (int m = 0; m < size; ++m) {
    out.emplace_back(static_cast<size_t>(count / 3 * (m + 1)), std::byte(me * 16 + m));
    in.emplace_back(static_cast<size_t>(count / 3 * (me + 1)));
  }
  const std::vector<ConstBytes> send(out.begin(), out.end());
  const std::vector<Bytes> receive(in.begin(), in.end());
  all_to_all(comm, send, receive);
  for (int m = 0; m < size; ++m) {
    for (const std::byte b : in[static_cast<size_t>(m)]) wrong += b != std::byte(m * 16 + me);
  }
  std::vector<std::byte> text(static_cast<size_t>(count), std::byte(me == size - 1 ? 77 : 0));
  broadcast(comm, size - 1, text);
  for (const std::byte b : text) wrong += b != std::byte{77};
  EXPECT_EQ(wrong, 0) << "rank " << me << ", " << count << " elements";
  barrier(comm);
}

TEST(Rails, CollectivesOfAllSizesOverOneToThreeRails) {
  for (const int rails : {1, 2, 3}) {
    for (const int ranks : {2, 3, 4}) {
      expect_no_errors(run_on_rails(ranks, rails, [](Transport& t) {
        Communicator comm = world(t);
        for (const int64_t count : {1, 7, 5000, 300000, 3000000}) work(comm, count);
      }));
    }
  }
}

TEST(Rails, ChannelsAreUsedAtOnce) {
  expect_no_errors(run_on_rails(3, 2, [](Transport& t) {
    Communicator one = world(t, 0), two = world(t, 1), three = world(t, 2);
    CommStream first, second;
    std::vector<CommHandle> handles;
    for (int i = 0; i < 10; ++i) {
      handles.push_back(first.submit([&two] { work(two, 70000); }));
      handles.push_back(second.submit([&three] { work(three, 500); }));
      work(one, 20000);
    }
    for (CommHandle& h : handles) h.wait();
  }));
}

TEST(Rails, AnErrorOfOneRankEndsAllAndNamesIt) {
  const auto texts = run_on_rails(3, 2, [](Transport& t) {
    Communicator comm = world(t);
    barrier(comm);
    if (t.rank() == 1) throw_error(Code::kDiverged, "loss is no number");
    barrier(comm);
  });
  EXPECT_EQ(texts[1], "loss is no number");
  for (const size_t r : {size_t{0}, size_t{2}})
    EXPECT_NE(texts[r].find("because of rank 1: loss is no number"), std::string::npos) << texts[r];
}

TEST(Rails, ARankThatEndedItsWorkIsNamed) {
  const auto texts = run_on_rails(2, 2, [](Transport& t) {
    Communicator comm = world(t);
    barrier(comm);
    if (t.rank() == 0) barrier(comm);
  });
  EXPECT_NE(texts[0].find("rank 1, which left: it has ended its work"), std::string::npos)
      << texts[0];
  EXPECT_EQ(texts[1], "");
}

TEST(Rails, RanksThatDoDifferentThingsAreFoundByTheFirstMessage) {
  const auto texts = run_on_rails(2, 1, [](Transport& t) {
    Communicator comm = world(t);
    std::vector<int64_t> value(1, 3);
    if (t.rank() == 0) barrier(comm);
    if (t.rank() == 1) all_reduce_sum(comm, value);
  });
  EXPECT_NE((texts[0] + texts[1]).find("do different things"), std::string::npos) << texts[0];
}

TEST(Rails, ADeadlineNamesTheRankAndItsRails) {
  const auto texts = run_on_rails(2, 2, [](Transport& t) {
    Communicator comm = world(t, 0, 0.3);
    barrier(comm);
    const double end = now_seconds() + 1;
    while (t.rank() == 1 && now_seconds() < end) std::this_thread::yield();
    if (t.rank() == 0) barrier(comm);
  });
  EXPECT_NE(texts[0].find("rank 1, which gives nothing since 0.3 seconds"), std::string::npos)
      << texts[0];
  EXPECT_NE(texts[0].find("rail 1 (lo, 127.0.2.2:"), std::string::npos) << texts[0];
}

}  // namespace
}  // namespace moraine
