// ExpertSlots beside the collectives: between threads, between processes, and between hosts (rails). Fails if a row is
// lost, changed or given to another expert, if an exchange sees what belongs to another, or if a lost rank goes
// unnoticed.
#include "parallel/expert_slots.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <deque>
#include <functional>

#include "base/error.h"
#include "base/random.h"
#include "comm/all_ranks.h"
#include "comm/process_ranks.h"
#include "comm/test_rails.h"
#include "comm/thread_ranks.h"
#include "parallel/expert_exchange.h"
#include "parallel/expert_gather.h"

namespace moraine {
namespace {

using Body = std::function<void(Transport&)>;

constexpr int64_t kSlotExperts = 8, kSlotRows = 37;

void require(bool ok, const char* what) {
  if (!ok) throw_error(Code::kCorrupt, "{}", what);
}

// Processes first: they are forked before this program has threads.
void everywhere(int ranks, const Body& body) {
  for (const RankOutcome& o : run_process_ranks(ranks, [&body](Transport& t) {
         body(t);
         return std::string();
       }))
    EXPECT_EQ(o.exit_code, 0) << o.text;
  run_thread_ranks(ranks, body);
  if (ranks == 1) return;
  for (const std::string& text : run_on_rails(ranks, 2, body)) EXPECT_EQ(text, "");
}

Communicator world(Transport& t, int channel, double deadline = 60) {
  return Communicator(t, all_ranks(t), channel, "experts", deadline);
}

uint64_t draw(uint64_t below, int64_t step, int rank, int64_t index) {
  return random_below(below, static_cast<uint64_t>(step), Stream::kTest,
                      static_cast<uint64_t>(rank), static_cast<uint64_t>(index));
}

// Rows of a rank by expert at a step, [E+1] bounds: every kind of step comes again and again.
std::vector<int64_t> draw_bounds(int64_t step, int rank) {
  std::vector<int64_t> bounds = {0};
  const int64_t kind =
      (step + rank) % 5;  // 0: none, 1: one, 2: all that fit, to one expert; else some
  const int64_t chosen = static_cast<int64_t>(draw(kSlotExperts, step, rank, 0));
  for (int64_t e = 0; e < kSlotExperts; ++e) {
    const int64_t left = kSlotRows - bounds.back();
    int64_t n = e != chosen ? 0 : kind == 1 ? 1 : kSlotRows;
    if (kind == 0) n = 0;
    if (kind > 2)
      n = static_cast<int64_t>(draw(static_cast<uint64_t>(left / 2 + 1), step, rank, e + 1));
    bounds.push_back(bounds.back() + n);
  }
  return bounds;
}

// A rank's tensors, of one step after another.
class RowMemory {
 public:
  RowMemory(DType dtype, int64_t width) : dtype_(dtype), width_(width) {}

  Tensor empty(int64_t rows) {
    auto& memory = memory_.emplace_back(static_cast<size_t>(rows * width_ * dtype_bytes(dtype_)));
    return make_tensor(memory.data(), dtype_, {rows, width_});
  }
  // Any bits: nothing is added up.
  Tensor random(int64_t rows, int64_t step, int rank) {
    const Tensor t = empty(rows);
    for (int64_t i = 0; i < t.bytes(); ++i)
      at(t)[i] = static_cast<std::byte>(draw(256, step, rank, i));
    return t;
  }
  Tensor integers(const std::vector<int64_t>& values) {
    auto& memory = memory_.emplace_back(values.size() * sizeof(int64_t));
    std::memcpy(memory.data(), values.data(), memory.size());
    return make_tensor(memory.data(), DType::kI64, {static_cast<int64_t>(values.size())});
  }
  // What expert e makes of a row.
  void compute(const Tensor& y, const Tensor& x, int64_t e) const {
    for (int64_t i = 0; i < y.bytes(); ++i) at(y)[i] = at(x)[i] ^ static_cast<std::byte>(e + 1);
  }
  static std::byte* at(const Tensor& t) { return static_cast<std::byte*>(t.data); }

 private:
  const DType dtype_;
  const int64_t width_;
  std::vector<std::vector<std::byte>> memory_;
};

bool same(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0);
}

struct Kind {
  DType dtype = DType::kF32;
  int64_t width = 3;
};

// One exchange of a rank: what it sends, and what the experts here make of what they receive.
class Sent {  // stays where it is
 public:
  Sent(const Kind& kind, int64_t step, int rank)
      : tensors_(kind.dtype, kind.width),
        bounds_(draw_bounds(step, rank)),
        rows_(tensors_.integers(bounds_)),
        x_(tensors_.random(kSlotRows, step, rank)) {}

  const Tensor& x() const { return x_; }
  const Tensor& rows() const { return rows_; }

