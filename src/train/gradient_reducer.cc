// Folds a bucket, submits it, and waits for all at the end.
#include "train/gradient_reducer.h"

#include <algorithm>

#include "base/fault_point.h"
#include "kernels/elementwise.h"
#include "kernels/gpu/runtime.h"
#include "kernels/host_copy.h"
#include "model/weights.h"

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
  if (options.way.links != nullptr) {
    const int64_t bytes =
        DeviceCollectives::scratch_bytes(options.ranks, gradient_count(table, options.senders));
    scratch_ = arena.take("gradients.reduce", "comm", DType::kU8, {bytes});
    return;
  }
  int64_t bytes = 0;
  for (const std::vector<Bucket>* list : {&buckets_, &rest_}) {
    for (const Bucket& b : *list) bytes = std::max(bytes, groups.reduce_bytes(b));
  }
  scratch_ = arena.take_host("gradients.reduce", "comm", DType::kU8, {bytes});
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
  fault_tensor(ctx, "step.slot_gradients", sum);
  if (options_.guests != nullptr) options_.guests->zero_gradients(ctx);
  --slots_left_;
  // Links of devices work in the order that losses come out in, and only their own wait has a deadline: after them.
  const bool at_the_end = options_.way.links != nullptr;
  if (options_.alone || slots_left_ > 0 || is_seen() || at_the_end)
    return {.sum = sum, .ends_slot = true};
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
  if (options_.alone || slots_left_ > 0) {
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
  Tensor gradients = tree_.current();
  if (options_.way.links != nullptr)
    return groups_->reduce(ctx, *options_.way.links, gradients, bucket, scratch_);
  std::function<void()> arrives = [] {};
  if (Staging* const staging = options_.way.staging; staging != nullptr) {
    staging->copy_out(ctx, gradients, groups_->leaving(bucket));
    gradients = staging->host();
    arrives = [gpu = ctx.gpu, mark = ctx.gpu->mark()] { gpu->wait_for(mark); };
  }
  sent_.push_back(stream_->submit([this, gradients, bucket, arrives] {
    arrives();
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
  if (!options_.alone) {
    fault_point("step.backward_done");
    const OpTimer timer(ctx.profile, Span::kRanks, "ranks: gradients (wait)");
    if (options_.way.links != nullptr) options_.way.links->wait();
    for (CommHandle& handle : sent_) handle.wait();
    sent_.clear();
  }
  const Tensor root = tree_.root().rows(0, table_->total_count);
  if (options_.way.staging != nullptr) {
    for (DistributedOptimizer* optimizer : groups_->all())
      optimizer->take_reduced(ctx, root, *options_.way.staging);
  }
  return root;
}

GradientSink GradientReducer::begin_other(Context& ctx) {
  const Tensor sum = tree_.begin_slot(ctx);
  fault_tensor(ctx, "step.slot_gradients", sum);
  if (options_.guests != nullptr) options_.guests->zero_gradients(ctx);
  return {.sum = sum, .ends_slot = true};
}

Tensor GradientReducer::end_other(Context& ctx) {
  wait_for_guests(ctx);
  return tree_.current();
}

}  // namespace moraine
