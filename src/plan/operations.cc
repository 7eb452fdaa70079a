// The model's layers read once, counting: layer_forward.cc and layer_backward.cc without arithmetic.
#include "plan/operations.h"

#include <algorithm>

#include "kernels/linear.h"
#include "model/head.h"
#include "plan/formula.h"

namespace moraine {
namespace {

constexpr double kWide = 4;  // bytes: f32

// (row, key) pairs of one document of n rows; each row sees `window` keys at most (0: no limit).
double pairs_of(int64_t n, int64_t window) {
  const int64_t growing = window > 0 ? std::min(n, window) : n;
  return as_factor(growing) * as_factor(growing + 1) / 2 +
         as_factor(n - growing) * as_factor(window);
}

// Adds up operations, each call as often as `times` says.
class Counter {
 public:
  explicit Counter(const RankWork& w)
      : w(w), c(w.model), X(as_factor(dtype_bytes(w.compute))), T(w.rows()) {}

  void count_forward(int64_t layer);
  void count_backward(int64_t layer);
  void count_embedding();
  void count_head();
  void count_end();
  void count_slots();
  void count_update();

  double times = 1;
  std::vector<StepOperation> all;

  const RankWork& w;
  const ModelConfig& c;
  const double X;   // bytes of an activation
  const int64_t T;  // rows of a micro-batch

  void add(const char* name, double flops, double bytes, double calls = 1,
           const ProductShape& product = {}) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const StepOperation& o) {
      return o.name == name && o.product == product;
    });
    StepOperation& o = same == all.end()
                           ? all.emplace_back(StepOperation{.name = name, .product = product})
                           : *same;
    o.calls += times * calls;
    o.flops += times * calls * flops;
    o.bytes += times * calls * bytes;
  }

 private:
  // Rows of all groups together, a weight of n x k for each group; `out`: bytes of an output element.
  struct Product {
    int64_t rows, n, k, groups = 1;
    double out = 0;
    bool grouped = false;
  };

  double pack(const Product& p) const {
    return as_factor(packed_bytes(w.compute, p.groups, p.n, p.k));
  }
  static ProductShape shape(const Product& p, bool is_weight) {
    return {.is_weight = is_weight,
            .rows = std::max<int64_t>(1, p.rows / p.groups),
            .n = p.n,
            .k = p.k,
            .groups = p.groups};
  }
  void product(const char* name, const Product& p) {
    add(name, 2 * as_factor(p.rows) * as_factor(p.n) * as_factor(p.k),
        as_factor(p.rows * p.k) * X + as_factor(p.rows * p.n) * p.out + pack(p), 1,
        shape(p, false));
  }
  void forward(const Product& p) {
    product(p.grouped ? "grouped_linear_forward" : "linear_forward", p);
  }
  // dx [rows, n] = dy [rows, k] times the transposed weight.
  void backward_input(const Product& p) {
    product(p.grouped ? "grouped_linear_backward_input" : "linear_backward_input", p);
  }
  void backward_weight(const Product& p) {
    add(p.grouped ? "grouped_linear_backward_weight" : "linear_backward_weight",
        2 * as_factor(p.rows) * as_factor(p.n) * as_factor(p.k),
        as_factor(p.rows * (p.n + p.k)) * X + 2 * as_factor(p.groups * p.n * p.k) * kWide, 1,
        shape(p, true));
  }

  // Rows that come to the experts held here from one sender.
  int64_t expert_rows() const {
    const double even = as_factor(T * c.experts_per_token) / as_factor(w.senders());
    return static_cast<int64_t>(even * (w.expert > 1 ? w.imbalance : 1.0) + 0.5);
  }
  int64_t documents() const {
    const int64_t length = w.document > 0 ? std::min(w.document, w.length) : w.length;
    return w.sequences * w.length / length;
  }
  int64_t document_length() const {
    return w.document > 0 ? std::min(w.document, w.length) : w.length;
  }

  void count_attention_forward(int64_t layer);
  void count_attention_backward(int64_t layer);
  void count_ring_parts(const char* name, double flops, double q_tensors, double k_tensors);
  void count_router_forward(int64_t layer);
  void count_router_backward(int64_t layer);
  void count_mlp_forward();
  void count_mlp_backward();
  void norm_backward(bool has_residual);
  void norm_forward(bool has_residual);
};

