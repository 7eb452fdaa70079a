// Collectives against plain sums and copies, at many group sizes. Breaks if a byte lands elsewhere,
// a sum takes another order, or an operation mixes with its neighbour.
#include "comm/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "base/random.h"
#include "comm/stream.h"
#include "comm/test_work.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 5, 7, 8};

float value(int rank, int64_t i) {
  const uint64_t bits = random_below(1 << 20, 7, Stream::kTest, static_cast<uint64_t>(rank),
                                     static_cast<uint64_t>(i));
  return (static_cast<float>(bits) - (1 << 19)) * 1.1920929e-3f;
}

std::vector<float> data_of(int rank, int64_t count) {
  std::vector<float> data(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = value(rank, i);
  return data;
}

Tensor view(std::vector<float>& data) {
  return make_tensor(data.data(), DType::kF32, {static_cast<int64_t>(data.size())});
}

// Ragged shares with holes, empty ranges and neighbours that touch.
Shares ragged_shares(int members, int64_t count, uint64_t seed) {
  Shares shares(static_cast<size_t>(members));
  int64_t at = 0;
  for (uint64_t i = 0; at < count; ++i) {
    const auto draw = [&](uint64_t most, uint64_t what) {
      return static_cast<int64_t>(random_below(most, seed, Stream::kTest, i, what));
    };
    const int64_t length = std::min(count - at, draw(4, 0) == 0 ? draw(40000, 1) : draw(50, 2));
    const int64_t owner = draw(static_cast<uint64_t>(members) + 1, 3);
    if (owner < members) shares[static_cast<size_t>(owner)].push_back({at, at + length});
    at += length;
  }
  return shares;
}

float tree(int begin, int end, int64_t i, bool bf16) {
  if (end - begin == 1) return bf16 ? round_bf16(value(begin, i)) : value(begin, i);
  int half = 1;
  while (half * 2 < end - begin) half *= 2;
  return tree(begin, begin + half, i, bf16) + tree(begin + half, end, i, bf16);
}

void check_reduce_scatter(int ranks, int64_t count, uint64_t seed, ReduceDType dtype,
                          SumPath path = SumPath::kAuto) {
  const Shares shares = ragged_shares(ranks, count, seed);
  run_thread_ranks(ranks, [&](Transport& t) {
    Communicator comm = world(t);
    std::vector<float> data = data_of(t.rank(), count), want = data;
    for (const Range& r : shares[static_cast<size_t>(t.rank())]) {
      for (int64_t i = r.begin; i < r.end; ++i)
        want[static_cast<size_t>(i)] = tree(0, ranks, i, dtype == ReduceDType::kBF16);
    }
    reduce_scatter(comm, view(data), shares, {.dtype = dtype, .path = path});
    EXPECT_EQ(data, want) << ranks << " ranks, seed " << seed;
  });
}

TEST(Collectives, ReduceScatterIsTheTreeSumInItsRangesAndTouchesNothingElse) {
  for (const int ranks : kSizes) {
    for (const int64_t count : {0, 1, 17, 1000, 70001})
      check_reduce_scatter(ranks, count, static_cast<uint64_t>(ranks), ReduceDType::kF32);
  }
}

TEST(Collectives, RecursiveHalvingGivesTheBitsOfTheDirectSum) {
  for (const int ranks : kSizes) {
    for (const int64_t count : {0, 1, 1000, 70001})
      check_reduce_scatter(ranks, count, 9, ReduceDType::kF32, SumPath::kHalving);
  }
}

TEST(Collectives, ReduceScatterInBf16RoundsEachAddendOnce) {
  for (const int ranks : {2, 3, 4, 5}) check_reduce_scatter(ranks, 50001, 5, ReduceDType::kBF16);
}

// More than is copied at a time, over ranges that cross the border.
TEST(Collectives, SumsLargerThanTheirScratchAreTheSameBits) {
  constexpr int64_t kSeveralWindows = 2500001;
  EXPECT_LT(reduce_scatter_scratch(4, kSeveralWindows, ReduceDType::kF32), kSeveralWindows * 4);
  EXPECT_LT(reduce_scatter_scratch(4, kSeveralWindows, ReduceDType::kBF16), kSeveralWindows * 2);
  check_reduce_scatter(4, kSeveralWindows, 3, ReduceDType::kF32, SumPath::kHalving);
  check_reduce_scatter(3, kSeveralWindows, 3, ReduceDType::kBF16);
}

TEST(Collectives, AllGatherBringsEveryOwnersRangesToAll) {
  for (const int ranks : kSizes) {
    for (const int64_t count : {0, 1, 17, 1000, 70001}) {
      const Shares shares = ragged_shares(ranks, count, 3);
      run_thread_ranks(ranks, [&](Transport& t) {
        Communicator comm = world(t);
        std::vector<float> data = data_of(t.rank(), count), want = data;
        for (int owner = 0; owner < ranks; ++owner) {
          for (const Range& r : shares[static_cast<size_t>(owner)]) {
            for (int64_t i = r.begin; i < r.end; ++i)
              want[static_cast<size_t>(i)] = value(owner, i);
          }
        }
        all_gather(comm, view(data), shares);
        EXPECT_EQ(data, want) << ranks << " ranks";
      });
    }
  }
}

size_t pair_bytes(int from, int to, int scale) {
  return static_cast<size_t>((from * 5 + to * 3) % 4 * scale + (from + to) % 3);
}
std::byte pair_byte(int from, int to, size_t i) {
  return static_cast<std::byte>(static_cast<size_t>(from * 31 + to * 7) + i * 11 + i / 251);
}

struct Pieces {
  std::vector<std::vector<std::byte>> send, receive;
  std::vector<ConstBytes> send_views;
  std::vector<Bytes> receive_views;
};

Pieces pieces_of(int rank, int ranks, int scale) {
  Pieces p;
  for (int m = 0; m < ranks; ++m) {
    p.send.emplace_back(pair_bytes(rank, m, scale));
    for (size_t i = 0; i < p.send.back().size(); ++i) p.send.back()[i] = pair_byte(rank, m, i);
    p.receive.emplace_back(pair_bytes(m, rank, scale));
  }
  for (auto& s : p.send) p.send_views.emplace_back(s);
  for (auto& r : p.receive) p.receive_views.emplace_back(r);
  return p;
}

void expect_received(const Pieces& p, int rank, int ranks) {
  for (int m = 0; m < ranks; ++m) {
    const auto& got = p.receive[static_cast<size_t>(m)];
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != pair_byte(m, rank, i);
    EXPECT_EQ(wrong, 0u) << "from " << m << " to " << rank << " of " << ranks;
  }
}

TEST(Collectives, AllToAllBringsEachPairItsBytes) {
  for (const int ranks : kSizes) {
    for (const int scale : {0, 1, 600, 30000}) {
      run_thread_ranks(ranks, [&](Transport& t) {
        Communicator comm = world(t);
        Pieces p = pieces_of(t.rank(), ranks, scale);
        all_to_all(comm, p.send_views, p.receive_views);
        expect_received(p, t.rank(), ranks);
      });
    }
  }
}

// More pieces for one pair than a ring has places, none for others.
TEST(Collectives, AllToAllOfPiecesBringsEachInItsOrder) {
  const auto pieces = [](int from, int to) { return from == to ? 0 : (from * 7 + to * 3) % 23; };
  for (const int ranks : kSizes) {
    for (const int scale : {0, 1, 600}) {
      run_thread_ranks(ranks, [&](Transport& t) {
        Communicator comm = world(t);
        const int me = t.rank();
        std::vector<std::vector<std::vector<std::byte>>> sent(static_cast<size_t>(ranks)),
            got = sent;
        std::vector<std::vector<ConstBytes>> send(sent.size());
        std::vector<std::vector<Bytes>> receive(sent.size());
        for (int m = 0; m < ranks; ++m) {
          const size_t i = static_cast<size_t>(m);
          for (int p = 0; p < pieces(me, m); ++p)
            sent[i].emplace_back(pair_bytes(me, m, scale), static_cast<std::byte>(p + me));
          for (int p = 0; p < pieces(m, me); ++p) got[i].emplace_back(pair_bytes(m, me, scale));
          send[i].assign(sent[i].begin(), sent[i].end());
          receive[i].assign(got[i].begin(), got[i].end());
        }
        all_to_all_pieces(comm, send, receive);
        for (int m = 0; m < ranks; ++m) {
          const auto& from = got[static_cast<size_t>(m)];
          for (size_t p = 0; p < from.size(); ++p)
            for (const std::byte b : from[p])
              ASSERT_EQ(static_cast<int>(b), static_cast<int>(p) + m) << m << " to " << me;
        }
      });
    }
  }
}

TEST(Collectives, TwoLevelAllToAllBringsEachPairItsBytesOnAnyHosts) {
  const std::vector<std::vector<int>> maps = {
      {0},          {0, 0, 1, 1}, {0, 1, 0, 1}, {3, 3, 3, 5, 5, 5}, {0, 1, 2, 2, 1, 0, 0, 1, 2},
      {0, 0, 0, 1}, {0, 1, 2, 3}};
  for (const std::vector<int>& hosts : maps) {
    const int ranks = static_cast<int>(hosts.size());
    for (const int scale : {0, 1, 600, 30000}) {
      run_thread_ranks(ranks, [&](Transport& t) {
        Communicator comm = world(t);
        Pieces p = pieces_of(t.rank(), ranks, scale);
        all_to_all_two_level(comm, hosts, p.send_views, p.receive_views);
        expect_received(p, t.rank(), ranks);
      });
    }
  }
}

TEST(Collectives, BroadcastFromAnyRoot) {
  for (const int ranks : kSizes) {
    run_thread_ranks(ranks, [&](Transport& t) {
      Communicator comm = world(t);
      for (int root = 0; root < ranks; ++root) {
        for (const int64_t count : {0, 1, 300, 5000}) {
          std::vector<float> data = data_of(t.rank(), count);
          broadcast(comm, root, std::as_writable_bytes(std::span(data)));
          EXPECT_EQ(data, data_of(root, count));
        }
      }
    });
  }
}

std::string text_of(int rank, size_t scale) {
  return std::string(static_cast<size_t>(rank) * scale, static_cast<char>('a' + rank));
}

TEST(Collectives, GatherAndAllGatherTextKeepMemberOrderAndLength) {
  for (const int ranks : kSizes) {
    run_thread_ranks(ranks, [&](Transport& t) {
      Communicator comm = world(t);
      for (const size_t scale : {size_t{1}, size_t{3000}}) {
        std::vector<std::string> want;
        for (int r = 0; r < ranks; ++r) want.push_back(text_of(r, scale));
        const int root = ranks / 2;
        const auto got = gather(comm, root, text_of(t.rank(), scale));
        EXPECT_EQ(got, t.rank() == root ? want : std::vector<std::string>());
        EXPECT_EQ(all_gather_text(comm, text_of(t.rank(), scale)), want);
      }
    });
  }
}

TEST(Collectives, IntegerSumsAreExactAndEqualPiecesComeInOrder) {
  for (const int ranks : kSizes) {
    run_thread_ranks(ranks, [&](Transport& t) {
      Communicator comm = world(t);
      std::vector<int64_t> sums = {t.rank(), int64_t{1} << 59, -t.rank()}, none;
      all_reduce_sum(comm, sums);
      all_reduce_sum(comm, none);
      const int64_t total = ranks * (ranks - 1) / 2;
      EXPECT_EQ(sums,
                (std::vector<int64_t>{
                    total, static_cast<int64_t>((uint64_t{1} << 59) * uint64_t(ranks)), -total}));
      std::vector<double> disjoint(static_cast<size_t>(ranks), 0.0);
      disjoint[static_cast<size_t>(t.rank())] = 0.1 * (t.rank() + 1);
      all_reduce_disjoint(comm, disjoint);
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(disjoint[static_cast<size_t>(r)], 0.1 * (r + 1));
      for (const int64_t each : {0, 1, 700}) {
        const std::vector<float> mine = data_of(t.rank(), each);
        std::vector<float> all(static_cast<size_t>(each * ranks));
        all_gather_equal(comm, std::as_bytes(std::span(mine)),
                         std::as_writable_bytes(std::span(all)));
        for (int64_t i = 0; i < each * ranks; ++i)
          EXPECT_EQ(all[static_cast<size_t>(i)], value(static_cast<int>(i / each), i % each));
      }
    });
  }
}

TEST(Collectives, NobodyPassesABarrierBeforeAllAreThere) {
  for (const int ranks : kSizes) {
    std::atomic<int> arrived{0};
    run_thread_ranks(ranks, [&](Transport& t) {
      Communicator comm = world(t);
      for (int round = 1; round <= 20; ++round) {
        arrived.fetch_add(1);
        barrier(comm);
        EXPECT_GE(arrived.load(), round * ranks);
        barrier(comm);
      }
    });
  }
}

TEST(Collectives, OverlappingCommunicatorsAndStreamsDoNotMix) {
  constexpr int kRanks = 4, kRounds = 20;
  constexpr int64_t kCount = 20000;
  run_thread_ranks(kRanks, [&](Transport& t) {
    const std::vector<int> half = t.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    Communicator main_comm = world(t, 0), sums = world(t, 1);
    Communicator pairs(t, half, 2, "pair", kTestDeadline);
    const Shares shares = ragged_shares(kRanks, kCount, 11);
    CommStream sum_stream, pair_stream;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<float> summed = data_of(t.rank(), kCount), shared = data_of(t.rank(), kCount);
      std::vector<int64_t> count = {1};
      CommHandle a = sum_stream.submit([&] { reduce_scatter(sums, view(summed), shares); });
      CommHandle b = pair_stream.submit([&] { all_reduce_sum(pairs, count); });
      all_gather(main_comm, view(shared), shares);
      a.wait();
      b.wait();
      EXPECT_TRUE(a.done());
      EXPECT_EQ(count[0], 2);
      for (const Range& r : shares[static_cast<size_t>(t.rank())]) {
        for (int64_t i = r.begin; i < r.end; ++i)
          ASSERT_EQ(summed[static_cast<size_t>(i)], tree(0, kRanks, i, false));
      }
    }
  });
}

}  // namespace
}  // namespace moraine
