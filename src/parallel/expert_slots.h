// ExpertSlots: token rows to the ranks that hold their experts and the answers back, for few rows, through slots in
// each other's memory (comm/window.h).
//
//   member m of P holds experts [m E / P, (m+1) E / P). A member's rows stand grouped by expert
//   dispatch   its rows of m's experts go to slots of this sender at m, the first ones; a head beside them says how
//              many each expert has
//   receive    what every sender has for the experts here
//   combine    the answer to a sender's row r goes to slot r at that sender
//   answers    of all rows, in the order of dispatch
//
// Nobody says beforehand what will come: heads and answers are signalled to every member, also by those without a
// row, and who waits counts signals. With same_rows nothing is dispatched, since every member has all rows: it
// computes those of its experts where place says, and share gives them to all. Then a member waits only for those that
// have rows, and for the others when it comes to slots that they may still read.
//
// Two of everything, in turns: an exchange may be dispatched while the one before it is under way, and nobody writes
// what another still reads. What was received stays until it is combined, for then its senders may dispatch the
// second one after it; answers stay until that is dispatched here. With same_rows there are four, one is under way,
// and answers stay until the next share: a member may be three exchanges ahead of one whose rows it does not need.
//
// Shapes:  N <= rows of D on each member, El experts held here.
// Memory:  same_rows: 4 * rows * D of the type; else 2 (P + 1) * rows * D, and heads of 8 (El + 2) bytes.
// Order:   no sums. What arrives is what was sent, so the bits are those of the collectives.
// Errors:  kPeerLost (transport.h), kIo (no memory). More rows than slots is the caller's bug.
// Cost:    to each member: dispatch a head and, if any, the rows; combine the rows. One copy of each by the sender.
// Threads: one at a time.
// Source:  fixed slots without a notify round: DeepEP's low-latency kernels.
#pragma once

#include <span>
#include <vector>

#include "comm/window.h"
#include "tensor/tensor.h"

namespace moraine {

struct SlotShape {
  int64_t experts = 0;
  int64_t rows = 0;   // most of a member
  int64_t width = 0;  // D
  DType dtype = DType::kF32;
  bool same_rows = false;  // every member has all rows
};

// A sender's rows of the experts here.
struct SlotRows {
  Tensor x;                     // [n, D] in slots
  std::span<const int64_t> at;  // [El+1] where each expert's begin, from 0
  int64_t first = 0;            // its row that x begins with
};

class ExpertSlots {
 public:
  // Collective, with the same shape on all; at most as many members as experts.
  ExpertSlots(Communicator& comm, const SlotShape& shape);

  const SlotShape& shape() const { return shape_; }
  // That the constructor takes on each of so many members.
  static int64_t bytes(const SlotShape& shape, int64_t members);
  int64_t expert_begin(int member) const { return member * shape_.experts / comm_->size(); }

  void dispatch(const Tensor& x,      // [N, D] in, may be changed afterwards
                const Tensor& rows);  // [E+1] i64: where each expert's rows begin
  // Once, of the oldest exchange that was not combined: by sender. Waits for all.
  std::span<const SlotRows> receive();
  void combine(std::span<const Tensor> y);  // of each sender [n, D], as received

  // [rows, D]: where all answers of the next exchange belong. share: those of the experts here are there.
  Tensor place(int64_t rows);
  void share(const Tensor& rows);  // [E+1] as of dispatch, the same on all

  // Once, of the oldest exchange that was combined or shared: [N, D]. Waits for who has rows.
  Tensor answers();

  // Until nobody puts anything here any more for what was shared: then this member may leave.
  void settle();

 private:
  // Signals at a member, for each sender.
  enum Word : int { kHead, kRows, kAnswers, kWords };

  int64_t row_bytes() const;
  int64_t slots_bytes() const;  // of one sender, a multiple of a cache line
  int add(int64_t bytes, const char* name);
  // Where they are at a member, for exchange i.
  GlobalAddress rows_at(int member, int sender, int64_t i) const;
  GlobalAddress head_at(int member, int sender, int64_t i) const;
  GlobalAddress answers_at(int member, int64_t row, int64_t i) const;
  GlobalAddress word_at(int member, int sender, Word word) const;
  Tensor tensor_at(const GlobalAddress& own, int64_t rows) const;
  void wait_for(int sender, Word word, int64_t signals);
  int64_t begin(int64_t rows);

  Communicator* comm_;
  const SlotShape shape_;
  const int64_t turns_;       // an exchange has the slots of its number modulo this
  const int64_t head_words_;  // first row, and bounds of the most experts that a member holds
  Window window_;
  int rows_ = -1, heads_ = -1, answers_ = -1, words_ = -1;  // segments
  int64_t taken_ = 0;                                       // bytes
  int64_t begun_ = 0, combined_ = 0, answered_ = 0;         // exchanges
  int64_t given_[2] = {0, 0};                               // rows of those under way
  std::vector<int64_t> filled_;     // [P] exchanges for which a sender had rows
  std::vector<bool> answers_here_;  // [P] who shares rows of the one under way
  std::vector<SlotRows> received_;  // by sender
  std::vector<int64_t> head_;
};

}  // namespace moraine