void Counter::norm_forward(bool has_residual) {
  const double TD = as_factor(T * c.hidden);
  add("residual_norm_forward", 8 * TD,
      TD * (kWide + X + X + (has_residual ? kWide : 0)) + as_factor(T) * kWide);
}

void Counter::norm_backward(bool has_residual) {
  const double TD = as_factor(T * c.hidden);
  add("residual_norm_backward", 20 * TD,
      TD * (2 * X + 3 * kWide + (has_residual ? 2 * kWide : 0)) + as_factor(T) * kWide);
}

void Counter::count_embedding() {
  const double TD = as_factor(T * c.hidden);
  add("embedding_forward", 0, TD * (kWide + X));
  norm_forward(false);
}

void Counter::count_attention_forward(int64_t layer) {
  const int64_t H = c.heads, K = c.kv_heads, d = c.head_dim, C = w.context;
  const int64_t window = c.window(layer), length = document_length();
  const double head = as_factor(H * d),
               flops = 4 * pairs_of(length, window) * as_factor(documents()) * head / as_factor(C);
  if (C > 1 && w.variant == ContextVariant::kRing) {
    add("zero", 0, as_factor(T) * head * kWide);
    count_ring_parts("attention_part_forward", flops, 1, 2);
    if (X < kWide) add("round_copy", 0, as_factor(T) * head * (X + kWide));
    return;
  }
  double keys = as_factor(w.sequences * w.length);  // rows that are seen, summed over segments
  if (C > 1) keys = keys * as_factor(2 * C + 1) / as_factor(2 * C);
  add("attention_forward", flops,
      2 * as_factor(T) * head * X + as_factor(T * H) * kWide + 2 * keys * as_factor(K * d) * X);
}

// Hop 0: own keys, two parts; of the C-1 others half are one part of all rows, half two parts of half of them.
void Counter::count_ring_parts(const char* name, double flops, double q_tensors, double k_tensors) {
  const double C = as_factor(w.context), calls = 2 + 1.5 * (C - 1), rows = as_factor(T) * (C + 0.5);
  const double q = rows * as_factor(c.heads * c.head_dim),
               k = rows * as_factor(c.kv_heads * c.head_dim);
  const bool is_backward = q_tensors > 1;
  const double wide = is_backward ? 2 * q + 4 * k : q;
  add(name, flops / calls, ((q_tensors * q + k_tensors * k) * X + wide * kWide) / calls, calls);
  if (!is_backward) add("attention_merge", 3 * q / calls, 3 * q * kWide / calls, calls);
}

void Counter::count_attention_backward(int64_t layer) {
  const int64_t H = c.heads, K = c.kv_heads, d = c.head_dim, C = w.context;
  const double head = as_factor(H * d), key = as_factor(K * d);
  const double flops = 10 * pairs_of(document_length(), c.window(layer)) * as_factor(documents()) *
                       head / as_factor(C);
  if (C == 1) {
    add("attention_backward", flops,
        4 * as_factor(T) * (head + key) * X + 2 * as_factor(T * H) * kWide);
    return;
  }
  add("zero", 0, as_factor(T) * head * kWide);
  add("attention_delta", 2 * as_factor(T) * head, 2 * as_factor(T) * head * X);
  double copies = 2;
  if (w.variant == ContextVariant::kRing) {
    add("zero", 0, 2 * as_factor(T) * key * kWide);
    count_ring_parts("attention_part_backward", flops, 2, 2);
  } else {
    const double keys = as_factor(w.sequences * w.length) * as_factor(2 * C + 1) / as_factor(2 * C);
    add("zero", 0, 2 * as_factor(T * C) * key * kWide);
    add("attention_part_backward", flops,
        (2 * as_factor(T) * head + 2 * keys * key) * X +
            (2 * as_factor(T) * head + 4 * keys * key) * kWide);
    copies = 4 * as_factor(w.sequences);  // two chunks of each sequence
  }
  if (X == kWide) return;
  add("round_copy", 0, 2 * as_factor(T) * key * (X + kWide) / copies, copies);
  add("round_copy", 0, as_factor(T) * head * (X + kWide));
}

