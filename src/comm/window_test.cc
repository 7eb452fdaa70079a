// Windows between threads, between processes, and between hosts (rails, each rank a host of its own). Breaks if bytes
// land elsewhere, a signal is seen before them, an addition is lost, or what may not be touched is.
#include "comm/window.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/process_ranks.h"
#include "comm/test_rails.h"
#include "comm/test_window.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

using Body = std::function<void(Transport&)>;

void on_threads(int ranks, const Body& body) { run_thread_ranks(ranks, body); }

void on_processes(int ranks, const Body& body) {
  for (const RankOutcome& o : run_process_ranks(ranks, [&body](Transport& t) {
         body(t);
         return std::string();
       })) {
    EXPECT_EQ(o.exit_code, 0) << o.text;
  }
}

void on_hosts(int ranks, const Body& body) {
  for (const std::string& text : run_on_rails(ranks, 2, body)) EXPECT_EQ(text, "");
}

// Run in every kind of ranks. Processes first: they are forked before this program has threads.
void everywhere(const Body& body) {
  for (const int ranks : {1, 2, 3, 5}) {
    on_processes(ranks, body);
    on_threads(ranks, body);
    if (ranks > 1) on_hosts(ranks, body);
  }
}

TEST(Window, ASignalComesAfterItsBytes) { everywhere(pass_around); }

TEST(Window, WordsLoseNoAddition) { everywhere(add_and_swap); }

// Nobody but rank 0 does anything: the others are in a barrier of another group, or compute.
TEST(Window, OwnersNeedNotHelp) {
  everywhere([](Transport& t) {
    Communicator comm = world(t, kWindowChannel), other = world(t, kWindowChannel + 1);
    Window window(comm);
    const int data = window.add_segment(64, "data");
    if (comm.rank() == 0) {
      for (int m = 0; m < comm.size(); ++m) {
        const std::vector<std::byte> block = block_of(m, 1, 64);
        window.put(window.address(m, data), block);
        window.quiet();
        std::vector<std::byte> back(64);
        window.get(window.address(m, data), back);
        require(back == block, "what was put is not what is got");
      }
    }
    barrier(other);
    const Bytes mine = window.memory(data);
    require(std::vector<std::byte>(mine.begin(), mine.end()) == block_of(comm.rank(), 1, 64),
            "what was put");
    barrier(comm);
  });
}

TEST(Window, CollectivesOfTheSameGroupPassBetweenFrames) {
  constexpr int64_t kBytes = 60000;
  everywhere([](Transport& t) {
    Communicator comm = world(t, kWindowChannel);
    Window window(comm);
    const int data = window.add_segment(kBytes * comm.size(), "data");
    constexpr int kRounds = 8;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<std::byte> block = block_of(comm.rank(), round, kBytes);
      for (int m = 0; m < comm.size(); ++m)
        window.put(window.address(m, data, comm.rank() * kBytes), block);
      work(comm, {2000});
    }
    window.quiet();
    barrier(comm);
    for (int m = 0; m < comm.size(); ++m) {
      const std::byte* got = window.memory(data).data() + m * kBytes;
      require(block_of(m, kRounds - 1, kBytes) == std::vector<std::byte>(got, got + kBytes),
              "the last block of every member");
    }
    barrier(comm);
  });
}

// Errors ------------------------------------------------------------------------------------------

// What `use` throws; all members have a segment of 64 bytes with a pattern, and none of it may change.
void expect_refused(Code code, const std::string& part,
                    const std::function<void(Window&, GlobalAddress)>& use) {
  const auto body = [&](Transport& t) {
    Communicator comm = world(t, kWindowChannel);
    Window window(comm);
    const int data = window.add_segment(64, "data");
    const std::vector<std::byte> before = block_of(7, 7, 64);
    std::copy(before.begin(), before.end(), window.memory(data).begin());
    barrier(comm);
    if (comm.rank() == 0) {
      try {
        use(window, window.address(comm.size() - 1, data));
        window.quiet();
        throw_error(Code::kCorrupt, "not refused: {}", part);
      } catch (const Error& e) {
        if (e.code() != code || std::string(e.what()).find(part) == std::string::npos) throw;
      }
    }
    barrier(comm);
    require(std::equal(before.begin(), before.end(), window.memory(data).begin()), "changed");
    barrier(comm);
  };
  for (const int ranks : {1, 2}) {
    on_processes(ranks, body);
    on_threads(ranks, body);
    if (ranks > 1) on_hosts(ranks, body);
  }
}

TEST(Window, WhatIsOutsideIsRefusedByName) {
  const std::vector<std::byte> data(16, std::byte{1});
  const auto put_at = [&](int64_t offset) {
    return [&data, offset](Window& w, GlobalAddress a) { w.put(a + offset, data); };
  };
  expect_refused(Code::kInvalidArgument, "segment 0, offset 49", put_at(49));
  expect_refused(Code::kInvalidArgument, "has 64 bytes there", put_at(64));
  expect_refused(Code::kInvalidArgument, "puts 16 bytes", put_at(-1));
  expect_refused(Code::kInvalidArgument, "offset 9223372036854775807", put_at(INT64_MAX));
  expect_refused(Code::kInvalidArgument, "offset -9223372036854775808", put_at(INT64_MIN));
  expect_refused(Code::kInvalidArgument, "gets 16 bytes", [](Window& w, GlobalAddress a) {
    std::vector<std::byte> out(16);
    w.get(a + 50, out);
  });
  expect_refused(Code::kInvalidArgument, "has no such rank", [&](Window& w, GlobalAddress a) {
    a.rank = 9;
    w.put(a, data);
  });
}

