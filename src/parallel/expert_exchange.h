// ExpertExchange: brings token rows to the ranks that hold their experts, and the answers back.
//
//   member m of the expert group holds experts [m, m+1) * E / M of each layer, and the weights of up to
//   C guests, experts of others for which it serves some senders (parallel/expert_placement.h)
//   to_experts   this rank's rows, in the order of its routes, each to who serves its expert
//   to_tokens    the way back: rows arrive where they came from
// Backward of one is the other. Dropless: every row of a choice travels once each way.
//
// A rank keeps what it received apart by sender, and in the sender's order: so an expert's weight
// gradient is summed for each sender by itself, over the same rows in the same order as if the
// sender held the expert (the slot tree adds the senders). No bit depends on who holds what.
//
// Of a device, rows are staged in the host's pinned memory (parallel/staged_rows.h), and exchanged there: each exchange
// waits until the device has what is sent, and returns before it has what came. Its own rows stand by expert, wherever
// experts are served, and are put in the order of the routes on their way: so no kernel has to know the routes.
//
// Shapes: E experts, El = E / M held here, C guest slots, S = M senders, N = T*n rows of one rank at most.
// Memory: the receiver's buffers are for S*N rows, as many as can come; pages that no row reaches
//         stay untouched. Of a device as much again for both sides of one exchange.
// Cost:   counts: 8*E bytes to each member; rows: D * bytes of the type, once each way; all_to_all.
// Errors: kPeerLost (comm/transport.h).
#pragma once

#include <span>
#include <vector>

#include "comm/collectives.h"
#include "parallel/expert_routes.h"
#include "parallel/member_speed.h"  // kTimedRows
#include "parallel/staged_rows.h"

namespace moraine {

// What the members of a group had to do in a time. Busiest and mean are sums over exchanges: who waits
// for the busiest waits in each of them.
struct ExpertWork {
  int64_t busiest_rows = 0, home_busiest_rows = 0;  // as placed, and as it would be at home
  int64_t all_rows = 0;                             // of all members
  int64_t rows = 0;                                 // served here
  double seconds = 0;                               // of computing them here
  double least_row_seconds = 0;  // of one in a forward pass with kTimedRows here or more; 0: none

  double busiest_over_mean(int64_t members) const;
  double home_busiest_over_mean(int64_t members) const;
};

// Guest slots; hosts as in PlacementShape. Without slots one placement, the static one, is that of all layers.
struct ExchangePlaces {
  int64_t layers = 1, slots = 0;
  std::vector<int> hosts = {};
};

// N rows are in the order of the routes, S*N sender after sender.
struct RowExchange {
  Tensor out;             // [S*N, D] to experts, [N, D] to tokens
  Tensor in;              // [N, D], [S*N, D]
  Tensor rows, received;  // of exchange_counts
  int64_t layer;
};

class ExpertExchange {
 public:
  ExpertExchange(Communicator& comm, int64_t num_experts, const ExchangePlaces& places = {});

  int64_t senders() const { return comm_->size(); }
  int64_t member() const { return comm_->rank(); }
  int64_t experts() const { return shape_.held(); }  // held here: El
  int64_t slots() const { return shape_.slots; }     // C
  int64_t groups() const { return experts() + slots(); }
  int64_t expert_begin() const { return comm_->rank() * experts(); }
  const PlacementShape& shape() const { return shape_; }
  // Of a device, before the first exchange: a rank's rows, at most, as they will be given.
  void stage(Arena& arena, DType dtype, int64_t rows, int64_t width);

  const ExpertPlacement& placement(int64_t layer) const;
  const ExpertRoutes& routes(int64_t layer) const;

  // From here on. All members place the same at the same time, with no exchange under way.
  void place(int64_t layer, const ExpertPlacement& placement);

  // Where this rank's rows of an expert stand. out may be empty while routes are static: then it is `expert`, as it
  // always is of a device.
  Tensor positions(int64_t layer,
                   const Tensor& expert,      // [T, n] i32; E means skip
                   const Tensor& out) const;  // [T, n] i32 out
  // Counts by position, [E+1], to counts by expert, in place.
  void counts_by_expert(int64_t layer, const Tensor& load) const;

  // Learns what will come: received[s, j] .. received[s, j+1] are sender s's rows of group j here, counted
  // from s's first row. rows and received are the host's, here and below.
  void exchange_counts(int64_t layer,
                       const Tensor& rows,       // [E+1] i64 in: this rank's rows by position; of a
                                                 // device by expert
                       const Tensor& received);  // [S, El+C+1] i64 out

  void to_experts(Context& ctx, const RowExchange& e);
  void to_tokens(Context& ctx, const RowExchange& e);

  // What was done since the last call of take_work; who computes rows adds the seconds, before to_tokens. That adds
  // those that a device still takes.
  void add_seconds(double seconds) { work_.seconds += seconds; }
  void add_forward_seconds(double seconds);
  ExpertWork take_work();

 private:
  void order(const ExpertRoutes& routes, const Tensor& rows);
  void split(const ExpertRoutes& routes, const Tensor& token_rows, const Tensor& expert_rows,
             const Tensor& received);
  void add_work(int64_t layer);
  void add_row_time(double seconds);

  Communicator* comm_;
  PlacementShape shape_;
  std::vector<ExpertPlacement> placements_;  // of each layer, or one for all
  std::vector<ExpertRoutes> routes_;         // likewise
  std::vector<int64_t> mine_, counts_;       // [E], [S, E] by expert
  std::vector<int64_t> served_, at_home_;    // [M] rows of one exchange
  ExpertWork work_;
  std::vector<Bytes> token_side_, expert_side_;  // by member
  std::vector<ConstBytes> send_;
  std::vector<int64_t> begin_;     // [E+1] where the rows of each position begin, on their way
  std::vector<StagedMove> moves_;  // of a device: from and to where the rows of each expert stand
  bool is_staged_ = false;         // a device's
  double forward_seconds_ =
      -1;  // of a forward pass that a device may still be at; less than 0: none
  StagedRows token_rows_, expert_rows_;  // of the sides; without a device no memory
};

// Source s's rows of what came: where they begin, and its part of `received`.
struct SenderRows {
  int64_t begin = 0, end = 0;
  std::span<const int64_t> rows;  // [El+C+1], from 0
};
SenderRows sender_rows(const Tensor& received, int64_t sender);

}  // namespace moraine
