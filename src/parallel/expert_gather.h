// ExpertGather: experts on several ranks for token rows that every rank has.
//
//   member m of P holds experts [m E / P, (m+1) E / P) of each layer, and computes their rows; then all
//   have the answers of all
//
// For the engine, whose ranks compute the same batch. A row of an expert has the same bits whoever computes
// it, so nothing depends on the ranks. Any P up to E.
//
// Few rows may go through slots (parallel/expert_slots.h), the others by an all_gather. Which, is a matter of their
// number alone, which all ranks know; the bits are the same.
//
// Shapes: N <= T*n rows of D, grouped by expert.
// Cost:   D * bytes of the type for each row, to every other rank; one all_gather, or one put to each.
// Memory: slots: 4 rows for each.
// Errors: kInvalidArgument for more ranks than experts; kPeerLost (comm/transport.h); kIo (no memory for slots).
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "parallel/expert_slots.h"
#include "tensor/tensor.h"

namespace moraine {

class ExpertGather {
 public:
  ExpertGather(Communicator& comm, int64_t num_experts);

  int64_t expert_begin(int member) const { return member * num_experts_ / comm_->size(); }
  int64_t expert_begin() const { return expert_begin(comm_->rank()); }
  int64_t expert_end() const { return expert_begin(comm_->rank() + 1); }

  // Makes slots for so many rows; none are used yet. Collective.
  void add_slots(int64_t rows, int64_t width, DType dtype);
  // From here on steps of up to so many rows (T*n) use them, the same on all members; 0: none.
  void use_slots(int64_t rows);

  // Where the rows of a step are computed, and gathered: `y`, or slots, until the next step's are gathered.
  Tensor place(const Tensor& y);    // [T*n, D]
  void gather(const Tensor& y,      // [T*n, D] in: rows of the experts held here; out: all
              const Tensor& rows);  // [E+1] i64: where each expert's rows begin

  // At the end of a step: until every member has shared its answers, so that one which needs no more may leave.
  void settle();

  Communicator& comm() const { return *comm_; }
  int64_t experts() const { return num_experts_; }

 private:
  bool takes_slots(const Tensor& y) const { return slot_rows_ > 0 && y.dims[0] <= slot_rows_; }

  Communicator* comm_;
  int64_t num_experts_;
  std::unique_ptr<ExpertSlots> slots_;  // null: there are none
  int64_t slot_rows_ = 0;               // most of a step that goes through them
};

}  // namespace moraine