TEST(Window, WordsAreWhole) {
  expect_refused(Code::kInvalidArgument, "multiple of 8",
                 [](Window& w, GlobalAddress a) { w.fetch_add(a + 3, 1); });
  expect_refused(Code::kInvalidArgument, "has 64 bytes there",
                 [](Window& w, GlobalAddress a) { w.compare_swap(a + 64, 0, 1); });
  expect_refused(Code::kInvalidArgument, "multiple of 8", [](Window& w, GlobalAddress a) {
    w.put_signal(a, std::vector<std::byte>(8), a + 1);
  });
}

TEST(Window, AddressesOfAnotherGenerationAreRefused) {
  const std::vector<std::byte> data(16, std::byte{1});
  expect_refused(Code::kNotFound, "has generation", [&](Window& w, GlobalAddress a) {
    --a.generation;
    w.put(a, data);
  });
  expect_refused(Code::kNotFound, "no such segment", [&](Window& w, GlobalAddress a) {
    a.segment = 1;
    w.put(a, data);
  });
  everywhere([&data](Transport& t) {
    Communicator comm = world(t, kWindowChannel);
    GlobalAddress old;
    for (int round = 0; round < 3; ++round) {
      Window window(comm);
      const int segment = window.add_segment(64, "data");
      const GlobalAddress now = window.address(comm.size() - 1, segment);
      require(round == 0 || now.generation > old.generation, "generations grow");
      try {
        if (round > 0) window.put(old, data);
        require(round == 0, "an address of the window before was taken");
      } catch (const Error& e) {
        if (e.code() != Code::kNotFound) throw;
      }
      old = now;
      barrier(comm);
    }
  });
}

std::string text_of(const Body& body) {
  try {
    run_thread_ranks(2, body);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kPeerLost);
    return e.what();
  }
  return "";
}

TEST(Window, WaitingForARankThatLeftEnds) {
  const Body body = [](Transport& t) {
    Communicator comm = world(t, kWindowChannel);
    Window window(comm);
    const int words = window.add_segment(kWord, "words");
    if (t.rank() == 0) window.wait_until(window.address(0, words), 1, 1);
  };
  EXPECT_NE(text_of(body).find("waits for a signal of rank 1, which left"), std::string::npos);
  const auto texts = run_on_rails(2, 2, body);
  EXPECT_NE(texts[0].find("waits for a signal of rank 1, which left"), std::string::npos)
      << texts[0];
}

TEST(Window, ASilentRankEndsTheWaitAtTheDeadline) {
  const Body body = [](Transport& t) {
    Communicator others = world(t, kWindowChannel + 1), comm = world(t, kWindowChannel, 0.2);
    barrier(others);  // both are there
    Window window(comm);
    const int words = window.add_segment(kWord, "words");
    if (t.rank() == 0) window.wait_until(window.address(0, words), 1, 1);
    barrier(others);
  };
  EXPECT_NE(text_of(body).find("waits for a signal of rank 1 since 0.2"), std::string::npos);
  const auto texts = run_on_rails(2, 2, body);
  EXPECT_NE(texts[0].find("waits for a signal of rank 1, which gives nothing"), std::string::npos)
      << texts[0];
}

// Rank 1 is killed; rank 0 goes on until it is told.
TEST(Window, ARankThatDiedIsNoMemory) {
  for (const bool puts : {true, false}) {
    const auto outcomes = run_process_ranks(2, [puts](Transport& t) {
      Communicator comm = world(t, kWindowChannel);
      Window window(comm);
      const int words = window.add_segment(kWord, "words");
      const GlobalAddress theirs = window.address(1 - comm.rank(), words);
      if (t.rank() == 1) raise(SIGKILL);
      for (;;) {
        if (puts) window.put_signal(theirs, {}, theirs);
        if (!puts) window.fetch_add(theirs, 1);
      }
      return std::string();
    });
    EXPECT_EQ(outcomes[1].signal, SIGKILL);
    EXPECT_EQ(outcomes[0].exit_code, exit_code(Code::kPeerLost));
    EXPECT_NE(outcomes[0].text.find("rank 1, which died"), std::string::npos) << outcomes[0].text;
  }
}

// A rank that ends by an Error takes its memory with it: who writes there meanwhile touches nothing that is gone.
TEST(Window, ARankThatFailsTakesNoMemoryFromUnderOthers) {
  for (int round = 0; round < 6; ++round) {
    Error thrown(Code::kIo, "");
    try {
      run_thread_ranks(3, [round](Transport& t) {
        Communicator comm = world(t, kWindowChannel);
        Window window(comm);
        const int data = window.add_segment(2 * 4096, "data");
        if (t.rank() == 2) {
          for (int i = 0; i < round * 3; ++i) sched_yield();
          throw_error(Code::kDiverged, "loss is no number");
        }
        const std::vector<std::byte> block(4096, std::byte{1});
        for (;; sched_yield()) window.put(window.address(2, data, comm.rank() * 4096), block);
      });
    } catch (const Error& e) {
      thrown = e;
    }
    EXPECT_EQ(thrown.code(), Code::kDiverged) << thrown.what();
  }
}

}  // namespace
}  // namespace moraine
