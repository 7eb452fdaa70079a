// ExpertSlots: puts with a signal, and counts of signals.
#include "parallel/expert_slots.h"

#include <algorithm>

#include "base/fault_point.h"
#include "comm/exchange.h"  // member_after
#include "kernels/check_tensor.h"
#include "tensor/tensor_bytes.h"

namespace moraine {
namespace {

constexpr int64_t kWordBytes = sizeof(uint64_t);
constexpr int64_t kLineBytes = 64;   // what kernels align rows to
constexpr int64_t kTurns = 2;        // as many may be dispatched and not answered
constexpr int64_t kSharedTurns = 4;  // one less is how far a member may be ahead

int64_t whole_lines(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

int64_t bytes_of_slots(const SlotShape& shape) {
  return whole_lines(shape.rows * shape.width * dtype_bytes(shape.dtype));
}

int64_t turns_of(const SlotShape& shape) { return shape.same_rows ? kSharedTurns : kTurns; }

// First row, and bounds of the most experts that a member holds.
int64_t head_words_of(const SlotShape& shape, int64_t members) {
  return (shape.experts + members - 1) / members + 2;
}

}  // namespace

ExpertSlots::ExpertSlots(Communicator& comm, const SlotShape& shape)
    : comm_(&comm),
      shape_(shape),
      turns_(turns_of(shape)),
      head_words_(head_words_of(shape, comm.size())),
      window_(comm) {
  const int64_t P = comm.size();
  MR_CHECK(P <= shape.experts && shape.rows > 0 && shape.width > 0, "P=%ld E=%ld N=%ld D=%ld",
           long(P), long(shape.experts), long(shape.rows), long(shape.width));
  if (!shape.same_rows) {
    rows_ = add(turns_ * P * slots_bytes(), "expert rows");
    heads_ = add(turns_ * P * head_words_ * kWordBytes, "expert heads");
  }
  answers_ = add(turns_ * slots_bytes(), "expert answers");
  words_ = add(P * kWords * kLineBytes, "expert signals");
  MR_CHECK(taken_ == bytes(shape, P), "%ld bytes, %ld were planned", long(taken_),
           long(bytes(shape, P)));
  filled_.resize(static_cast<size_t>(P));
  answers_here_.resize(static_cast<size_t>(P), true);
  received_.resize(static_cast<size_t>(P));
}

// Places --------------------------------------------------------------------------------------

int64_t ExpertSlots::bytes(const SlotShape& shape, int64_t members) {
  const int64_t turns = turns_of(shape), slots = turns * bytes_of_slots(shape),
                words = members * kWords * kLineBytes;
  if (shape.same_rows) return slots + words;
  return (members + 1) * slots + turns * members * head_words_of(shape, members) * kWordBytes +
         words;
}

int ExpertSlots::add(int64_t bytes, const char* name) {
  taken_ += bytes;
  return window_.add_segment(bytes, name);
}

int64_t ExpertSlots::row_bytes() const { return shape_.width * dtype_bytes(shape_.dtype); }
int64_t ExpertSlots::slots_bytes() const { return bytes_of_slots(shape_); }

GlobalAddress ExpertSlots::rows_at(int member, int sender, int64_t i) const {
  return window_.address(member, rows_, (i % turns_ * comm_->size() + sender) * slots_bytes());
}

GlobalAddress ExpertSlots::head_at(int member, int sender, int64_t i) const {
  return window_.address(member, heads_,
                         (i % turns_ * comm_->size() + sender) * head_words_ * kWordBytes);
}

GlobalAddress ExpertSlots::answers_at(int member, int64_t row, int64_t i) const {
  return window_.address(member, answers_, i % turns_ * slots_bytes() + row * row_bytes());
}

// Each on a line of its own: senders raise theirs at the same time.
GlobalAddress ExpertSlots::word_at(int member, int sender, Word word) const {
  return window_.address(member, words_, (sender * kWords + word) * kLineBytes);
}

Tensor ExpertSlots::tensor_at(const GlobalAddress& own, int64_t rows) const {
  return make_tensor(window_.memory(own.segment).data() + own.offset, shape_.dtype,
                     {rows, shape_.width});
}

void ExpertSlots::wait_for(int sender, Word word, int64_t signals) {
  window_.wait_until(word_at(comm_->rank(), sender, word), static_cast<uint64_t>(signals), sender);
}

// Exchanges -----------------------------------------------------------------------------------

int64_t ExpertSlots::begin(int64_t rows) {
  MR_CHECK(rows >= 0 && rows <= shape_.rows, "%ld rows for %ld slots", long(rows),
           long(shape_.rows));
  const int64_t under_way = begun_ - answered_;
  MR_CHECK(under_way < (shape_.same_rows ? 1 : kTurns), "%ld exchanges under way", long(under_way));
  given_[begun_ % kTurns] = rows;
  return begun_++;
}

void ExpertSlots::dispatch(const Tensor& x, const Tensor& rows) {
  MR_CHECK(!shape_.same_rows);
  check_tensor(rows, "rows", DType::kI64, {shape_.experts + 1});
  check_tensor(x, "x", shape_.dtype, {x.dims[0], shape_.width});
  const int64_t* at = rows.as<int64_t>();
  const int64_t exchange = begin(at[shape_.experts]);
  const int me = comm_->rank();
  fault_point("slots.dispatch");
  for (int i = 1; i <= comm_->size(); ++i) {
    const int m = member_after(*comm_, i);
    const int64_t first = at[expert_begin(m)], end = at[expert_begin(m + 1)];
    head_.assign(1, first);
    for (int64_t e = expert_begin(m); e <= expert_begin(m + 1); ++e) head_.push_back(at[e] - first);
    window_.put_signal(head_at(m, me, exchange), std::as_bytes(std::span(head_)),
                       word_at(m, me, kHead));
    if (end > first)
      window_.put_signal(rows_at(m, me, exchange), bytes_of(x.rows(first, end)),
                         word_at(m, me, kRows));
  }
}

std::span<const SlotRows> ExpertSlots::receive() {
  MR_CHECK(combined_ < begun_);
  const int me = comm_->rank();
  const size_t held = static_cast<size_t>(expert_begin(me + 1) - expert_begin(me));
  fault_point("slots.receive");
  for (int s = 0; s < comm_->size(); ++s) {
    wait_for(s, kHead, combined_ + 1);
    const GlobalAddress head = head_at(me, s, combined_);
    const auto* words =
        reinterpret_cast<const int64_t*>(window_.memory(heads_).data() + head.offset);
    SlotRows& from = received_[static_cast<size_t>(s)];
    from = {.x = {}, .at = {words + 1, held + 1}, .first = words[0]};
    const int64_t n = from.at.back();
    MR_CHECK(n >= 0 && from.first >= 0 && from.first + n <= shape_.rows, "rows %ld + %ld of %ld",
             long(from.first), long(n), long(shape_.rows));
    if (n > 0) wait_for(s, kRows, ++filled_[static_cast<size_t>(s)]);
    from.x = tensor_at(rows_at(me, s, combined_), n);
  }
  return received_;
}

void ExpertSlots::combine(std::span<const Tensor> y) {
  MR_CHECK(static_cast<int>(y.size()) == comm_->size() && combined_ < begun_);
  const int me = comm_->rank();
  fault_point("slots.combine");
  for (int i = 1; i <= comm_->size(); ++i) {
    const int s = member_after(*comm_, i);
    const SlotRows& from = received_[static_cast<size_t>(s)];
    const Tensor& answer = y[static_cast<size_t>(s)];
    check_tensor(answer, "y", shape_.dtype, {from.at.back(), shape_.width});
    window_.put_signal(answers_at(s, from.first, combined_), bytes_of(answer),
                       word_at(s, me, kAnswers));
  }
  ++combined_;
}

Tensor ExpertSlots::place(int64_t rows) {
  MR_CHECK(shape_.same_rows);
  const int64_t exchange = begin(rows);
  return tensor_at(answers_at(comm_->rank(), 0, exchange), rows);
}

void ExpertSlots::share(const Tensor& rows) {
  MR_CHECK(shape_.same_rows && combined_ < begun_);
  check_tensor(rows, "rows", DType::kI64, {shape_.experts + 1});
  const int64_t* at = rows.as<int64_t>();
  const int64_t placed = given_[combined_ % kTurns];
  MR_CHECK(at[shape_.experts] <= placed, "%ld rows of %ld", long(at[shape_.experts]), long(placed));
  const int me = comm_->rank();
  const int64_t first = at[expert_begin(me)];
  const Tensor mine =
      tensor_at(answers_at(me, 0, combined_), placed).rows(first, at[expert_begin(me + 1)]);
  fault_point("slots.combine");
  for (int i = 1; i < comm_->size(); ++i) {
    const int m = member_after(*comm_, i);
    answers_here_[static_cast<size_t>(m)] = at[expert_begin(m + 1)] > at[expert_begin(m)];
    // Who shared the exchange after the one that had these slots reads them no more.
    wait_for(m, kAnswers, std::max<int64_t>(0, combined_ - turns_ + 2));
    window_.put_signal(answers_at(m, first, combined_), bytes_of(mine), word_at(m, me, kAnswers));
  }
  answers_here_[static_cast<size_t>(me)] = false;
  ++combined_;
}

Tensor ExpertSlots::answers() {
  MR_CHECK(answered_ < combined_);
  const int me = comm_->rank();
  fault_point("slots.answers");
  for (int m = 0; m < comm_->size(); ++m) {
    if (answers_here_[static_cast<size_t>(m)]) wait_for(m, kAnswers, answered_ + 1);
  }
  const int64_t exchange = answered_++;
  return tensor_at(answers_at(me, 0, exchange), given_[exchange % kTurns]);
}

void ExpertSlots::settle() {
  for (int m = 0; m < comm_->size(); ++m) {
    if (m != comm_->rank()) wait_for(m, kAnswers, combined_);
  }
}

}  // namespace moraine
