// StateSeal: hashes, taken and compared.
#include "train/state_seal.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace moraine {
namespace {

void refuse(bool weights, bool state) {
  if (!weights && !state) return;
  throw_error(Code::kRankDiverged,
              "check memory: {} changed by themselves since the last step was done: look at this "
              "host's memory before it is used again",
              !state     ? "weights have"
              : !weights ? "parts of the optimizer state have"
                         : "weights and parts of the optimizer state have");
}

void refuse_other(const AdamWSums& now, const AdamWSums& closed) {
  refuse(now.w != closed.w, now.m != closed.m || now.v != closed.v);
}

// What lies between the ranges.
std::vector<Tensor> gaps(const Tensor& flat, std::vector<AdamWRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const AdamWRange& a, const AdamWRange& b) { return a.offset < b.offset; });
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (const AdamWRange& range : ranges) {
    parts.push_back(flat.rows(at, range.offset));
    at = range.offset + range.count;
  }
  parts.push_back(flat.rows(at, flat.count()));
  return parts;
}

bool is_inside(const Tensor& part, const Tensor& whole) {
  const auto* const begin = static_cast<const std::byte*>(whole.data);
  const auto* const at = static_cast<const std::byte*>(part.data);
  return std::less_equal<>()(begin, at) && std::less<>()(at, begin + whole.bytes());
}

}  // namespace

std::vector<Tensor> shared_parts(const ParameterTable& table, const Tensor& flat) {
  return {flat.rows(0, table.expert_begin), flat.rows(table.matrix_count, table.total_count)};
}

StateSeal::StateSeal(const ParameterTable& table, const Tensor& master,
                     const OptimizerGroups& optimizers, Backend backend) {
  const Tensor experts = master.rows(table.expert_begin, table.matrix_count);
  weights_ = StateHash(shared_parts(table, master));
  experts_ = StateHash(std::span(&experts, 1));
  std::vector<AdamWRange> summed;
  std::vector<Tensor> state;
  for (const DistributedOptimizer* optimizer : optimizers.all()) {
    const AdamWMemory memory = optimizer->adamw_memory(master);
    const bool is_summed = backend != Backend::kGpu;
    if (is_summed) {
      summed.insert(summed.end(), memory.ranges.begin(), memory.ranges.end());
      moved_.push_back({.memory = memory, .closed = {}, .seen = {}});
    }
    for (const OptimizerTensor& t : optimizer->state()) {
      if (!is_summed || (!is_inside(t.tensor, memory.m) && !is_inside(t.tensor, memory.v)))
        state.push_back(t.tensor);
    }
  }
  weights_at_rest_ = StateHash(gaps(master, std::move(summed)));
  state_at_rest_ = StateHash(state);
}

void StateSeal::close(Context& ctx) {
  for (Moved& moved : moved_) moved.closed = adamw_sums(ctx, moved.memory);
  end_update(ctx);
}

void StateSeal::check(Context& ctx) {
  if (!is_closed_) return;
  begin_update(ctx);
  for (const Moved& moved : moved_) refuse_other(adamw_sums(ctx, moved.memory), moved.closed);
}

void StateSeal::begin_update(Context& ctx) {
  if (is_closed_)
    refuse(weights_at_rest_.digest(ctx) != closed_weights_,
           state_at_rest_.digest(ctx) != closed_state_);
}

AdamWSeen* StateSeal::seen(size_t optimizer) {
  return moved_.empty() ? nullptr : &moved_[optimizer].seen;
}

void StateSeal::check_moved(size_t optimizer) {
  if (moved_.empty()) return;
  Moved& moved = moved_[optimizer];
  if (is_closed_) refuse_other(moved.seen.before, moved.closed);
  moved.closed = moved.seen.after;
}

void StateSeal::end_update(Context& ctx) {
  closed_weights_ = weights_at_rest_.digest(ctx);
  closed_state_ = state_at_rest_.digest(ctx);
  is_closed_ = true;
}

}  // namespace moraine
