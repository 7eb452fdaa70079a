// ExpertGather: experts on several ranks for token rows that every rank has.
//
//   member m of P holds experts [m E / P, (m+1) E / P) of each layer, and up to C guests of others; it
//   computes the rows that the split gives to these groups (parallel/row_split.h); then all have the answers of all
//
// For the engine, whose ranks compute the same batch. A row of an expert has the same bits whoever computes
// it, so nothing depends on the ranks. Any P up to E.
//
// Few rows may go through slots (parallel/expert_slots.h), the others by an all_gather. Which, is a matter of their
// number alone, which all ranks know; the bits are the same.
//
// Of a device: choices come out of it, and where there are guests, groups go in; answers go through the host's pinned
// memory (parallel/staged_rows.h). A wait for choices and one for answers, beside the caller's for where each expert's
// rows begin. Slots are for the CPU.
//
// Shapes: N <= T*n rows of D, by group: of member 0 its experts and its guests, of member 1, ...; G = E + P*C groups.
// Cost:   D * bytes of the type for each row, to every other rank; one all_gather, or one put to each.
// Memory: slots: 4 rows for each.
// Errors: kInvalidArgument for more ranks than experts; kPeerLost (comm/transport.h); kIo (no memory for slots).
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "parallel/expert_slots.h"
#include "parallel/member_speed.h"  // kTimedRows
#include "parallel/row_split.h"
#include "parallel/staged_rows.h"

namespace moraine {

// Guest slots; hosts as in SplitShape.
struct GatherPlaces {
  int64_t layers = 1, slots = 0;
  std::vector<int> hosts = {};
  bool shuffled = false;  // rows are split at random
};

// What was computed in some passes, by work_of_rows; the same on all members but for work and seconds.
struct GatherWork {
  std::vector<int64_t> expert_work;  // [L, E] of each expert as one group
  // Of the busiest member, sums over layers: as split, and as it would be at home; and of all at home.
  int64_t busiest = 0, home_busiest = 0, home_all = 0;
  // Computed here, and how long that took.
  int64_t work = 0;
  double seconds = 0;
  // Least time of one of these in a pass with kTimedRows or more; 0: there was none.
  double least_row_seconds = 0;
};

class ExpertGather {
 public:
  ExpertGather(Communicator& comm, int64_t num_experts, const GatherPlaces& places = {});

  const SplitShape& shape() const { return shape_; }
  int64_t expert_begin() const { return shape_.begin(comm_->rank()); }
  int64_t expert_end() const { return shape_.begin(comm_->rank() + 1); }
  int64_t layers() const { return static_cast<int64_t>(routes_.size()); }
  int64_t groups() const { return shape_.groups(); }
  int64_t group_begin(int64_t member) const { return shape_.group_begin(member); }

  // Guests whose weights are here and there. All members place the same between the same steps.
  void set_guests(int64_t layer, const GuestTable& guests);
  const GuestTable& guests(int64_t layer) const { return guests_[static_cast<size_t>(layer)]; }
  // Of a row at each member, > 0; [P], the same on all. All alike until it is set.
  void set_cost(std::vector<int64_t> cost) { cost_ = std::move(cost); }
  const std::vector<int64_t>& cost() const { return cost_; }

  // Of a device, before the first step: most rows of one, as they will be given.
  void stage(Arena& arena, DType dtype, int64_t rows, int64_t width);

  // Splits a layer's rows: each row's group. out may be empty without guest slots: then it is `expert`.
  Tensor split(Context& ctx, int64_t layer,
               const Tensor& expert,  // [T, n] i32; E means skip
               const Tensor& out);    // [T, n] i32 out, or longer; G means skip
  // This rank's rows of the last split took so long, and what gather waits for a device.
  void computed(double seconds);
  // Since it was last called.
  GatherWork take_work();

  SlotShape slot_shape(int64_t rows, int64_t width, DType dtype) const;
  // Makes slots for so many rows; none are used yet. Collective.
  void add_slots(int64_t rows, int64_t width, DType dtype);
  // From here on steps of up to so many rows (T*n) use them, the same on all members; 0: none.
  void use_slots(int64_t rows);

  // Where the rows of a step are computed, and gathered: `y`, or slots, until the next step's are gathered.
  Tensor place(const Tensor& y);    // [T*n, D]
  void gather(Context& ctx,         //
              const Tensor& y,      // [T*n, D] in: rows of the groups here; out: all
              const Tensor& rows);  // [G+1] i64, the host's: where each group's rows begin

  // At the end of a step: until every member has shared its answers, so that one which needs no more may leave.
  void settle();

  Communicator& comm() const { return *comm_; }

 private:
  bool takes_slots(const Tensor& y) const { return slot_rows_ > 0 && y.dims[0] <= slot_rows_; }
  void count(int64_t layer, const Tensor& expert);
  void add_work();
  void add_time(double seconds);

  Communicator* comm_;
  SplitShape shape_;
  bool shuffled_;
  std::vector<GuestTable> guests_;   // [L]
  std::vector<SplitRoutes> routes_;  // [L]
  std::vector<int64_t> cost_;        // [P]
  std::vector<int64_t> rows_;        // [E] of the last split
  RowSplit split_;                   // the last one
  uint64_t splits_ = 0;
  GatherWork work_;
  std::unique_ptr<ExpertSlots> slots_;     // null: there are none
  int64_t slot_rows_ = 0;                  // most of a step that goes through them
  StagedRows choices_, groups_, answers_;  // without a device no memory
  double launched_seconds_ = 0;            // of rows that a device may still be at
};

}  // namespace moraine
