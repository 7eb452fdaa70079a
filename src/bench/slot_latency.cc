// SlotLatency: the same tokens both ways.
#include "bench/slot_latency.h"

#include <algorithm>
#include <functional>

#include "base/clock.h"
#include "base/random.h"
#include "bench/between_ranks.h"
#include "comm/all_ranks.h"
#include "parallel/expert_exchange.h"
#include "parallel/expert_gather.h"
#include "parallel/expert_slots.h"
#include "parallel/slot_choice.h"  // spread_rows
#include "tensor/arena.h"

namespace moraine {
namespace {

constexpr int kSlotChannel = 5;
constexpr int64_t kExpertsPerRank = 8;

class SlotBench {
 public:
  explicit SlotBench(Transport& transport)
      : slots_comm_(transport, all_ranks(transport), kSlotChannel, "bench slots", kBenchDeadline),
        share_comm_(transport, all_ranks(transport), kSlotChannel + 1, "bench shares",
                    kBenchDeadline),
        comm_(transport, all_ranks(transport), kSlotChannel + 2, "bench experts", kBenchDeadline),
        experts_(kExpertsPerRank * transport.size()),
        slots_(slots_comm_, shape(false)),
        share_(share_comm_, shape(true)),
        exchange_(comm_, experts_),
        gather_(comm_, experts_),
        arena_(Arena::Mode::kReal),
        x_(take("x", kSlotBenchTokens)),
        back_(take("back", kSlotBenchTokens)),
        in_(take("in", kSlotBenchTokens * transport.size())),
        rows_(arena_.take("rows", "bench", DType::kI64, {experts_ + 1})),
        received_(arena_.take("received", "bench", DType::kI64,
                              {exchange_.senders(), exchange_.groups() + 1})) {}

  CommTimes dispatch_combine(int64_t tokens) {
    draw(tokens, comm_.rank());
    const auto by_slots = [this] {
      slots_.dispatch(x_, rows_);
      answers_.clear();
      for (const SlotRows& from : slots_.receive()) answers_.push_back(from.x);
      slots_.combine(answers_);
      slots_.answers();
    };
    const auto by_collectives = [this] {
      exchange_.exchange_counts(0, rows_, received_);
      exchange_.to_experts(
          ctx_, {.out = in_, .in = x_, .rows = rows_, .received = received_, .layer = 0});
      exchange_.to_tokens(
          ctx_, {.out = back_, .in = in_, .rows = rows_, .received = received_, .layer = 0});
    };
    return measure("dispatch_combine", tokens, by_slots, by_collectives);
  }

  // Once for each rank, between which the tokens move on: none is ahead of the others for long.
  CommTimes share(int64_t tokens) {
    std::vector<std::vector<int64_t>> turns;
    for (int turn = 0; turn < comm_.size(); ++turn)
      turns.push_back(spread_rows(gather_, tokens, turn));
    const auto rows = [&turns, this](size_t turn) {
      return make_tensor(turns[turn].data(), DType::kI64, {experts_ + 1});
    };
    const auto by_slots = [&] {
      for (size_t turn = 0; turn < turns.size(); ++turn) {
        share_.place(tokens);
        share_.share(rows(turn));
        share_.answers();
      }
    };
    const auto by_collectives = [&] {
      for (size_t turn = 0; turn < turns.size(); ++turn) gather_.gather(ctx_, x_, rows(turn));
    };
    CommTimes times = measure("share", tokens, by_slots, by_collectives);
    share_.settle();
    for (double& s : times.seconds) s /= comm_.size();
    for (double& s : times.rival_seconds) s /= comm_.size();
    return times;
  }

 private:
  SlotShape shape(bool same_rows) const {
    return {.experts = experts_,
            .rows = kSlotBenchTokens,
            .width = kSlotBenchWidth,
            .dtype = DType::kBF16,
            .same_rows = same_rows};
  }
  Tensor take(const char* name, int64_t rows) {
    return arena_.take(name, "bench", DType::kBF16, {rows, kSlotBenchWidth});
  }

  // Every token chooses an expert.
  void draw(int64_t tokens, int rank) {
    std::vector<int64_t> chosen(static_cast<size_t>(experts_));
    for (int64_t t = 0; t < tokens; ++t)
      ++chosen[static_cast<size_t>(random_below(static_cast<uint64_t>(experts_), 1, Stream::kTest,
                                                static_cast<uint64_t>(rank),
                                                static_cast<uint64_t>(t)))];
    int64_t* at = rows_.as<int64_t>();
    at[0] = 0;
    for (int64_t e = 0; e < experts_; ++e) at[e + 1] = at[e] + chosen[static_cast<size_t>(e)];
  }

  static void add_block(const std::function<void()>& once, std::vector<double>* seconds) {
    for (int i = 0; i < kBlock; ++i) {
      const double begin = now_seconds();
      once();
      seconds->push_back(now_seconds() - begin);
    }
  }

  static CommTimes measure(const char* operation, int64_t tokens,
                           const std::function<void()>& by_slots,
                           const std::function<void()>& by_collectives) {
    CommTimes times{.operation = operation,
                    .bytes = tokens * kSlotBenchWidth * dtype_bytes(DType::kBF16),
                    .tokens = tokens};
    std::vector<double> first;  // memory is touched
    add_block(by_slots, &first), add_block(by_collectives, &first);
    for (int block = 0; block < kBenchBlocks; ++block) {
      add_block(by_slots, &times.seconds);
      add_block(by_collectives, &times.rival_seconds);
    }
    return times;
  }

  Communicator slots_comm_, share_comm_, comm_;
  const int64_t experts_;
  ExpertSlots slots_, share_;
  ExpertExchange exchange_;
  Context ctx_;  // the CPU's
  ExpertGather gather_;
  Arena arena_;
  const Tensor x_, back_, in_, rows_, received_;
  std::vector<Tensor> answers_;
};

}  // namespace

std::vector<CommTimes> measure_slots(Transport& transport) {
  SlotBench bench(transport);
  std::vector<CommTimes> rows;
  for (int64_t tokens = 1; tokens <= kSlotBenchTokens; tokens *= 2)
    rows.push_back(bench.dispatch_combine(tokens));
  for (int64_t tokens = 1; tokens <= kSlotBenchTokens; tokens *= 2)
    rows.push_back(bench.share(tokens));
  return rows;
}

}  // namespace moraine