  void answer(ExpertSlots& slots, int rank) {
    std::vector<Tensor> y;
    for (const SlotRows& from : slots.receive()) {
      y.push_back(tensors_.empty(from.x.dims[0]));
      for (size_t e = 0; e + 1 < from.at.size(); ++e)
        tensors_.compute(y.back().rows(from.at[e], from.at[e + 1]),
                         from.x.rows(from.at[e], from.at[e + 1]),
                         slots.expert_begin(rank) + static_cast<int64_t>(e));
    }
    slots.combine(y);
  }
  void check(const Tensor& answers) {
    const int64_t n = bounds_.back();
    const Tensor want = tensors_.empty(n);
    for (int64_t e = 0; e < kSlotExperts; ++e) {
      const int64_t begin = bounds_[static_cast<size_t>(e)],
                    end = bounds_[static_cast<size_t>(e + 1)];
      tensors_.compute(want.rows(begin, end), x_.rows(begin, end), e);
    }
    require(same(answers, want), "an answer is not that of the row's expert");
  }

 private:
  RowMemory tensors_;
  const std::vector<int64_t> bounds_;
  const Tensor rows_, x_;
};

SlotShape shape_of(const Kind& kind, bool same_rows = false) {
  return {.experts = kSlotExperts,
          .rows = kSlotRows,
          .width = kind.width,
          .dtype = kind.dtype,
          .same_rows = same_rows};
}

TEST(ExpertSlots, EveryRowMeetsItsExpertInAHundredExchangesInARow) {
  for (const int ranks : {1, 2, 3, 5}) {
    everywhere(ranks, [](Transport& t) {
      Communicator comm = world(t, 1);
      const Kind kind = {.dtype = DType::kBF16, .width = 24};
      ExpertSlots slots(comm, shape_of(kind));
      for (int64_t step = 0; step < 100; ++step) {
        Sent sent(kind, step, comm.rank());
        slots.dispatch(sent.x(), sent.rows());
        sent.answer(slots, comm.rank());
        sent.check(slots.answers());
      }
      barrier(comm);
    });
  }
}

// The second is dispatched before the first is answered, as two micro-batches do.
TEST(ExpertSlots, TwoAreUnderWayAtOnce) {
  for (const int ranks : {2, 3}) {
    everywhere(ranks, [](Transport& t) {
      Communicator comm = world(t, 1);
      ExpertSlots slots(comm, shape_of({}));
      std::deque<Sent> sent;
      for (int64_t step = 0; step < 50; ++step) sent.emplace_back(Kind(), step, comm.rank());
      slots.dispatch(sent[0].x(), sent[0].rows());
      for (size_t i = 0; i < sent.size(); ++i) {
        if (i + 1 < sent.size()) slots.dispatch(sent[i + 1].x(), sent[i + 1].rows());
        sent[i].answer(slots, comm.rank());
        sent[i].check(slots.answers());
      }
      barrier(comm);
    });
  }
}

// What arrives where, and comes back, beside counts and two all-to-alls.
TEST(ExpertSlots, TheBitsAreThoseOfTheCollectives) {
  for (const Kind& kind : {Kind{.dtype = DType::kF32, .width = 512}, Kind{.dtype = DType::kBF16}}) {
    for (const int ranks : {2, 4}) {
      everywhere(ranks, [&kind](Transport& t) {
        Communicator comm = world(t, 1), other = world(t, 2);
        const int me = comm.rank();
        ExpertSlots slots(comm, shape_of(kind));
        ExpertExchange exchange(other, kSlotExperts);
        RowMemory tensors(kind.dtype, kind.width);
        Context ctx;
        const Tensor in = tensors.empty(comm.size() * kSlotRows), back = tensors.empty(kSlotRows);
        std::vector<int64_t> table(static_cast<size_t>(comm.size() * (exchange.groups() + 1)));
        const Tensor received =
            make_tensor(table.data(), DType::kI64, {comm.size(), exchange.groups() + 1});
        for (int64_t step = 0; step < 10; ++step) {
          Sent sent(kind, step, me);
          exchange.exchange_counts(0, sent.rows(), received);
          exchange.to_experts(
              ctx,
              {.out = in, .in = sent.x(), .rows = sent.rows(), .received = received, .layer = 0});
          slots.dispatch(sent.x(), sent.rows());
          std::vector<Tensor> y;
          for (const SlotRows& from : slots.receive()) {
            const int s = static_cast<int>(y.size());
            const SenderRows want = sender_rows(received, s);
            require(std::equal(from.at.begin(), from.at.end(), want.rows.begin(), want.rows.end()),
                    "rows of each expert");
            require(same(from.x, in.rows(want.begin, want.end)), "a row on its way");
            y.push_back(from.x);
          }
          exchange.to_tokens(
              ctx, {.out = back, .in = in, .rows = sent.rows(), .received = received, .layer = 0});
          slots.combine(y);
          const Tensor answers = slots.answers();
          require(same(answers, back.rows(0, answers.dims[0])), "a row that came back");
        }
        barrier(comm);
      });
    }
  }
}

// A step in which every rank has all rows: here are those of its experts, by a function of step and rank.
struct SharedStep {
  SharedStep(const Kind& kind, int64_t step, int rank)
      : tensors(kind.dtype, kind.width),
        bounds(draw_bounds(step, 0)),
        rows(tensors.integers(bounds)),
        y(tensors.random(kSlotRows, step, rank)) {}

