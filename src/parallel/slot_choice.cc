// SlotChoice: both ways in turns.
#include "parallel/slot_choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantile.h"
#include "comm/agree.h"

namespace moraine {
namespace {

struct Medians {
  double slots_us, all_gather_us;
};

class Trial {
 public:
  Trial(ExpertGather& gather, const GatheredRows& rows)
      : gather_(gather),
        memory_(static_cast<size_t>(rows.rows * rows.width * dtype_bytes(rows.dtype))),
        y_(make_tensor(memory_.data(), rows.dtype, {rows.rows, rows.width})) {}

  Medians measure(int64_t rows) {
    turns_.clear();
    for (int turn = 0; turn < gather_.comm().size(); ++turn)
      turns_.push_back(spread_rows(gather_, rows, turn));
    std::vector<double> slots, all_gather;
    time(rows, rows), time(rows, 0);  // memory is touched
    for (int i = 0; i < kSlotRounds; ++i) {
      slots.push_back(time(rows, rows));
      all_gather.push_back(time(rows, 0));
    }
    return {1e6 * quantile_of(slots, 0.5), 1e6 * quantile_of(all_gather, 0.5)};
  }

 private:
  double time(int64_t rows, int64_t slot_rows) {
    gather_.use_slots(slot_rows);
    barrier(gather_.comm());  // or one way pays for what the way before it left behind
    const double begin = now_seconds();
    for (std::vector<int64_t>& at : turns_)
      gather_.gather(ctx_, gather_.place(y_.rows(0, rows)),
                     make_tensor(at.data(), DType::kI64, {gather_.groups() + 1}));
    return (now_seconds() - begin) / static_cast<double>(turns_.size());
  }

  ExpertGather& gather_;
  Context ctx_;  // the CPU's
  std::vector<std::byte> memory_;
  const Tensor y_;
  std::vector<std::vector<int64_t>> turns_;  // bounds of each
};

SlotChoice fastest(ExpertGather& gather, const GatheredRows& rows) {
  Trial trial(gather, rows);
  SlotChoice choice;
  double gain = 0, most_gain = 0;
  for (int64_t n = 1; n <= rows.rows; n = n < rows.rows ? std::min(2 * n, rows.rows) : n + 1) {
    const Medians us = trial.measure(n);
    if (n == 1) choice = {.slots_us = us.slots_us, .all_gather_us = us.all_gather_us};
    gain += std::log(us.all_gather_us / us.slots_us);
    if (gain > most_gain) most_gain = gain, choice.rows = n;
  }
  gather.settle();
  return value_of_first(gather.comm(), choice);
}

}  // namespace

std::vector<int64_t> spread_rows(const ExpertGather& gather, int64_t rows, int64_t turn) {
  const int64_t P = gather.comm().size();
  std::vector<int64_t> at(static_cast<size_t>(gather.groups() + 1));
  for (int m = 0; m < P; ++m) {
    const int64_t place = (m - turn + P) % P;  // of the member, among those that rows go to in turn
    at[static_cast<size_t>(gather.group_begin(m) + 1)] = (rows - place + P - 1) / P;
  }
  for (size_t e = 1; e < at.size(); ++e) at[e] += at[e - 1];
  return at;
}

int64_t slot_memory(const ExpertGather& gather, const GatheredRows& rows,
                    const std::string& wanted) {
  if (wanted == "off") return 0;
  return ExpertSlots::bytes(
      gather.slot_shape(std::min(rows.rows, kMostSlotRows), rows.width, rows.dtype),
      gather.comm().size());
}

SlotChoice choose_slots(ExpertGather& gather, const GatheredRows& rows, const std::string& wanted) {
  if (wanted != "auto" && wanted != "on" && wanted != "off")
    throw_error(Code::kInvalidArgument, "low-latency {}: wanted auto, on or off", wanted);
  if (wanted == "off") return {};
  GatheredRows few = rows;
  few.rows = std::min(rows.rows, kMostSlotRows);
  gather.add_slots(few.rows, few.width, few.dtype);
  const SlotChoice choice = wanted == "on" ? SlotChoice{.rows = few.rows} : fastest(gather, few);
  gather.use_slots(choice.rows);
  return choice;
}

}  // namespace moraine
