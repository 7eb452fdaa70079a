// Model: the loop over layers, forward and backward, for one batch of rows.
//
// A Model owns nothing but its plan: packed weights and activations are taken from an arena, and
// may be planned by a dry one; master weights and gradients are the caller's.
#pragma once

#include <memory>
#include <optional>

#include "model/batch.h"
#include "model/cache.h"
#include "model/device_batch.h"
#include "model/gradient_sink.h"
#include "model/head.h"
#include "model/host_observer.h"
#include "model/layer_forward.h"
#include "parallel/serving_placer.h"

namespace moraine {

struct ModelOptions {
  DType compute = DType::kBF16;  // f32, bf16, or f64 on the reference backend
  int64_t tokens = 0;            // most rows of a batch
  int64_t positions = 0;         // longest document (rotary table)
  bool training = false;
  Recompute recompute = Recompute::kNone;
  ExpertExchange* exchange = nullptr;  // experts on other ranks, which have rows of their own
  GuestExperts* guests = nullptr;      // experts of these that are served here; null: none
  ExpertGather* gather =
      nullptr;  // experts on other ranks, which compute the same rows; both null: all are here
  ServingGuests* serving_guests = nullptr;  // experts of these that are here too; null: none
  ServingPlacer* serving_placer = nullptr;  // told of the end of each forward pass; null: nobody
  Communicator* cache_ranks = nullptr;      // ranks that share the cache; null: it is whole
  ContextParallel* context = nullptr;       // rows of sequences on other ranks, while it is active
  const PackedModel* packed = nullptr;  // mapped, or copied to a device: there is no master buffer
  bool coarse_head =
      false;  // with a copy of the head in 8 bits, if it is plain: logits in two stages
};

// The table of what this rank holds. exchange, gather: null if all experts are here.
ParameterTable held_parameters(const ModelConfig& config, const ExpertExchange* exchange,
                               const ExpertGather* gather = nullptr);

class Model {
 public:
  // `master` is the flat buffer of all parameters held here, [table().total_count] f32 (f64 for f64
  // compute); empty with options.packed, which outlives the model. With a device's arena it computes on that device,
  // master is in its memory, and what has no kernel there is refused here: kInvalidArgument, with every name.
  Model(Arena& arena, const ModelConfig& config, const ModelOptions& options, const Tensor& master);

  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }
  const ModelOptions& options() const { return options_; }
  const ModelWeights& weights() const { return weights_; }

  // After the master weights changed (also after loading them, or mapping packed ones, which a device gets a copy of),
  // or the placement of experts. With guests collective.
  void refresh(Context& ctx);

  // The rotary base of full and of sliding layers changes at a phase border.
  void set_rope_theta(Context& ctx, double theta, double sliding_theta);

  // Who sees the passes from now on, or null. Not copied: it stays until it is taken away. Of a GPU it sees copies
  // (model/host_observer.h).
  void observe(ForwardObserver* observer);

  // Final hidden rows [T, D] (after the last norm), where it computes, valid until the next call. With a cache,
  // position p of segment s is in page  pages[s.key_begin + p / page_rows]; those before the batch's rows are there.
  // Ranks that share experts or the cache call it together, with the same batch.
  Tensor forward(Context& ctx, const Batch& batch, Cache* cache = nullptr,
                 std::span<const int32_t> pages = {});

  // Sum of -log p over targets >= 0, in a fixed order, without gradient.
  double loss(Context& ctx, const Batch& batch, const Tensor& target, Tensor* losses = nullptr);

  // Forward and backward: gradients of the SUM of losses are added to `sink`; the load of each
  // layer's classes ([L, classes] i64) is added to `load` (may be empty). Returns the sum of
  // losses. With experts or rows of sequences on other ranks, all ranks of the group call it
  // together, as they do forward and loss; each gets the part of its own rows
  // (model/context_batch.h).
  double loss_and_gradients(Context& ctx, const Batch& batch, const Tensor& target,
                            const GradientSink& sink, const Tensor& load);

  // Logits of at most kHeadRows hidden rows, which are where it computes, in the host's memory; valid until the next
  // call.
  Tensor logits(Context& ctx, const Tensor& hidden);
  // On a device: lse [rows] f64 of the rows of the last logits (kernels/cross_entropy.h), in the host's memory.
  void log_sums(Context& ctx, const Tensor& lse);
  // The same in two stages (model/head.h), if coarse_head() is not empty.
  const CoarseMatrix& coarse_head() const { return coarse_head_; }
  Tensor coarse_logits(Context& ctx, const Tensor& hidden) {
    return head_coarse_logits(ctx, coarse_head_, head_, hidden);
  }
  void panel_logits(Context& ctx, const HeadPanels& a) { head_panel_logits(ctx, weights_.head, a); }

  // After forward: the layer's activations (tests, inspection). With one LayerActs: the last layer's.
  const LayerActs& acts(int64_t layer) { return acts_.acts(layer); }
  const Boundary& boundary_above(int64_t layer) { return acts_.above(layer); }

 private:
  LayerPlace place(int64_t layer) const;
  LayerMemory memory(int64_t layer, Cache& cache, std::span<const int32_t> pages);
  void see_held_keys(const Cache& cache, Segments segments);
  void take_host_side(Arena& arena);
  void add_guests(Arena& arena);
  void view_guests(int64_t layer, LayerGradients& gradients) const;
  void return_guests(int64_t layer, const LayerGradients& gradients);
  void embed(Context& ctx, const Batch& batch, const Activations& acts);
  void run_layer(Context& ctx, int64_t layer, const Batch& batch, Activations& acts,
                 const LayerMemory& memory);
  // Of a batch that is where it is computed.
  Tensor pass(Context& ctx, const Batch& batch, Cache* cache, std::span<const int32_t> pages);
  void add_loads(Context& ctx, const Activations& acts, const Tensor& load);
  double sum_losses(int64_t T) const;

  ModelConfig config_;
  ModelOptions options_;
  int64_t senders_ = 1;  // of token rows, for the experts held here
  ParameterTable table_;
  Tensor master_;
  ModelWeights weights_;
  Activations acts_;
  std::optional<SharedCache> shared_cache_;
  HeadScratch head_;
  CoarseMatrix coarse_head_;     // empty: none
  Tensor losses_, losses_host_;  // [tokens] wide; one tensor without a device
  Tensor loads_host_;            // as Activations::loads, which it is without a device
  bool on_device_ = false;
  DeviceBatch device_batch_;         // of a device, as the next
  Tensor logits_host_;               // [kHeadRows, V] wide
  Tensor lse_;                       // [kHeadRows] f64
  Tensor rope_full_, rope_sliding_;  // [positions, rotary/2, 2]
  double theta_ = 0, sliding_theta_ = 0;
  ForwardObserver* observer_ = nullptr;
  std::unique_ptr<HostObserver> host_observer_;  // on a device, before the observer
};

}  // namespace moraine