void Counter::count_router_forward(int64_t layer) {
  const int64_t D = c.hidden, R = c.router_hidden, C = c.classes(), n = c.experts_per_token;
  const double TR = as_factor(T * R);
  if (c.zaya_router()) {
    forward({.rows = T, .n = R, .k = D, .out = kWide});
    add("router_state_forward", 6 * TR, (layer == 0 ? 2 : 3) * TR * kWide + TR * X);
    for (int i = 0; i < 2; ++i) {
      forward({.rows = T, .n = R, .k = R, .out = X});
      add("gelu_forward", 30 * TR, 2 * TR * X);
    }
  }
  forward({.rows = T, .n = C, .k = c.zaya_router() ? R : D, .out = kWide});
  add("router_choice_forward", 6 * as_factor(T * C),
      2 * as_factor(T * C) * kWide + as_factor(T * n) * (4 + kWide));
  add("dispatch_plan", 0, 12 * as_factor(T * n));
}

void Counter::count_router_backward(int64_t layer) {
  const int64_t D = c.hidden, R = c.router_hidden, C = c.classes(), n = c.experts_per_token;
  const double TR = as_factor(T * R), TC = as_factor(T * C);
  add("router_choice_backward", 2 * TC, TC * (X + kWide) + as_factor(T * n) * (4 + kWide));
  if (!c.zaya_router()) {
    backward_weight({.rows = T, .n = C, .k = D});
    backward_input({.rows = T, .n = D, .k = C, .out = kWide});
    return;
  }
  backward_weight({.rows = T, .n = C, .k = R});
  backward_input({.rows = T, .n = R, .k = C, .out = X});
  for (int i = 0; i < 2; ++i) {
    add("gelu_backward", 34 * TR, 3 * TR * X);
    backward_weight({.rows = T, .n = R, .k = R});
    backward_input({.rows = T, .n = R, .k = R, .out = X});
  }
  add("router_state_backward", 16 * TR, (layer == 0 ? 2 : 4) * TR * kWide + 2 * TR * X);
  backward_weight({.rows = T, .n = R, .k = D});
  backward_input({.rows = T, .n = D, .k = R, .out = kWide});
}

void Counter::count_mlp_forward() {
  const int64_t D = c.hidden, F = c.expert_hidden, n = c.experts_per_token;
  if (c.dense()) {
    forward({.rows = T, .n = 2 * F, .k = D, .out = X});
    add("swiglu_forward", 2.5 * as_factor(T * 2 * F), 1.5 * as_factor(T * 2 * F) * X);
    forward({.rows = T, .n = D, .k = F, .out = X});
    return;
  }
  add("dispatch_forward", 0, 2 * as_factor(T * n * D) * X);
  const int64_t rows = expert_rows(), held = c.experts / w.expert;
  for (int64_t s = 0; s < w.senders(); ++s) {
    forward({.rows = rows, .n = 2 * F, .k = D, .groups = held, .out = X, .grouped = true});
    add("swiglu_forward", 2.5 * as_factor(rows * 2 * F), 1.5 * as_factor(rows * 2 * F) * X);
    forward({.rows = rows, .n = D, .k = F, .groups = held, .out = X, .grouped = true});
  }
  add("combine_forward", 2 * as_factor(T * n * D), as_factor(T * D + T * n * D) * X);
}

