// ExpertExchange: brings token rows to the ranks that hold their experts, and the answers back.
//
//   member m of the expert group holds experts [m, m+1) * E / M of each layer
//   to_experts   this rank's rows, grouped by expert, each to its expert's rank
//   to_tokens    the way back: rows arrive where they came from
// Backward of one is the other. Dropless: every row of a choice travels once each way.
//
// A rank keeps what it received apart by sender, and in the sender's order: so an expert's weight
// gradient is summed for each sender by itself, over the same rows in the same order as if the
// sender held the expert (the slot tree adds the senders). No bit depends on who holds what.
//
// Shapes: E experts, El = E / M held here, S = M senders, N = T*n rows of one rank at most.
// Memory: the receiver's buffers are for S*N rows, as many as can come; pages that no row reaches
//         stay untouched.
// Cost:   counts: 8*E bytes to each member; rows: D * bytes of the type, once each way; all_to_all.
// Errors: kPeerLost (comm/transport.h).
#pragma once

#include <span>
#include <vector>

#include "comm/collectives.h"
#include "tensor/arena.h"

namespace moraine {

class ExpertExchange {
 public:
  ExpertExchange(Communicator& comm, int64_t num_experts);

  int64_t senders() const { return comm_->size(); }
  int64_t experts() const { return experts_; }  // held here
  int64_t expert_begin() const { return comm_->rank() * experts_; }

  // Learns what will come: received[s, e] .. received[s, e+1] are sender s's rows of local expert
  // e, counted from s's first row.
  void exchange_counts(const Tensor& rows,       // [E+1] i64 in: this rank's rows by expert
                       const Tensor& received);  // [S, El+1] i64 out

  void to_experts(const Tensor& out,  // [S*N, D] out: sender after sender
                  const Tensor& in,   // [N, D]
                  const Tensor& rows, const Tensor& received);
  void to_tokens(const Tensor& out,  // [N, D] out
                 const Tensor& in,   // [S*N, D]
                 const Tensor& rows, const Tensor& received);

 private:
  void split(const Tensor& token_rows, const Tensor& expert_rows, const Tensor& rows,
             const Tensor& received);

  Communicator* comm_;
  int64_t experts_;
  std::vector<int64_t> counts_;                  // [S, E]
  std::vector<Bytes> token_side_, expert_side_;  // by member
  std::vector<ConstBytes> send_;
};

// Source s's rows of what came: where they begin, and its part of `received`.
struct SenderRows {
  int64_t begin = 0, end = 0;
  std::span<const int64_t> rows;  // [El+1], from 0
};
SenderRows sender_rows(const Tensor& received, int64_t sender);

}  // namespace moraine
