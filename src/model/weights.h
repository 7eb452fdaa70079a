// Weights: what the kernels read: packed matrices and working vectors of every layer.
//
// The master copy is one flat buffer (model/parameters.h). After it changed, refresh_weights packs each matrix
// for the forward product (and, when training, transposed for the backward one) and copies the vectors.
// Everything is rounded to the compute type on the way: a bf16 run computes with bf16 weights throughout, so
// the bf16 export of a run is the model that was trained. Balancing biases stay f32.
#pragma once

#include <vector>

#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "model/parameters.h"

namespace moraine {

class PackedModel;  // model/packed_model.h

// One matrix, packed both ways. `backward` is empty when not training.
struct MatrixPack {
  PackedMatrix forward, backward;
};

struct LayerWeights {
  // Attention.
  MatrixPack qkv;                 // [C + K*d, D]
  Tensor conv_depthwise_w;        // [C, 2]
  Tensor conv_depthwise_b;        // [C]
  MatrixPack conv_grouped;        // G groups of [d, 2*d]
  Tensor conv_grouped_b;          // [G, d]
  Tensor temp;                    // [K]
  MatrixPack o;                   // [D, H*d]
  ResidualScale merge_attention;  // [D] each
  Tensor norm_experts;            // [D] the norm that reads the attention merge
  // Router.
  MatrixPack router_down;             // [R, D]
  Tensor router_down_b;               // [R]
  Tensor router_gamma;                // [R], empty on the first layer
  Tensor router_norm;                 // [R]
  MatrixPack router_fc1, router_fc2;  // [R, R]
  Tensor router_fc1_b, router_fc2_b;  // [R]
  MatrixPack router_out;              // [classes, R], or [classes, D] for the linear router
  Tensor balance;                     // [classes] f32 always
  // Experts, or one dense MLP.
  MatrixPack gate_up;           // El + C groups of [2F, D]: the experts held here, then guests
  MatrixPack down;              // El + C groups of [D, F]
  ResidualScale merge_experts;  // [D] each
  Tensor norm_next;  // [D] the norm that reads the experts' merge: next layer's, or the final
};

struct ModelWeights {
  Tensor embedding;  // [V, D] master, rounded as it is read; empty: rows are those of `token_rows`
  PackedMatrix token_rows = {};  // V x D of a packed model: the head, or a pack of its own
  ResidualScale merge_input;     // h_scale, h_bias only
  Tensor norm_first;             // [D] the first layer's input norm
  std::vector<LayerWeights> layers;
  MatrixPack head;  // [V, D], tied with the embedding
  Tensor vectors;   // [total - matrix] working copy of the flat buffer's vector part
};

struct WeightOptions {
  DType compute = DType::kBF16;  // of activations: f32, bf16, or f64 (reference)
  bool training = false;
  int64_t guests = 0;  // C: a layer's experts have so many groups more, of experts from other ranks
};

// Takes the memory. `master` is the flat buffer that refresh_weights will read.
ModelWeights make_weights(Arena& arena, const ModelConfig& config, const ParameterTable& table,
                          const Tensor& master, const WeightOptions& options);

// Packs in the mapping of `packed`, which must outlive them; vectors in the arena. Nothing is to be refreshed.
ModelWeights map_weights(Arena& arena, const ModelConfig& config, const ParameterTable& table,
                         const PackedModel& packed);

// The same of a device: packs and vectors in its memory, filled by copy_packed_weights.
ModelWeights take_packed_weights(Arena& arena, const ModelConfig& config,
                                 const ParameterTable& table, const PackedModel& packed);
void copy_packed_weights(Context& ctx, const ModelConfig& config, const ParameterTable& table,
                         const PackedModel& packed, ModelWeights& weights);

void refresh_weights(Context& ctx, const ModelConfig& config, const ParameterTable& table,
                     const Tensor& master, ModelWeights& weights);

// Of one layer's experts held here, [El, 2F, D] and [El, D, F], or of its dense MLP.
struct ExpertGradients {
  Tensor gate_up, down;
};

// The same names as views into a flat gradient buffer.
struct LayerGradients {
  Tensor qkv, conv_depthwise_w, conv_depthwise_b, conv_grouped, conv_grouped_b, temp, o;
  ResidualScale merge_attention;
  Tensor norm_experts;
  Tensor router_down, router_down_b, router_gamma, router_norm, router_fc1, router_fc1_b,
      router_fc2, router_fc2_b, router_out;
  std::vector<ExpertGradients> experts;      // by sender; one for a dense MLP
  std::vector<ExpertGradients> guests = {};  // by sender, [C, ...]; none without guest slots
  ResidualScale merge_experts;
  Tensor norm_next;
};

struct ModelGradients {
  Tensor embedding;
  ResidualScale merge_input;
  Tensor norm_first;
  std::vector<LayerGradients> layers;
};

// A flat gradient buffer is a flat parameter buffer, and after it the experts' region once more for
// each further sender (parallel/expert_exchange.h): every sender's sum is kept by itself.
int64_t gradient_count(const ParameterTable& table, int64_t senders);
Tensor sender_experts(const ParameterTable& table, const Tensor& flat, int64_t sender);
ModelGradients view_gradients(const ModelConfig& config, const ParameterTable& table,
                              const Tensor& flat, int64_t senders = 1);

}  // namespace moraine
