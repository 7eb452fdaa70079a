// ExpertExchange: two all-to-alls, and the offsets between them.
#include "parallel/expert_exchange.h"

#include <cstring>

#include "base/fault_point.h"
#include "kernels/check_tensor.h"

namespace moraine {
namespace {

Bytes bytes_of(const Tensor& t, int64_t row_begin, int64_t row_end) {
  const Tensor part = t.rows(row_begin, row_end);
  return {static_cast<std::byte*>(part.data), static_cast<size_t>(part.bytes())};
}

}  // namespace

ExpertExchange::ExpertExchange(Communicator& comm, int64_t num_experts)
    : comm_(&comm), experts_(num_experts / comm.size()) {
  MR_CHECK(experts_ * comm_->size() == num_experts, "E=%ld on %d ranks", long(num_experts),
           comm_->size());
  counts_.resize(static_cast<size_t>(comm_->size() * num_experts));
  const size_t members = static_cast<size_t>(comm_->size());
  token_side_.resize(members), expert_side_.resize(members), send_.resize(members);
}

void ExpertExchange::exchange_counts(const Tensor& rows, const Tensor& received) {
  const int64_t S = senders(), E = S * experts_;
  check_tensor(rows, "rows", DType::kI64, {E + 1});
  check_tensor(received, "received", DType::kI64, {S, experts_ + 1});
  const int64_t* begin = rows.as<int64_t>();
  std::vector<int64_t> mine(static_cast<size_t>(E));
  for (int64_t e = 0; e < E; ++e) mine[static_cast<size_t>(e)] = begin[e + 1] - begin[e];
  fault_point("exchange.counts");
  all_gather_equal(*comm_, std::as_bytes(std::span(mine)),
                   std::as_writable_bytes(std::span(counts_)));
  int64_t* out = received.as<int64_t>();
  for (int64_t s = 0; s < S; ++s) {
    const int64_t* count = counts_.data() + s * E + expert_begin();
    int64_t* at = out + s * (experts_ + 1);
    at[0] = 0;
    for (int64_t e = 0; e < experts_; ++e) at[e + 1] = at[e] + count[e];
  }
}

// The rows of each member, on both sides.
void ExpertExchange::split(const Tensor& token_rows, const Tensor& expert_rows, const Tensor& rows,
                           const Tensor& received) {
  const int64_t* begin = rows.as<int64_t>();
  for (int64_t m = 0; m < senders(); ++m) {
    const size_t i = static_cast<size_t>(m);
    const SenderRows from = sender_rows(received, m);
    token_side_[i] = bytes_of(token_rows, begin[m * experts_], begin[(m + 1) * experts_]);
    expert_side_[i] = bytes_of(expert_rows, from.begin, from.end);
  }
}

void ExpertExchange::to_experts(const Tensor& out, const Tensor& in, const Tensor& rows,
                                const Tensor& received) {
  split(in, out, rows, received);
  send_.assign(token_side_.begin(), token_side_.end());
  fault_point("exchange.to_experts");
  all_to_all(*comm_, send_, expert_side_);
}

void ExpertExchange::to_tokens(const Tensor& out, const Tensor& in, const Tensor& rows,
                               const Tensor& received) {
  split(out, in, rows, received);
  send_.assign(expert_side_.begin(), expert_side_.end());
  fault_point("exchange.to_tokens");
  all_to_all(*comm_, send_, token_side_);
}

SenderRows sender_rows(const Tensor& received, int64_t sender) {
  const int64_t width = received.dims[1];
  const int64_t* all = received.as<int64_t>();
  SenderRows s;
  for (int64_t i = 0; i < sender; ++i) s.begin += all[i * width + width - 1];
  s.rows = {all + sender * width, static_cast<size_t>(width)};
  s.end = s.begin + s.rows.back();
  return s;
}

}  // namespace moraine
