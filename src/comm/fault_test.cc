// Ranks that fail, leave, die, stop or do something else: every other rank ends with kPeerLost and
// says why. Breaks if a wait can outlive its peer or a message does not name it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/exchange.h"
#include "comm/host_region.h"
#include "comm/host_transport.h"
#include "comm/process_ranks.h"
#include "comm/stream.h"
#include "comm/test_work.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

using testing::AssertionResult;

constexpr double kLong = 300;  // nobody waits for it if faults are found

AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" has no \"" << part << "\"";
}

// Runs thread ranks and returns each rank's Error ("" if none); `thrown` gets the one of all.
std::vector<std::string> thread_errors(int ranks, Error* thrown,
                                       const std::function<void(Transport&)>& body) {
  std::vector<std::string> texts(static_cast<size_t>(ranks));
  try {
    run_thread_ranks(ranks, [&](Transport& t) {
      try {
        body(t);
      } catch (const Error& e) {
        texts[static_cast<size_t>(t.rank())] = e.what();
        throw;
      }
    });
  } catch (const Error& e) {
    *thrown = e;
  }
  return texts;
}

TEST(Fault, TheFirstErrorIsThrownAndTheOthersEndBecauseOfIt) {
  Error thrown(Code::kIo, "");
  const auto texts = thread_errors(3, &thrown, [](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    barrier(comm);
    if (t.rank() == 1) throw_error(Code::kDiverged, "loss is no number");
    barrier(comm);
  });
  EXPECT_EQ(thrown.code(), Code::kDiverged);
  EXPECT_STREQ(thrown.what(), "loss is no number");
  for (const int r : {0, 2}) {
    EXPECT_TRUE(has(texts[static_cast<size_t>(r)], "because of rank 1: loss is no number"));
    // The second, or, where it was slow to leave it, the first.
    EXPECT_TRUE(has(texts[static_cast<size_t>(r)], "barrier (step 0, operation "));
    EXPECT_TRUE(has(texts[static_cast<size_t>(r)], "in group 'world'"));
  }
}

TEST(Fault, AnExceptionThatIsNoErrorAlsoEndsAll) {
  EXPECT_THROW(run_thread_ranks(2,
                                [](Transport& t) {
                                  Communicator comm = world(t, 0, kLong);
                                  if (t.rank() == 1) throw std::length_error("too long");
                                  barrier(comm);
                                }),
               std::length_error);
}

TEST(Fault, RanksAtDifferentOperationsNameBoth) {
  Error thrown(Code::kIo, "");
  const auto texts = thread_errors(2, &thrown, [](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    comm.set_step(40 + t.rank());
    std::vector<int64_t> values = {1};
    if (t.rank() == 0) barrier(comm);
    if (t.rank() == 1) all_reduce_sum(comm, values);
  });
  EXPECT_EQ(thrown.code(), Code::kPeerLost);
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, "do different things"));
    EXPECT_TRUE(has(text, "0 bytes of barrier (step 40, operation 1)"));
    EXPECT_TRUE(has(text, "8 bytes of all_gather_equal (step 41, operation 1)"));
  }
}

TEST(Fault, TheSameOperationOfAnotherStepIsFound) {
  Error thrown(Code::kIo, "");
  thread_errors(2, &thrown, [](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    comm.set_step(7 + t.rank());
    barrier(comm);
  });
  EXPECT_EQ(thrown.code(), Code::kPeerLost);
  EXPECT_TRUE(has(thrown.what(), "barrier (step 7, operation 1)"));
  EXPECT_TRUE(has(thrown.what(), "barrier (step 8, operation 1)"));
}

TEST(Fault, MessagesOfAnotherSizeNameBothSizes) {
  Error thrown(Code::kIo, "");
  const auto texts = thread_errors(2, &thrown, [](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    std::vector<int64_t> values(t.rank() == 0 ? 3 : 5000);
    all_reduce_sum(comm, values);
  });
  EXPECT_EQ(thrown.code(), Code::kPeerLost);
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, "24 bytes"));
    EXPECT_TRUE(has(text, "40000 bytes"));
  }
}