void Counter::count_mlp_backward() {
  const int64_t D = c.hidden, F = c.expert_hidden, n = c.experts_per_token;
  if (c.dense()) {
    backward_weight({.rows = T, .n = D, .k = F});
    backward_input({.rows = T, .n = F, .k = D, .out = X});
    add("swiglu_backward", 5 * as_factor(T * 2 * F), 2.5 * as_factor(T * 2 * F) * X);
    backward_weight({.rows = T, .n = 2 * F, .k = D});
    backward_input({.rows = T, .n = D, .k = 2 * F, .out = kWide});
    return;
  }
  add("zero", 0, as_factor(T * D) * kWide);
  add("combine_backward", 3 * as_factor(T * n * D), as_factor(T * D + 2 * T * n * D) * X);
  const int64_t rows = expert_rows(), held = c.experts / w.expert;
  for (int64_t s = 0; s < w.senders(); ++s) {
    backward_input({.rows = rows, .n = F, .k = D, .groups = held, .out = X, .grouped = true});
    backward_weight({.rows = rows, .n = D, .k = F, .groups = held, .grouped = true});
    add("swiglu_backward", 5 * as_factor(rows * 2 * F), 2.5 * as_factor(rows * 2 * F) * X);
    backward_input({.rows = rows, .n = D, .k = 2 * F, .groups = held, .out = X, .grouped = true});
    backward_weight({.rows = rows, .n = 2 * F, .k = D, .groups = held, .grouped = true});
  }
  add("dispatch_backward", as_factor(T * n * D),
      2 * as_factor(T * D) * kWide + as_factor(T * n * D) * X);
}

void Counter::count_forward(int64_t layer) {
  const int64_t D = c.hidden, H = c.heads, K = c.kv_heads, d = c.head_dim, G = c.conv_groups();
  const double rotated = as_factor(T * (H + K) * d);
  forward({.rows = T, .n = c.qkv_width(), .k = D, .out = X});
  if (c.cca()) {
    add("cca_conv_forward", 4 * as_factor(T * G * d), 1.5 * as_factor(G * T * 2 * d) * X);
    forward({.rows = G * T, .n = d, .k = 2 * d, .groups = G, .out = X, .grouped = true});
  }
  add("qk_norm_rope_forward", (c.cca() ? 9 : 3) * rotated, (c.cca() ? 3 : 2) * rotated * X);
  add("value_shift_forward", 0, 2 * as_factor(T * K * d) * X);
  count_attention_forward(layer);
  forward({.rows = T, .n = D, .k = H * d, .out = X});
  norm_forward(true);
  if (!c.dense()) count_router_forward(layer);
  count_mlp_forward();
  norm_forward(true);
}

void Counter::count_backward(int64_t layer) {
  const int64_t D = c.hidden, H = c.heads, K = c.kv_heads, d = c.head_dim, G = c.conv_groups();
  const double rotated = as_factor(T * (H + K) * d);
  norm_backward(true);
  count_mlp_backward();
  if (!c.dense()) {
    count_router_backward(layer);
    add("add_into", as_factor(T * D), 3 * as_factor(T * D) * kWide);
  }
  norm_backward(true);
  backward_weight({.rows = T, .n = D, .k = H * d});
  backward_input({.rows = T, .n = H * d, .k = D, .out = X});
  count_attention_backward(layer);
  add("value_shift_backward", 0, 2 * as_factor(T * K * d) * X);
  add("qk_norm_rope_backward", (c.cca() ? 16 : 3) * rotated, (c.cca() ? 5 : 2) * rotated * X);
  if (c.cca()) {
    backward_weight({.rows = G * T, .n = d, .k = 2 * d, .groups = G, .grouped = true});
    backward_input({.rows = G * T, .n = 2 * d, .k = d, .groups = G, .out = X, .grouped = true});
    add("cca_conv_backward", 10 * as_factor(T * G * d), 2.5 * as_factor(G * T * 2 * d) * X);
  }
  backward_weight({.rows = T, .n = c.qkv_width(), .k = D});
  backward_input({.rows = T, .n = D, .k = c.qkv_width(), .out = kWide});
}

