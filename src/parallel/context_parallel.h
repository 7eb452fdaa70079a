// ContextParallel: what a layer needs to work on this rank's rows of each sequence.
//
// Handed to the model once (ModelOptions.context); begin() names the batch that follows, end() goes
// back to whole sequences. Everything that a layer does with other rows of its sequence goes
// through here, in the same order on all ranks of the context group: halos, then attention, in
// forward; attention, then halos, in backward; recomputation does forward's part again.
//
// Types, order, errors: halo_exchange.h, context_attention.h.
// Memory: buffers of both, and each layer's halos (2*B*(2C+M) elements).
#pragma once

#include <span>
#include <vector>

#include "parallel/context_attention.h"
#include "parallel/halo_exchange.h"

namespace moraine {

struct ContextSizes {
  ContextVariant variant = ContextVariant::kRing;
  int64_t layers = 0;
  int64_t tokens = 0;     // rows of any rank in a batch, at most (ContextLayout::most_rows)
  int64_t rows = 0;       // rows of a whole batch, at most; all-gather only
  int64_t ranks = 0;      // that share it, at most; likewise
  int64_t sequences = 0;  // of a batch, at most
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool cca = false;  // convolutions and delayed values: halos
  DType dtype = DType::kBF16;
  bool training = false;
};

// For the kernels: which rows of `conv` and `value` are which segment's.
struct LayerHalo {
  Tensor conv, value;
  std::span<const int64_t> row;
};

class ContextParallel {
 public:
  ContextParallel(Arena& arena, const ContextSizes& sizes);
  ContextParallel(const ContextParallel&) = delete;
  ContextParallel& operator=(const ContextParallel&) = delete;

  // ctx: that the layers compute in.
  void begin(Context& ctx, Communicator& comm, ContextRows mine);
  void end() { comm_ = nullptr; }
  bool active() const { return comm_ != nullptr; }
  const ContextRows& mine() const { return mine_; }

  // Fetches what this layer's convolutions and values need, and keeps it for the backward.
  LayerHalo fetch_halo(int64_t layer, const Tensor& qkv);
  LayerHalo kept_halo(int64_t layer) const;
  // Where the backward writes the halo's gradient.
  LayerHalo halo_gradient() const;
  // Sends it home and adds what comes to this rank's rows.
  void return_halo_gradient(const Tensor& dqkv);

  ContextAttention& attention() { return attention_; }

 private:
  LayerHalo rows_of(const HaloTensors& halo) const;

  ContextSizes sizes_;
  ContextAttention attention_;
  HaloExchange exchange_;
  std::vector<HaloTensors> halos_;  // by layer, of one pass
  HaloTensors gradient_;
  Context* ctx_ = nullptr;
  Communicator* comm_ = nullptr;
  ContextRows mine_;
};

}  // namespace moraine
