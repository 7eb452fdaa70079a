// Activations: takes every buffer of a pass from the arena, by name.
#include "model/activations.h"

#include "kernels/check_tensor.h"

namespace moraine {
namespace {

// Takes tensors under "activations.<name>"; `taken` is what a dry or real arena gave.
class Taker {
 public:
  Taker(Arena& arena, const std::string& prefix) : arena_(arena), prefix_(prefix) {}
  Tensor operator()(const char* name, DType dtype, std::initializer_list<int64_t> dims) {
    return arena_.take(prefix_ + name, "activations", dtype, dims);
  }
  // Written by the host.
  Tensor host(const char* name, DType dtype, std::initializer_list<int64_t> dims) {
    return arena_.take_host(prefix_ + name, "activations", dtype, dims);
  }

 private:
  Arena& arena_;
  std::string prefix_;
};

LayerActs take_layer(Arena& arena, const ModelConfig& c, const ActivationsOptions& o) {
  const DType X = o.compute, W = wide_dtype(X);
  const int64_t T = o.tokens, S = o.senders;
  const int64_t D = c.hidden, H = c.heads, K = c.kv_heads, d = c.head_dim, R = c.router_hidden;
  const int64_t n = c.dense() ? 1 : c.experts_per_token, E = c.experts, F = c.expert_hidden;
  Taker take(arena, "layer.");
  LayerActs a;
  a.qkv = take("qkv", X, {T, c.qkv_width()});
  if (c.cca()) {
    a.pair = take("conv_pair", X, {c.conv_groups(), T, 2 * d});
    a.z = take("conv_out", X, {c.conv_groups(), T, d});
    a.group_rows = take.host("conv_rows", DType::kI64, {c.conv_groups() + 1});
    a.nq = take("q_norm", W, {T, H});
    a.nk = take("k_norm", W, {T, K});
  }
  a.q = take("q", X, {T, H, d});
  a.k = take("k", X, {T, K, d});
  a.v = take("v", X, {T, K, d});
  a.o = take("attention_out", X, {T, H, d});
  a.lse = take("attention_lse", W, {T, H});
  a.h1 = take("attention_h", X, {T, D});
  a.r1 = take("residual_mid", W, {T, D});
  a.x2 = take("experts_in", X, {T, D});
  a.rstd2 = take("experts_rstd", W, {T});
  if (!c.dense()) {
    if (c.zaya_router()) {
      a.router_x = take("router_x", X, {T, R});
      a.router_rstd = take("router_rstd", W, {T});
      a.fc1 = take("router_fc1", X, {T, R});
      a.fc1_act = take("router_fc1_act", X, {T, R});
      a.fc2 = take("router_fc2", X, {T, R});
      a.fc2_act = take("router_fc2_act", X, {T, R});
    }
    a.prob = take("router_prob", W, {T, c.classes()});
    a.expert = take("router_expert", DType::kI32, {T, n});
    a.gate = take("router_gate", W, {T, n});
    const int64_t G = o.groups > 0 ? o.groups : E;
    a.rows = take("dispatch_rows", DType::kI64, {G + 1});
    if (S > 1 || o.groups > 0)
      a.rows_host =
          arena.on_device() ? take.host("dispatch_rows_host", DType::kI64, {G + 1}) : a.rows;
    a.choice_of = take("dispatch_choice_of", DType::kI32, {T * n});
    a.row_of = take("dispatch_row_of", DType::kI32, {T, n});
    a.xe = take("experts_x", X, {T * n, D});
    a.ye = take("experts_y", X, {T * n, D});
    if (S > 1) {
      a.received = take.host("dispatch_received", DType::kI64, {S, E / S + o.guests + 1});
      a.x_in = take("experts_x_in", X, {S * T * n, D});
    }
  }
  a.gate_up = take("experts_gate_up", X, {S * T * n, 2 * F});
  a.act = take("experts_act", X, {S * T * n, F});
  a.h2 = take("experts_h", X, {T, D});
  return a;
}

Boundary take_boundary(Arena& arena, const ModelConfig& c, DType X, int64_t T, bool router_state) {
  const DType W = wide_dtype(X);
  Taker take(arena, "boundary.");
  Boundary b;
  b.r = take("residual", W, {T, c.hidden});
  b.x = take("x", X, {T, c.hidden});
  b.rstd = take("rstd", W, {T});
  if (router_state) b.s = take("router_state", W, {T, c.router_hidden});
  return b;
}

BackwardScratch take_backward(Arena& arena, const ModelConfig& c, DType X, int64_t T, int64_t S) {
  const DType W = wide_dtype(X);
  const int64_t D = c.hidden, H = c.heads, K = c.kv_heads, d = c.head_dim, R = c.router_hidden;
  const int64_t n = c.dense() ? 1 : c.experts_per_token, F = c.expert_hidden;
  Taker take(arena, "backward.");
  BackwardScratch b;
  b.dr = take("residual", W, {T, D});
  b.dx = take("x", W, {T, D});
  b.dx2 = take("x2", W, {T, D});
  b.dh = take("h", X, {T, D});
  b.dqkv = take("qkv", X, {T, c.qkv_width()});
  if (c.cca()) {
    b.dpair = take("conv_pair", X, {c.conv_groups(), T, 2 * d});
    b.dz = take("conv_out", X, {c.conv_groups(), T, d});
  }
  b.dq = take("q", X, {T, H, d});
  b.dk = take("k", X, {T, K, d});
  b.dv = take("v", X, {T, K, d});
  b.do_ = take("attention_out", X, {T, H, d});
  b.delta = take("attention_delta", W, {T, H});
  b.dgate_up = take("experts_gate_up", X, {S * T * n, 2 * F});
  b.dact = take("experts_act", X, {S * T * n, F});
  if (c.dense()) return b;
  b.dxe = take("experts_x", X, {T * n, D});
  b.dye = take("experts_y", X, {T * n, D});
  if (S > 1) {
    b.dx_in = take("experts_x_in", X, {S * T * n, D});
    b.dy_out = take("experts_y_out", X, {S * T * n, D});
  }
  b.dgate = take("router_gate", W, {T, n});
  b.dlogits = take("router_logits", X, {T, c.classes()});
  if (c.zaya_router()) {
    b.ds = take("router_state", W, {T, R});
    b.dr_a = take("router_a", X, {T, R});
    b.dr_b = take("router_b", X, {T, R});
  }
  return b;
}

// [T, ...] to its first T rows; [G, T, d] keeps its group count, with T rows each from the same memory.
void cut(Tensor& t, int64_t T, int64_t per_row = 1) {
  if (t.rank == 0) return;
  t.dims[0] = T * per_row;
}

void cut_groups(Tensor& t, int64_t T) {
  if (t.rank == 3) t.dims[1] = T;
}

}  // namespace

Activations make_activations(Arena& arena, const ModelConfig& c, const ActivationsOptions& o) {
  const DType compute = o.compute;
  const int64_t T = o.tokens, S = o.senders;
  const bool training = o.training;
  Activations a;
  a.tokens = T;
  a.senders = S;
  a.recompute = training && o.recompute == Recompute::kLayer;
  const bool state = !c.dense() && c.zaya_router();
  const int64_t boundaries = training ? c.layers + 1 : 2;
  for (int64_t i = 0; i < boundaries; ++i) {
    a.boundaries.push_back(take_boundary(arena, c, compute, T, state && (i > 0 || !training)));
  }
  if (!c.dense()) {
    const int64_t groups = o.groups > 0 ? o.groups : c.experts;
    a.loads = arena.take("dispatch_loads", "activations", DType::kI64,
                         {training ? c.layers : 1, groups + 1});
  }
  const int64_t layers = training && !a.recompute ? c.layers : 1;
  for (int64_t i = 0; i < layers; ++i) a.layers.push_back(take_layer(arena, c, o));
  Taker take(arena, "scratch.");
  const DType W = wide_dtype(compute);
  if (state) a.scratch.router_down = take("router_down", W, {T, c.router_hidden});
  if (!c.dense()) a.scratch.logits = take("router_logits", W, {T, c.classes()});
  if (S > 1) {
    a.scratch.y_out = take("experts_y_out", compute, {S * T * c.experts_per_token, c.hidden});
  }
  if (o.guests > 0 || o.groups > c.experts)
    a.scratch.placed = take("dispatch_placed", DType::kI32, {T, c.experts_per_token});
  a.embedded = take("embedded", compute, {T, c.hidden});
  if (training) a.backward = take_backward(arena, c, compute, T, S);
  return a;
}

Activations first_rows(const Activations& acts, const ModelConfig& c, int64_t T) {
  MR_CHECK(T <= acts.tokens, "T=%ld of %ld", long(T), long(acts.tokens));
  if (T == acts.tokens) return acts;
  const int64_t n = c.dense() ? 1 : c.experts_per_token;
  Activations a = acts;
  a.tokens = T;
  for (Boundary& b : a.boundaries) {
    for (Tensor* t : {&b.r, &b.x, &b.rstd, &b.s}) cut(*t, T);
  }
  for (LayerActs& l : a.layers) {
    for (Tensor* t :
         {&l.qkv, &l.q,       &l.k,    &l.v,      &l.nq,       &l.nk,          &l.o,   &l.lse,
          &l.h1,  &l.r1,      &l.x2,   &l.rstd2,  &l.router_x, &l.router_rstd, &l.fc1, &l.fc1_act,
          &l.fc2, &l.fc2_act, &l.prob, &l.expert, &l.gate,     &l.row_of,      &l.h2}) {
      cut(*t, T);
    }
    for (Tensor* t : {&l.choice_of, &l.xe, &l.ye}) cut(*t, T, n);
    // Rows of other ranks: as many as any of them may have, whatever this one has now.
    if (a.senders == 1)
      for (Tensor* t : {&l.gate_up, &l.act}) cut(*t, T, n);
    cut_groups(l.pair, T);
    cut_groups(l.z, T);
  }
  cut(a.scratch.router_down, T);
  cut(a.scratch.logits, T);
  cut(a.embedded, T);
  BackwardScratch& b = a.backward;
  for (Tensor* t : {&b.dr, &b.dx, &b.dx2, &b.ds, &b.dh, &b.dqkv, &b.dq, &b.dk, &b.dv, &b.do_,
                    &b.delta, &b.dgate, &b.dlogits, &b.dr_a, &b.dr_b}) {
    cut(*t, T);
  }
  for (Tensor* t : {&b.dxe, &b.dye}) cut(*t, T, n);
  if (a.senders == 1)
    for (Tensor* t : {&b.dgate_up, &b.dact}) cut(*t, T, n);
  cut_groups(b.dpair, T);
  cut_groups(b.dz, T);
  return a;
}

}  // namespace moraine
