// Folds a bucket, submits it, and waits for all at the end.
#include "train/gradient_reducer.h"

#include <algorithm>

#include "base/fault_point.h"
#include "kernels/elementwise.h"
#include "model/weights.h"
#include "train/state_hash.h"

namespace moraine {

GradientReducer::GradientReducer(Arena& arena, const ParameterTable& table,
                                 const GradientReducerOptions& options, OptimizerGroups& groups)
    : table_(&table),
      options_(options),
      groups_(&groups),
      tree_(arena, options.slots, gradient_count(table, options.senders)) {
  if (options.alone) return;
  buckets_ = gradient_buckets(table, options.layers, options.bucket_bytes);
  for (const Range& part : rest_of_gradients(table, options.layers))
    rest_.push_back({.layer = 0, .shared = part, .experts = {}});
  int64_t bytes = 0;
  for (const std::vector<Bucket>* list : {&buckets_, &rest_}) {
    for (const Bucket& b : *list) bytes = std::max(bytes, groups.reduce_bytes(b));
  }
  scratch_ = arena.take("gradients.reduce", "comm", DType::kU8, {bytes});
  if (!arena.dry()) stream_ = std::make_unique<CommStream>();
}

void GradientReducer::begin(int64_t slots, int64_t index, Seen seen) {
  tree_.set_slots(slots);
  slots_ = slots_left_ = slots;
  next_bucket_ = 0;
  seen_index_ = seen ? index : -1;
  seen_ = std::move(seen);
}

GradientSink GradientReducer::begin_slot(Context& ctx) {
  const Tensor sum = tree_.begin_slot(ctx);
  fault_bytes("step.slot_gradients", bytes_of(sum));
  if (options_.guests != nullptr) options_.guests->zero_gradients(ctx);
  --slots_left_;
  if (stream_ == nullptr || slots_left_ > 0 || is_seen()) return {.sum = sum, .ends_slot = true};
  return {.sum = sum,
          .layer_done =
              [this, &ctx](int64_t layer) {
                if (next_bucket_ < buckets_.size() && buckets_[next_bucket_].layer == layer)
                  send(ctx, buckets_[next_bucket_++]);
              },
          .ends_slot = true};
}

void GradientReducer::wait_for_guests(Context& ctx) {
  if (options_.guests == nullptr) return;
  const OpTimer timer(ctx.profile, Span::kRanks, "ranks: guests (wait)");
  options_.guests->wait_gradients();
}

void GradientReducer::end_slot(Context& ctx) {
  if (is_seen()) {
    wait_for_guests(ctx);
    seen_(tree_.current());
  }
  if (stream_ == nullptr || slots_left_ > 0) {
    wait_for_guests(ctx);
    tree_.add(ctx);
    return;
  }
  while (next_bucket_ < buckets_.size()) send(ctx, buckets_[next_bucket_++]);
  for (const Bucket& bucket : rest_) send(ctx, bucket);
  tree_.close_slot();
}

void GradientReducer::send(Context& ctx, const Bucket& bucket) {
  tree_.fold(ctx, bucket.shared.begin, bucket.shared.end);
  if (bucket.experts.begin < bucket.experts.end) {
    wait_for_guests(ctx);
    fold_experts(ctx, bucket.experts);
  }
  fault_point("step.bucket_leaves");
  sent_.push_back(stream_->submit([this, gradients = tree_.current(), bucket] {
    fault_point("step.bucket_moves");
    groups_->reduce(
        gradients, bucket,
        {static_cast<std::byte*>(scratch_.data), static_cast<size_t>(scratch_.bytes())});
  }));
}

// Every sender's sum over slots, then the sum of senders, in the order of the slot tree.
void GradientReducer::fold_experts(Context& ctx, Range part) {
  const int64_t S = options_.senders, from = part.begin - table_->expert_begin,
                to = part.end - table_->expert_begin;
  for (int64_t s = 0; s < S; ++s) {
    const int64_t base =
        s == 0 ? table_->expert_begin : table_->total_count + (s - 1) * table_->expert_count();
    tree_.fold(ctx, base + from, base + to);
  }
  const auto sender = [&](int64_t s) {
    return sender_experts(*table_, tree_.current(), s).rows(from, to);
  };
  for (int64_t stride = 1; stride < S; stride *= 2) {
    for (int64_t s = 0; s + stride < S; s += 2 * stride)
      add_into(ctx, sender(s), sender(s + stride));
  }
}

Tensor GradientReducer::finish(Context& ctx) {
  if (stream_ != nullptr) {
    fault_point("step.backward_done");
    const OpTimer timer(ctx.profile, Span::kRanks, "ranks: gradients (wait)");
    for (CommHandle& handle : sent_) handle.wait();
    sent_.clear();
  }
  return tree_.root().rows(0, table_->total_count);
}

GradientSink GradientReducer::begin_other(Context& ctx) {
  const Tensor sum = tree_.begin_slot(ctx);
  fault_bytes("step.slot_gradients", bytes_of(sum));
  if (options_.guests != nullptr) options_.guests->zero_gradients(ctx);
  return {.sum = sum, .ends_slot = true};
}

Tensor GradientReducer::end_other(Context& ctx) {
  wait_for_guests(ctx);
  return tree_.current();
}

}  // namespace moraine