TEST(Fault, ARankThatLeavesEndsThoseWhoWaitForIt) {
  Error thrown(Code::kIo, "");
  thread_errors(3, &thrown, [](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    barrier(comm);
    if (t.rank() != 2) barrier(comm);
  });
  EXPECT_EQ(thrown.code(), Code::kPeerLost);
  EXPECT_TRUE(has(thrown.what(), "rank 2, which left"));
}

TEST(Fault, WhatARankSentBeforeItLeftStillArrives) {
  run_thread_ranks(2, [](Transport& t) {
    int64_t value = 17;
    if (t.rank() == 0) {
      t.send(1, 0, 1, std::as_bytes(std::span(&value, 1)), kLong);
    } else {
      value = 0;
      t.receive(0, 0, 1, std::as_writable_bytes(std::span(&value, 1)), kLong);
      EXPECT_EQ(value, 17);
    }
  });
}

TEST(Fault, ASilentPeerEndsTheWaitAtTheDeadline) {
  Error thrown(Code::kIo, "");
  std::atomic<bool> ended{false};
  const auto texts = thread_errors(2, &thrown, [&](Transport& t) {
    Communicator early = world(t, 1, kLong), comm = world(t, 0, 0.05);
    try {
      barrier(early);  // both are there
      while (t.rank() == 1 && !ended) sched_yield();
      if (t.rank() == 1) return;
      barrier(comm);
    } catch (...) {
      ended = true;
      throw;
    }
    ended = true;
  });
  EXPECT_EQ(thrown.code(), Code::kPeerLost);
  EXPECT_TRUE(has(texts[0], "rank 0 waits for rank 1 since"));
  EXPECT_TRUE(has(texts[0], "rank 1 is alive, last at barrier (step 0, operation 1)"));
}

TEST(Fault, FailEndsWaitsOnEveryChannelAndStream) {
  Error thrown(Code::kIo, "");
  const auto texts = thread_errors(2, &thrown, [](Transport& t) {
    Communicator comm = world(t, 3, kLong), other = world(t, 4, kLong);
    CommStream stream;
    if (t.rank() == 1) {
      barrier(comm);
      t.fail("disk is full");
      return;
    }
    CommHandle waiting = stream.submit([&] { barrier(other); });
    CommHandle later = stream.submit([] {});
    barrier(comm);
    EXPECT_THROW(waiting.wait(), Error);
    later.wait();  // has the Error as well
  });
  EXPECT_EQ(thrown.code(), Code::kPeerLost);
  EXPECT_TRUE(has(texts[0], "because of rank 1: disk is full"));
}

// Processes -------------------------------------------------------------------------------------

enum class Phase { kBarrier, kReduceScatter, kAllGather, kAllToAll, kText, kCount };

void run_phase(Phase phase, Communicator& comm) {
  constexpr int64_t kCount = 400000;  // 1.6 MB: too large for a descriptor
  std::vector<float> data(kCount, 1.0f);
  const Tensor all = make_tensor(data.data(), DType::kF32, {kCount});
  Shares shares;
  for (int m = 0; m < comm.size(); ++m)
    shares.push_back({{kCount * m / comm.size(), kCount * (m + 1) / comm.size()}});
  const size_t each = 200000;
  std::vector<std::vector<std::byte>> in(static_cast<size_t>(comm.size()),
                                         std::vector<std::byte>(each)),
      out = in;
  const std::vector<ConstBytes> send(in.begin(), in.end());
  const std::vector<Bytes> receive(out.begin(), out.end());
  if (phase == Phase::kBarrier) barrier(comm);
  if (phase == Phase::kReduceScatter) reduce_scatter(comm, all, shares);
  if (phase == Phase::kAllGather) all_gather(comm, all, shares);
  if (phase == Phase::kAllToAll) all_to_all(comm, send, receive);
  if (phase == Phase::kText) all_gather_text(comm, std::string(5000, 'x'));
}