void Counter::count_head() {
  const int64_t D = c.hidden, V = c.vocab_size;
  for (int64_t at = 0; at < T;) {
    const int64_t rows = std::min(kHeadRows, T - at), blocks = (T - at) / rows;
    const double before = times;
    times *= as_factor(blocks);
    forward({.rows = rows, .n = V, .k = D, .out = kWide});
    add("cross_entropy", 5 * as_factor(rows * V), as_factor(rows * V) * (2 * kWide + X));
    backward_input({.rows = rows, .n = D, .k = V, .out = kWide});
    backward_weight({.rows = rows, .n = V, .k = D});
    times = before;
    at += blocks * rows;
  }
  add("zero", 0, as_factor(T * D) * kWide);
}

void Counter::count_end() {
  norm_backward(false);
  add("embedding_backward", as_factor(T * c.hidden), as_factor(T * c.hidden) * (2 * kWide + X));
}

// The tree over slots, and over the senders of the experts' rows.
void Counter::count_slots() {
  const int64_t held = w.parameters + (w.senders() - 1) * w.expert_parameters;
  times = as_factor(w.slots);
  add("zero", 0, as_factor(held) * kWide);
  times = as_factor(w.slots - 1);
  if (w.slots > 1) add("add_into", as_factor(held), 3 * as_factor(held) * kWide);
  times = as_factor(w.senders() - 1);
  if (w.senders() > 1)
    add("add_into", as_factor(w.expert_parameters), 3 * as_factor(w.expert_parameters) * kWide);
  times = 1;
}

void Counter::count_update() {
  const OptimizerWork& o = w.optimizer;
  const int64_t D = c.hidden, F = c.expert_hidden, R = c.router_hidden,
                held = c.dense() ? 1 : c.experts / w.expert;
  add("squares_of_ranges", 2 * as_factor(o.owned_elements), as_factor(o.owned_elements) * kWide);
  if (o.muon_calls > 0) {
    const double calls = as_factor(o.muon_calls);
    add("muon", o.muon_flops / calls,
        as_factor(o.muon_elements) * (16 + 2 * as_factor(o.momentum_bytes)) / calls, calls);
  }
  if (o.adamw_calls > 0)
    add("adamw", 0, 28 * as_factor(o.adamw_elements) / as_factor(o.adamw_calls),
        as_factor(o.adamw_calls));
  const auto packs = [&](int64_t elements) {
    add("pack_matrix", 0, as_factor(elements) * (kWide + 2 * X));
  };
  packs(c.vocab_size * D);
  times = as_factor(c.layers);
  packs(c.qkv_width() * D);
  if (c.cca()) packs(c.conv_groups() * 2 * c.head_dim * c.head_dim);
  packs(D * c.heads * c.head_dim);
  if (!c.dense() && c.zaya_router()) packs(R * D), packs(R * R), packs(R * R);
  if (!c.dense()) packs(c.classes() * (c.zaya_router() ? R : D));
  packs(held * 2 * F * D);
  packs(held * D * F);
  // Balancing biases once more, as they are not rounded.
  if (!c.dense() && w.compute == DType::kBF16)
    add("round_copy", 0, 2 * as_factor(c.classes()) * kWide);
  times = 1;
  add("round_copy", 0, 2 * as_factor(w.vector_parameters) * kWide);
}

}  // namespace

std::vector<StepOperation> step_operations(const RankWork& work) {
  Counter counter(work);
  const double batches = as_factor(work.slots * work.micro_batches);
  counter.times = batches;
  counter.count_embedding();
  // Layers differ by window and by being the first; the first is counted by itself.
  for (int64_t i = 0; i < work.model.layers; ++i) {
    const bool again = work.recompute == Recompute::kLayer && i + 1 < work.model.layers;
    counter.times = batches * (again ? 2 : 1);
    counter.count_forward(i);
    counter.times = batches;
    counter.count_backward(i);
  }
  counter.count_head();
  counter.count_end();
  counter.count_slots();
  counter.count_update();
  return counter.all;
}

}  // namespace moraine