  RowMemory tensors;
  const std::vector<int64_t> bounds;
  const Tensor rows, y;
};

// Any number of rows from none to all that fit. The all-gathers come first: then nothing but slots holds a rank back
// that has no row to wait for.
TEST(ExpertSlots, SharedRowsAreThoseOfTheAllGather) {
  for (const int ranks : {2, 3, 5}) {
    everywhere(ranks, [](Transport& t) {
      Communicator comm = world(t, 1);
      const Kind kind = {.dtype = DType::kBF16, .width = 24};
      ExpertGather gather(comm, kSlotExperts);
      Context ctx;
      std::deque<SharedStep> want;
      for (int64_t step = 0; step < 100; ++step) {
        want.emplace_back(kind, step, comm.rank());
        gather.gather(ctx, want.back().y, want.back().rows);
      }
      ExpertSlots slots(comm, shape_of(kind, true));
      for (int64_t step = 0; step < 100; ++step) {
        SharedStep mine(kind, step, comm.rank());
        const Tensor placed = slots.place(mine.bounds.back());
        const int64_t begin = mine.bounds[static_cast<size_t>(gather.expert_begin())],
                      end = mine.bounds[static_cast<size_t>(gather.expert_end())];
        std::copy_n(RowMemory::at(mine.y.rows(begin, end)), mine.y.rows(begin, end).bytes(),
                    RowMemory::at(placed.rows(begin, end)));
        slots.share(mine.rows);
        const Tensor answers = slots.answers();
        require(same(answers, want[static_cast<size_t>(step)].y.rows(0, mine.bounds.back())),
                "an answer is not that of the all-gather");
      }
      slots.settle();  // and leaves
    });
  }
}

// Lost ranks --------------------------------------------------------------------------------------

// Rank 1 ends, or is silent, before it has dispatched, answered, or shared.
void lose(Transport& t, int moment, double deadline, const std::function<void()>& end) {
  Communicator comm = world(t, 1, deadline);
  ExpertSlots slots(comm, shape_of({}, moment == 2));
  Sent sent({}, 3, comm.rank());
  const auto now = [&](int here) {
    if (comm.rank() == 1 && moment == here) end();
    return comm.rank() == 1 && moment == here;
  };
  if (moment == 2) {
    const SharedStep step({}, 3, comm.rank());
    slots.place(kSlotRows);
    if (now(2)) return;
    slots.share(step.rows);
  } else {
    if (now(0)) return;
    slots.dispatch(sent.x(), sent.rows());
    const std::span<const SlotRows> received = slots.receive();
    if (now(1)) return;
    std::vector<Tensor> y;
    for (const SlotRows& from : received) y.push_back(from.x);
    slots.combine(y);
  }
  slots.answers();
}

TEST(ExpertSlots, ARankThatDiedEndsTheOthers) {
  for (const int moment : {0, 1, 2}) {
    const auto outcomes = run_process_ranks(3, [moment](Transport& t) {
      lose(t, moment, 60, [] { raise(SIGKILL); });
      return std::string();
    });
    EXPECT_EQ(outcomes[1].signal, SIGKILL);
    for (const int rank : {0, 2}) {
      const RankOutcome& o = outcomes[static_cast<size_t>(rank)];
      EXPECT_EQ(o.exit_code, exit_code(Code::kPeerLost)) << moment;
      EXPECT_NE(o.text.find("rank 1, which died"), std::string::npos) << o.text;
    }
  }
}

TEST(ExpertSlots, ASilentRankEndsTheWaitAtTheDeadline) {
  for (const int moment : {0, 1, 2}) {
    std::string text;
    try {
      run_thread_ranks(2, [moment](Transport& t) {
        lose(t, moment, 0.2, [] {});
        Communicator later = world(t, 2);
        barrier(later);
      });
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kPeerLost);
      text = e.what();
    }
    EXPECT_NE(text.find("waits for a signal of rank 1 since 0.2"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace moraine
