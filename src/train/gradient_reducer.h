// GradientReducer: from the gradients of this rank's slots to the sum over all slots of all ranks.
//
//   begin        how many slots follow
//   begin_slot   a zeroed buffer, as the sink of the slot's backward passes
//   end_slot     adds the slot to the tree (slot_tree.h)
//   finish       the sum; with other ranks complete only where this rank is the owner
//   begin_other, end_other   a slot that is only looked at: before `begin`, in the same memory
//
// Sums of guests (parallel/guest_experts.h) are at home before a slot is added.
//
// With other ranks the last slot leaves while its last backward still runs. When the layers of a
// bucket (buckets.h) are done, its ranges are folded: slots, then the senders of the experts held
// here (parallel/expert_exchange.h), which are the tree's next levels. Then a stream reduces them
// over ranks, the levels above, to their owners. Embedding and vectors leave at end_slot.
// Of a device, a folded bucket is copied to the host's memory first (staging.h), where the stream's thread waits for
// it; finish brings back what this rank owns. Where devices have links, the sums go into the device's order of work and
// there is no stream.
//
// Order:   that of the slot tree over all slots of all ranks.
// Errors:  kPeerLost, from finish. Collective: all ranks have the same buckets in the same order.
// Threads: one step at a time; the stream's own thread reads what has left.
// Memory:  log2(slots) + 1 buffers of the gradients (SlotTree), and the scratch of one reduction.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/stream.h"
#include "model/gradient_sink.h"
#include "parallel/guest_experts.h"
#include "train/optimizer_groups.h"
#include "train/slot_tree.h"

namespace moraine {

struct GradientReducerOptions {
  int64_t slots = 1;  // of this rank, at most
  int64_t layers = 0;
  int64_t senders = 1;  // of token rows, for the experts held here
  int64_t bucket_bytes = 0;
  bool alone = true;               // one rank: nothing leaves
  int ranks = 1;                   // of the run
  GuestExperts* guests = nullptr;  // experts of other ranks that are served here; null: none
  DeviceWay way = {};              // of a device with other ranks
};

class GradientReducer {
 public:
  // table and groups outlive it.
  GradientReducer(Arena& arena, const ParameterTable& table, const GradientReducerOptions& options,
                  OptimizerGroups& groups);

  // `seen`, if given, is called with the gradients of slot `index` when they are complete; they leave after that.
  using Seen = std::function<void(const Tensor& sum)>;
  void begin(int64_t slots, int64_t index = -1, Seen seen = {});
  // The sink's layer_done and ends_slot are for the last backward pass of the slot only; layer_done is empty if
  // nobody waits.
  GradientSink begin_slot(Context& ctx);
  void end_slot(Context& ctx);
  Tensor finish(Context& ctx);  // [table.total_count]

  GradientSink begin_other(Context& ctx);
  Tensor end_other(Context& ctx);  // the slot's own gradients

 private:
  void send(Context& ctx, const Bucket& bucket);
  void fold_experts(Context& ctx, Range part);
  void wait_for_guests(Context& ctx);
  bool is_seen() const { return slots_ - slots_left_ - 1 == seen_index_; }  // the slot that is open

  const ParameterTable* table_;
  GradientReducerOptions options_;
  OptimizerGroups* groups_;
  SlotTree tree_;
  std::vector<Bucket> buckets_;  // leave during backward,
  std::vector<Bucket> rest_;     // and after it
  Tensor scratch_;               // u8, of the stream, or of the device's links
  int64_t slots_ = 0, slots_left_ = 0, seen_index_ = -1;
  Seen seen_;
  size_t next_bucket_ = 0;
  std::vector<CommHandle> sent_;
  std::unique_ptr<CommStream> stream_;  // null: nothing leaves
};

}  // namespace moraine