// Rank 2 fails while rank 0 reads what rank 1 has sent: rank 1 must end, but not before it is read.
TEST(Fault, WhoEndsKeepsItsBytesUntilTheReaderIsDone) {
  constexpr size_t kBytes = 1 << 20;
  constexpr int kTurns = 20000;  // of rank 0, for rank 1 to end too early
  std::atomic<bool> opened{false}, is_gone{false};
  size_t wrong = 0;
  Error thrown(Code::kIo, "");
  const auto texts = thread_errors(3, &thrown, [&](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    std::vector<std::byte> bytes(kBytes, std::byte{7});
    if (t.rank() == 0) {
      Exchange exchange(comm, Operation::kMessage);
      Incoming in = exchange.open(1, kBytes);
      opened = true;
      for (int i = 0; i < kTurns && !is_gone.load(); ++i) sched_yield();
      for (const std::byte b : exchange.next(in, kBytes, bytes)) wrong += b != std::byte{1};
      exchange.close(in);
      exchange.receive(2, bytes);
    } else if (t.rank() == 1) {
      std::fill(bytes.begin(), bytes.end(), std::byte{1});
      try {
        Exchange exchange(comm, Operation::kMessage);
        exchange.send(0, bytes);
        exchange.receive(2, bytes);
      } catch (const Error&) {
        std::fill(bytes.begin(), bytes.end(), std::byte{2});
        is_gone = true;
        throw;
      }
    } else {
      while (!opened.load()) sched_yield();
      throw_error(Code::kDiverged, "loss is no number");
    }
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(thrown.code(), Code::kDiverged);
  for (const size_t r : {0, 1}) EXPECT_TRUE(has(texts[r], "because of rank 2"));
}

// Every rank reads and is read when one fails: nobody waits for ever for another's end.
TEST(Fault, RanksThatReadEachOtherAllEnd) {
  for (int p = 0; p < static_cast<int>(Phase::kCount); ++p) {
    for (int delay = 0; delay < 8; ++delay) {
      Error thrown(Code::kIo, "");
      std::atomic<int> rounds{0};
      thread_errors(4, &thrown, [&](Transport& t) {
        Communicator comm = world(t, 0, kLong), other = world(t, 1, kLong);
        CommStream stream;
        for (;;) {
          if (t.rank() == 3 && rounds.load() > 0) {
            for (int i = 0; i < delay * 20; ++i) sched_yield();
            throw_error(Code::kDiverged, "loss is no number");
          }
          CommHandle beside = stream.submit([&] { run_phase(Phase::kReduceScatter, other); });
          run_phase(static_cast<Phase>(p), comm);
          beside.wait();
          ++rounds;
        }
      });
      EXPECT_EQ(thrown.code(), Code::kDiverged) << thrown.what();
    }
  }
}

void expect_all_name(const std::vector<RankOutcome>& outcomes, int culprit,
                     const std::string& what) {
  for (int r = 0; r < static_cast<int>(outcomes.size()); ++r) {
    const RankOutcome& o = outcomes[static_cast<size_t>(r)];
    if (r == culprit) {
      EXPECT_EQ(o.signal, SIGKILL);
      continue;
    }
    EXPECT_EQ(o.exit_code, exit_code(Code::kPeerLost)) << o.text;
    EXPECT_TRUE(has(o.text, "rank " + std::to_string(culprit))) << "rank " << r;
    EXPECT_TRUE(has(o.text, what)) << "rank " << r;
  }
}

TEST(ProcessFault, OrderlyRanksReturnTheirText) {
  const auto outcomes = run_process_ranks(3, [](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    for (int p = 0; p < static_cast<int>(Phase::kCount); ++p)
      run_phase(static_cast<Phase>(p), comm);
    return "rank " + std::to_string(t.rank());
  });
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(outcomes[static_cast<size_t>(r)].exit_code, 0);
    EXPECT_EQ(outcomes[static_cast<size_t>(r)].text, "rank " + std::to_string(r));
  }
}

TEST(ProcessFault, AKilledRankIsNamedByAllOthersInEveryPhase) {
  for (int p = 0; p < static_cast<int>(Phase::kCount); ++p) {
    SCOPED_TRACE(p);
    const auto outcomes = run_process_ranks(4, [p](Transport& t) {
      Communicator comm = world(t, 0, kLong);
      for (int round = 0;; ++round) {
        if (round == 3 && t.rank() == 2) raise(SIGKILL);
        run_phase(static_cast<Phase>(p), comm);
      }
      return std::string();
    });
    expect_all_name(outcomes, 2, "died");
  }
}

TEST(ProcessFault, AStoppedRankIsNamedByAllOthersInEveryPhase) {
  for (int p = 0; p < static_cast<int>(Phase::kCount); ++p) {
    SCOPED_TRACE(p);
    const auto outcomes = run_process_ranks(4, [p](Transport& t) {
      Communicator comm = world(t, 0, 0.5);
      for (int round = 0;; ++round) {
        if (round == 3 && t.rank() == 1) raise(SIGSTOP);
        run_phase(static_cast<Phase>(p), comm);
      }
      return std::string();
    });
    expect_all_name(outcomes, 1, "is stopped (SIGSTOP)");
  }
}

TEST(ProcessFault, WhoWaitsForAWaiterNamesTheRankThatIsStopped) {
  const auto outcomes = run_process_ranks(3, [](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    barrier(comm);
    std::byte byte[1];
    if (t.rank() == 1) raise(SIGSTOP);
    if (t.rank() == 2) t.receive(1, 1, 1, byte, kLong);
    if (t.rank() == 0) t.receive(2, 1, 1, byte, 0.5);
    return std::string();
  });
  expect_all_name(outcomes, 1, "rank 1 is stopped (SIGSTOP)");
}

// A second thread kills the process wherever it is, also in the middle of a message.
TEST(ProcessFault, ARankKilledAtAnyMomentIsNamed) {
  for (int delay = 0; delay < 12; ++delay) {
    const auto outcomes = run_process_ranks(3, [delay](Transport& t) {
      Communicator comm = world(t, 0, kLong);
      barrier(comm);
      std::atomic<int> rounds{0};
      std::thread killer;
      if (t.rank() == 0) {
        killer = std::thread([&] {
          while (rounds.load() < 2) sched_yield();
          for (int i = 0; i < delay * 100; ++i) sched_yield();
          raise(SIGKILL);
        });
      }
      for (;;) {
        run_phase(Phase::kReduceScatter, comm);
        ++rounds;
      }
      return std::string();
    });
    expect_all_name(outcomes, 0, "died");
  }
}

TEST(ProcessFault, AnErrorOfOneRankIsTheReasonOfAll) {
  const auto outcomes = run_process_ranks(3, [](Transport& t) {
    Communicator comm = world(t, 0, kLong);
    if (t.rank() == 0) throw_error(Code::kDiverged, "loss is no number");
    barrier(comm);
    return std::string();
  });
  EXPECT_EQ(outcomes[0].exit_code, exit_code(Code::kDiverged));
  for (const size_t r : {1, 2}) {
    EXPECT_EQ(outcomes[r].exit_code, exit_code(Code::kPeerLost));
    EXPECT_TRUE(has(outcomes[r].text, "because of rank 0: loss is no number"));
  }
}

// What no rank has mapped nobody would take away.
TEST(Fault, SharedMemoryThatCanNotBeMadeLeavesNoName) {
  const std::string name = "/moraine-fault-" + std::to_string(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &small);
    try {
      HostRegion::make_named(2, name);
    } catch (const Error& e) {
      ::_exit(e.code() == Code::kIo ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_LT(::shm_open(name.c_str(), O_RDWR, 0600), 0) << name << " is left";
  ::shm_unlink(name.c_str());
}

}  // namespace
}  // namespace moraine
