// ExpertGather: experts on several ranks for token rows that every rank has.
//
//   member m of P holds experts [m E / P, (m+1) E / P) of each layer, and computes their rows; then all
//   have the answers of all
//
// For the engine, whose ranks compute the same batch. A row of an expert has the same bits whoever computes
// it, so nothing depends on the ranks. Any P up to E.
//
// Shapes: N = T*n rows of D, grouped by expert.
// Cost:   D * bytes of the type for each row, to every other rank; one all_gather.
// Errors: kInvalidArgument for more ranks than experts; kPeerLost (comm/transport.h).
#pragma once

#include "comm/communicator.h"
#include "tensor/tensor.h"

namespace moraine {

class ExpertGather {
 public:
  ExpertGather(Communicator& comm, int64_t num_experts);

  int64_t expert_begin() const { return begin_of(comm_->rank()); }
  int64_t expert_end() const { return begin_of(comm_->rank() + 1); }

  void gather(const Tensor& y,      // [N, D] in: rows of the experts held here; out: all
              const Tensor& rows);  // [E+1] i64: where each expert's rows begin

 private:
  int64_t begin_of(int member) const { return member * num_experts_ / comm_->size(); }

  Communicator* comm_;
  int64_t num_experts_;
};

}  // namespace moraine
