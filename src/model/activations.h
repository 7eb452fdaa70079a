// Activations: what one forward pass leaves behind for the backward pass, and the scratch of both.
//
// A boundary holds what layer i reads and layer i-1 wrote. With recomputation, one LayerActs serves all
// layers: backward runs each layer's forward again from its boundary (the same bits, by row independence).
#pragma once

#include <vector>

#include "model/config.h"
#include "tensor/arena.h"

namespace moraine {

// Between layers. r is the residual stream before layer i, x its norm, s the router state from below.
struct Boundary {
  Tensor r;     // [T, D] wide (f32)
  Tensor x;     // [T, D]
  Tensor rstd;  // [T]
  Tensor s;     // [T, R] wide; empty on boundary 0 and without the ZAYA1 router
};

struct LayerActs {
  // Attention.
  Tensor qkv;         // [T, C + K*d]
  Tensor pair;        // [G, T, 2*d]
  Tensor z;           // [G, T, d]
  Tensor group_rows;  // [G+1] i64: g*T, the grouped convolution's rows; the host's
  Tensor q;           // [T, H, d]
  Tensor k, v;        // [T, K, d]
  Tensor nq, nk;      // [T, H], [T, K] f32
  Tensor o;           // [T, H, d]
  Tensor lse;         // [T, H] f32
  Tensor h1;          // [T, D]
  Tensor r1;          // [T, D] wide
  Tensor x2;          // [T, D]
  Tensor rstd2;       // [T]
  // Router.
  Tensor router_x;      // [T, R]
  Tensor router_rstd;   // [T]
  Tensor fc1, fc1_act;  // [T, R]
  Tensor fc2, fc2_act;  // [T, R]
  Tensor prob;          // [T, classes] f32
  Tensor expert;        // [T, n] i32
  Tensor gate;          // [T, n] f32
  Tensor rows, load;    // [E+1] i64, or [G+1] with groups; load: of Activations::loads
  Tensor rows_host;     // as rows, where the host reads them; empty if all experts are here
  Tensor choice_of;     // [T*n] i32
  Tensor row_of;        // [T, n] i32
  // Experts, or one dense MLP (then xe is x2 itself and ye is h2). S: senders of rows, 1 if all
  // experts are here (then x_in is xe).
  Tensor xe;        // [T*n, D]
  Tensor received;  // [S, El+C+1] i64, the host's; empty if S == 1
  Tensor x_in;      // [S*T*n, D] rows of the experts that are served here
  Tensor gate_up;   // [S*T*n, 2F]
  Tensor act;       // [S*T*n, F]
  Tensor ye;        // [T*n, D]
  Tensor h2;        // [T, D]
};

// Shared by all layers.
struct Scratch {
  Tensor router_down;  // [T, R] wide
  Tensor logits;       // [T, classes] wide
  Tensor y_out;        // [S*T*n, D] answers of the experts served here; empty if S == 1
  Tensor placed;       // [T, n] i32 experts by position (parallel/expert_routes.h); empty if C == 0
};

// Gradients of one layer's activations, shared by all layers. `wide` tensors add up over sub-layers.
struct BackwardScratch {
  Tensor dr;   // [T, D] wide: residual stream
  Tensor dx;   // [T, D] wide: of the boundary's x
  Tensor dx2;  // [T, D] wide
  Tensor ds;   // [T, R] wide: router state, from the layer above
  Tensor dh;   // [T, D]
  Tensor dqkv, dpair, dz, dq, dk, dv, do_, delta;
  Tensor dxe, dye;       // [T*n, D]
  Tensor dx_in, dy_out;  // [S*T*n, D], empty if S == 1
  Tensor dgate_up;       // [S*T*n, 2F]
  Tensor dact;           // [S*T*n, F]
  Tensor dgate;          // [T, n] f32
  Tensor dlogits;        // [T, classes]
  Tensor dr_a, dr_b;     // [T, R]
};

struct Activations {
  int64_t tokens = 0;                // T
  int64_t senders = 1;               // S
  bool recompute = false;            // one LayerActs for all layers
  std::vector<Boundary> boundaries;  // L + 1 (two, alternating, if not training)
  std::vector<LayerActs> layers;     // L, or 1
  Scratch scratch;
  BackwardScratch backward;  // empty if not training
  Tensor embedded;           // [T, D]
  Tensor loads;              // [L, E+1] i64, or [1, E+1] if not training; empty if dense

  const Boundary& below(int64_t layer) const { return boundary(layer); }
  const Boundary& above(int64_t layer) const { return boundary(layer + 1); }
  // With one LayerActs, its load is that of the layer asked for.
  LayerActs& acts(int64_t layer) {
    LayerActs& a = layers[layers.size() == 1 ? 0 : static_cast<size_t>(layer)];
    if (loads.rank > 0) a.load = layer_load(layer);
    return a;
  }
  Tensor layer_load(int64_t layer) const {
    const int64_t i = loads.dims[0] == 1 ? 0 : layer;
    return loads.rows(i, i + 1).reshaped({loads.dims[1]});
  }

 private:
  const Boundary& boundary(int64_t i) const {
    return boundaries[static_cast<size_t>(i) % boundaries.size()];
  }
};

enum class Recompute : uint8_t { kNone, kLayer };

struct ActivationsOptions {
  DType compute = DType::kBF16;
  int64_t tokens = 0;   // T
  int64_t senders = 1;  // S
  int64_t guests = 0;   // C: guest slots
  int64_t groups = 0;   // G: of rows (parallel/row_split.h); 0: the experts
  bool training = false;
  Recompute recompute = Recompute::kNone;
};

// Takes the memory for T rows. Not training: one LayerActs and two boundaries.
Activations make_activations(Arena& arena, const ModelConfig& config,
                             const ActivationsOptions& options);

// The same buffers seen as the first T rows (a last, shorter batch).
Activations first_rows(const Activations& acts, const ModelConfig& config, int64_t T);

}  // namespace moraine
