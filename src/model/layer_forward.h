// LayerForward: one decoder layer, forward.
#pragma once

#include "kernels/context.h"
#include "model/activations.h"
#include "model/batch.h"
#include "model/cache.h"
#include "model/forward_observer.h"
#include "model/weights.h"
#include "parallel/context_parallel.h"
#include "parallel/expert_exchange.h"
#include "parallel/expert_gather.h"
#include "parallel/guest_experts.h"
#include "parallel/serving_guests.h"
#include "parallel/tree_attention.h"

namespace moraine {

// Where a layer stands: its config, its index, its rotary table [P, rotary/2, 2], the ranks that
// hold the other experts and have rows of their own (exchange, and which of theirs are served here: guests)
// or the same rows (gather, and which experts of theirs are here too: serving_guests; all null: all experts are
// here), those that have the other rows of its
// sequences (null: all are in the batch), and who looks on (null: nobody).
struct LayerPlace {
  const ModelConfig& config;
  int64_t index;
  Tensor rope;
  ExpertExchange* exchange = nullptr;
  GuestExperts* guests = nullptr;
  ExpertGather* gather = nullptr;
  ServingGuests* serving_guests = nullptr;
  ContextParallel* context = nullptr;
  ForwardObserver* observer = nullptr;
};

// The ranks that hold the other positions of a shared cache, and what the batch's rows see here.
struct SharedCache {
  Communicator& ranks;
  TreeAttention attention;
  std::vector<Segment> segments = {};
  std::vector<int64_t> keys = {};
};

// Keys and values that came before, or none.
struct LayerMemory {
  LayerCache* cache = nullptr;    // null: the batch is all there is
  KeyPages pages = {};            // of the batch's segments
  SharedCache* shared = nullptr;  // of a layer that shares its cache
};

struct LayerForward {
  const LayerPlace& place;
  const LayerWeights& w;
  const Batch& batch;
  const Boundary& below;  // r, x, s are read
  const Boundary& above;  // written
  LayerActs& a;           // what layer_backward reads is left here
  const Scratch& scratch;
  const LayerMemory& memory;
};

void layer_forward(Context& ctx, const LayerForward& l);

}  // namespace moraine
