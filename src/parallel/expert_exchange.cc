// ExpertExchange: two all-to-alls, and the offsets between them.
#include "parallel/expert_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/fault_point.h"
#include "kernels/check_tensor.h"
#include "tensor/tensor_bytes.h"

namespace moraine {
namespace {

int64_t received_rows(const Tensor& received) {
  return sender_rows(received, received.dims[0] - 1).end;
}

double over_mean(int64_t busiest, int64_t all, int64_t members) {
  return all == 0 ? 1
                  : static_cast<double>(busiest) * static_cast<double>(members) /
                        static_cast<double>(all);
}

}  // namespace

double ExpertWork::busiest_over_mean(int64_t members) const {
  return over_mean(busiest_rows, all_rows, members);
}

double ExpertWork::home_busiest_over_mean(int64_t members) const {
  return over_mean(home_busiest_rows, all_rows, members);
}

ExpertExchange::ExpertExchange(Communicator& comm, int64_t num_experts,
                               const ExchangePlaces& places)
    : comm_(&comm),
      shape_{.experts = num_experts,
             .members = comm.size(),
             .slots = places.slots,
             .hosts = places.hosts} {
  MR_CHECK(experts() * comm_->size() == num_experts, "E=%ld on %d ranks", long(num_experts),
           comm_->size());
  const size_t tables = places.slots > 0 ? static_cast<size_t>(places.layers) : 1;
  placements_.assign(tables, static_placement(shape_));
  routes_.assign(tables, make_routes(shape_, placements_[0], comm.rank()));
  mine_.resize(static_cast<size_t>(num_experts));
  counts_.resize(static_cast<size_t>(comm_->size() * num_experts));
  const size_t members = static_cast<size_t>(comm_->size());
  served_.resize(members), at_home_.resize(members);
  token_side_.resize(members), expert_side_.resize(members), send_.resize(members);
}

void ExpertExchange::stage(Arena& arena, DType dtype, int64_t rows, int64_t width) {
  is_staged_ = true;
  token_rows_ = StagedRows(arena, "exchange.token_rows", dtype, rows, width);
  expert_rows_ = StagedRows(arena, "exchange.expert_rows", dtype, senders() * rows, width);
}

const ExpertPlacement& ExpertExchange::placement(int64_t layer) const {
  return placements_[placements_.size() == 1 ? 0 : static_cast<size_t>(layer)];
}

const ExpertRoutes& ExpertExchange::routes(int64_t layer) const {
  return routes_[routes_.size() == 1 ? 0 : static_cast<size_t>(layer)];
}

void ExpertExchange::place(int64_t layer, const ExpertPlacement& placement) {
  const size_t i = static_cast<size_t>(layer);
  MR_CHECK(i < placements_.size(), "layer %ld of %zu", long(layer), placements_.size());
  routes_[i] = make_routes(shape_, placement, comm_->rank());
  placements_[i] = placement;
}

Tensor ExpertExchange::positions(int64_t layer, const Tensor& expert, const Tensor& out) const {
  const ExpertRoutes& r = routes(layer);
  if (r.is_static || is_staged_) return expert;
  const Tensor here = out.rows(0, expert.dims[0]);
  const int32_t* from = expert.as<int32_t>();
  int32_t* to = here.as<int32_t>();
  for (int64_t i = 0; i < expert.count(); ++i) to[i] = r.position[static_cast<size_t>(from[i])];
  return here;
}

void ExpertExchange::counts_by_expert(int64_t layer, const Tensor& load) const {
  const ExpertRoutes& r = routes(layer);
  if (r.is_static || is_staged_) return;
  int64_t* counts = load.as<int64_t>();
  const std::vector<int64_t> by_position(counts, counts + shape_.experts);
  for (int64_t e = 0; e < shape_.experts; ++e)
    counts[e] = by_position[static_cast<size_t>(r.position[static_cast<size_t>(e)])];
}

void ExpertExchange::exchange_counts(int64_t layer, const Tensor& rows, const Tensor& received) {
  const ExpertRoutes& r = routes(layer);
  const int64_t E = shape_.experts;
  check_tensor(rows, "rows", DType::kI64, {E + 1});
  check_tensor(received, "received", DType::kI64, {senders(), groups() + 1});
  const int64_t* begin = rows.as<int64_t>();
  for (int64_t e = 0; e < E; ++e) {
    const int64_t at = is_staged_ ? e : r.position[static_cast<size_t>(e)];
    mine_[static_cast<size_t>(e)] = begin[at + 1] - begin[at];
  }
  fault_point("exchange.counts");
  all_gather_equal(*comm_, std::as_bytes(std::span(mine_)),
                   std::as_writable_bytes(std::span(counts_)));
  for (int64_t s = 0; s < senders(); ++s) {
    int64_t* at = received.as<int64_t>() + s * (groups() + 1);
    at[0] = 0;
    for (int64_t j = 0; j < groups(); ++j) {
      const int32_t e = r.served[static_cast<size_t>(s * groups() + j)];
      at[j + 1] = at[j] + (e < 0 ? 0 : counts_[static_cast<size_t>(s * E + e)]);
    }
  }
  add_work(layer);
}

void ExpertExchange::add_work(int64_t layer) {
  const ExpertPlacement& p = placement(layer);
  std::fill(served_.begin(), served_.end(), 0);
  std::fill(at_home_.begin(), at_home_.end(), 0);
  for (size_t i = 0; i < counts_.size(); ++i) {
    const int64_t expert = static_cast<int64_t>(i) % shape_.experts;
    served_[static_cast<size_t>(p.server[i])] += counts_[i];
    at_home_[static_cast<size_t>(shape_.home(expert))] += counts_[i];
    work_.all_rows += counts_[i];
  }
  work_.busiest_rows += *std::max_element(served_.begin(), served_.end());
  work_.home_busiest_rows += *std::max_element(at_home_.begin(), at_home_.end());
  work_.rows += served_[static_cast<size_t>(comm_->rank())];
}

void ExpertExchange::add_forward_seconds(double seconds) {
  add_seconds(seconds);
  is_staged_ ? void(forward_seconds_ = seconds) : add_row_time(seconds);
}

// Of the rows that were last exchanged.
void ExpertExchange::add_row_time(double seconds) {
  const int64_t rows = served_[static_cast<size_t>(comm_->rank())];
  if (rows < kTimedRows) return;
  const double each = seconds / static_cast<double>(rows);
  double& least = work_.least_row_seconds;
  least = least == 0 ? each : std::min(least, each);
}

ExpertWork ExpertExchange::take_work() { return std::exchange(work_, ExpertWork()); }

// Where this rank's rows of each position are on their way. Without a device: where they stand.
void ExpertExchange::order(const ExpertRoutes& routes, const Tensor& rows) {
  const size_t E = static_cast<size_t>(shape_.experts);
  const int64_t* begin = rows.as<int64_t>();
  begin_.assign(begin, begin + E + 1);
  moves_.clear();
  if (!is_staged_) return;
  for (size_t e = 0; e < E; ++e)
    begin_[static_cast<size_t>(routes.position[e]) + 1] = begin[e + 1] - begin[e];
  for (size_t at = 0; at < E; ++at) begin_[at + 1] += begin_[at];
  for (size_t e = 0; e < E; ++e) {
    const StagedMove move = {.there = begin[e],
                             .here = begin_[static_cast<size_t>(routes.position[e])],
                             .count = begin[e + 1] - begin[e]};
    const bool follows = !moves_.empty() && moves_.back().here + moves_.back().count == move.here;
    follows ? void(moves_.back().count += move.count) : moves_.push_back(move);
  }
}

// The rows of each member, on both sides.
void ExpertExchange::split(const ExpertRoutes& routes, const Tensor& token_rows,
                           const Tensor& expert_rows, const Tensor& received) {
  const auto begin = [&](size_t member) {
    return begin_[static_cast<size_t>(routes.member_begin[member])];
  };
  for (int64_t m = 0; m < senders(); ++m) {
    const size_t i = static_cast<size_t>(m);
    const SenderRows from = sender_rows(received, m);
    token_side_[i] = bytes_of(token_rows.rows(begin(i), begin(i + 1)));
    expert_side_[i] = bytes_of(expert_rows.rows(from.begin, from.end));
  }
}

void ExpertExchange::to_experts(Context& ctx, const RowExchange& e) {
  order(routes(e.layer), e.rows);
  const Tensor sent = token_rows_.copy_out(ctx, e.in, moves_);
  split(routes(e.layer), sent, expert_rows_.place(e.out), e.received);
  send_.assign(token_side_.begin(), token_side_.end());
  fault_point("exchange.to_experts");
  all_to_all(*comm_, send_, expert_side_);
  expert_rows_.copy_in(ctx, e.out, 0, received_rows(e.received));
}

void ExpertExchange::to_tokens(Context& ctx, const RowExchange& e) {
  order(routes(e.layer), e.rows);
  const double begin = now_seconds();
  const Tensor sent = expert_rows_.copy_out(ctx, e.in, 0, received_rows(e.received));
  const double waited = now_seconds() - begin;
  add_seconds(waited);
  if (forward_seconds_ >= 0) add_row_time(std::exchange(forward_seconds_, -1) + waited);
  split(routes(e.layer), token_rows_.place(e.out), sent, e.received);
  send_.assign(expert_side_.begin(), expert_side_.end());
  fault_point("exchange.to_tokens");
  all_to_all(*comm_, send_, token_side_);
  token_rows_.copy_in(ctx, e.out, moves_);
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
