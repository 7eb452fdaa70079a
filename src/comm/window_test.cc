// Windows between threads and between processes. Breaks if bytes land elsewhere or a signal is seen
// before them.
#include "comm/window.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/process_ranks.h"
#include "comm/test_work.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

constexpr int kChannel = 5;

std::byte pattern(int from, int round, size_t i) {
  return static_cast<std::byte>(static_cast<size_t>(from * 37 + round * 11) + i);
}

// Every member writes a block into every other, signals, and the other looks. Returns wrong bytes.
int64_t pass_around(Transport& t) {
  constexpr size_t kBlock = 20001;
  Communicator comm = world(t, kChannel);
  const size_t size = static_cast<size_t>(comm.size());
  std::vector<std::byte> memory(kBlock * size + static_cast<size_t>(comm.rank())), block(kBlock);
  Window window(comm, memory);
  int64_t wrong = 0;
  for (int round = 1; round <= 10; ++round) {
    for (size_t i = 0; i < kBlock; ++i) block[i] = pattern(comm.rank(), round, i);
    for (int m = 0; m < comm.size(); ++m)
      window.put_signal(m, comm.rank() * static_cast<int64_t>(kBlock), block, comm.rank());
    for (int m = 0; m < comm.size(); ++m) {
      window.wait_signal(m, static_cast<uint64_t>(round), m);
      const std::byte* got = memory.data() + static_cast<size_t>(m) * kBlock;
      for (size_t i = 0; i < kBlock; ++i) wrong += got[i] != pattern(m, round, i);
    }
    barrier(comm);  // all have looked: the next round may write
    const int next = (comm.rank() + 1) % comm.size();
    std::vector<std::byte> copy(kBlock);
    window.get(next, comm.rank() * static_cast<int64_t>(kBlock), copy);
    wrong += std::memcmp(copy.data(), block.data(), kBlock) != 0;
    barrier(comm);
  }
  return wrong + (window.bytes_of(0) != static_cast<int64_t>(kBlock * size));
}

TEST(Window, ASignalComesAfterItsBytesBetweenThreads) {
  for (const int ranks : {1, 2, 3, 5})
    run_thread_ranks(ranks, [](Transport& t) { EXPECT_EQ(pass_around(t), 0); });
}

TEST(Window, ASignalComesAfterItsBytesBetweenProcesses) {
  for (const int ranks : {1, 2, 3, 5}) {
    const auto outcomes =
        run_process_ranks(ranks, [](Transport& t) { return std::to_string(pass_around(t)); });
    for (const RankOutcome& o : outcomes) {
      EXPECT_EQ(o.exit_code, 0);
      EXPECT_EQ(o.text, "0");
    }
  }
}

TEST(Window, ASecondWindowCountsFromZero) {
  run_thread_ranks(2, [](Transport& t) {
    Communicator comm = world(t, kChannel);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::byte> memory(8);
      Window window(comm, memory);
      const std::byte value[1] = {std::byte(round + 1)};
      window.put_signal(1 - comm.rank(), 3, value, 7);
      window.wait_signal(7, 1, 1 - comm.rank());
      EXPECT_EQ(memory[3], value[0]);
      barrier(comm);
    }
  });
}

TEST(Window, WaitingForALostRankEnds) {
  try {
    run_thread_ranks(2, [](Transport& t) {
      Communicator comm = world(t, kChannel);
      std::vector<std::byte> memory(8);
      Window window(comm, memory);
      if (t.rank() == 0) window.wait_signal(0, 1, 1);
    });
    FAIL() << "nobody raised the signal";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kPeerLost);
    EXPECT_NE(std::string(e.what()).find("waits for a signal of rank 1, which left"),
              std::string::npos)
        << e.what();
  }
}

TEST(WindowDeathTest, OffsetsOutsideAreRefused) {
  run_thread_ranks(1, [](Transport& t) {
    Communicator comm = world(t, kChannel);
    std::vector<std::byte> memory(8), data(4);
    Window window(comm, memory);
    window.put(0, 4, data);
  });
  const auto outside = [](int64_t offset) {
    run_thread_ranks(1, [offset](Transport& t) {
      Communicator comm = world(t, kChannel);
      std::vector<std::byte> memory(8), data(4);
      Window(comm, memory).put(0, offset, data);
    });
  };
  EXPECT_DEATH(outside(5), "check failed");
  EXPECT_DEATH(outside(-1), "check failed");
}

}  // namespace
}  // namespace moraine
