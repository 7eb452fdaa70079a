// TimeSplit: where the time of some steps went, each operation beside its floor.
//
//   floor = max(flops / peak, bytes / bandwidth)
//
// Multiply-adds of integers have a peak of their own, where the machine has an instruction for them.
// Peak and bandwidth are the measured ones of the machine (machine/machine.h). Bytes are compulsory
// traffic, each operand once, at the rate of memory: an operation whose operands are still in a
// cache may take less time than its floor. Products of another type than the run's (Newton-Schulz
// has its own) are held against the peak of the run's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/profile.h"
#include "machine/machine.h"

namespace moraine {

// Of one rank; 0: not known.
struct RankLimits {
  double flops_s = 0, bytes_s = 0;
  double integer_ops_s = 0;  // 0: as flops_s
};
// The peak is the share of `threads` in those that were measured, if there are fewer. The bandwidth
// is the whole machine's: no rank has more.
RankLimits rank_limits(const Machine& machine, int threads, bool bf16);

// What the arithmetic of some rows takes at the peak.
double arithmetic_seconds(std::span<const Profile::Row> rows, const RankLimits& limits);

enum class Bound : uint8_t { kNothing, kFlops, kBytes };
struct Floor {
  double seconds = 0;
  Bound bound = Bound::kNothing;  // which of the two is larger
};
Floor floor_of(const Profile::Row& row, const RankLimits& limits);

struct TimeSplit {
  double seconds = 0;                       // all that follows, but for `floor`
  double flops_bound = 0, bytes_bound = 0;  // operations, by what their floor is made of
  double no_floor = 0;                      // operations without any
  double ranks = 0;                         // waiting for other ranks, or sending to them
  double phases = 0;                        // what is in no operation
  double flops_bound_floor = 0, bytes_bound_floor = 0;
};
TimeSplit split_time(std::span<const Profile::Row> rows, const RankLimits& limits);

// Adds calls, seconds and costs of rows of the same name.
void merge_rows(std::vector<Profile::Row>& all, std::span<const Profile::Row> more);
// The row of this name; all zero if there is none.
Profile::Row row_of(std::span<const Profile::Row> rows, const char* name);

// What a row is to a person: of a phase, what is left of it without the operations in it.
std::string row_label(const Profile::Row& row);

// Operations, then waiting for ranks, then what is left of each phase, then the sum: shares add up
// to 100 %.
std::string time_table(std::span<const Profile::Row> rows, const RankLimits& limits);

}  // namespace moraine
