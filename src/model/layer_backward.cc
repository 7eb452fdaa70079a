// One decoder layer, backward: layer_forward read from the bottom up.
#include "model/layer_backward.h"

#include <cmath>

#include "base/clock.h"
#include "kernels/attention.h"
#include "kernels/cca_conv.h"
#include "kernels/elementwise.h"
#include "kernels/expert_dispatch.h"
#include "kernels/gelu.h"
#include "kernels/qk_norm_rope.h"
#include "kernels/router_choice.h"
#include "kernels/router_state.h"
#include "kernels/swiglu.h"
#include "kernels/value_shift.h"

namespace moraine {
namespace {

// Of one sender's rows: writes dx.
struct ExpertMlpBackward {
  Tensor dx, dgate_up, dact;      // out
  Tensor dy, x, gate_up, act;     // in
  std::span<const int64_t> rows;  // [El+C+1]
};

// Adds to the gradients of the weights of all groups.
void expert_weights_backward(Context& ctx, const ExpertGradients& g, const ExpertMlpBackward& m) {
  grouped_linear_backward_weight(
      ctx, {.dw = g.down, .dbias = {}, .dy = m.dy, .x = m.act, .rows = m.rows});
  grouped_linear_backward_weight(
      ctx, {.dw = g.gate_up, .dbias = {}, .dy = m.dgate_up, .x = m.x, .rows = m.rows});
}

// The same of groups [first, first + count of g), whose bounds the host reads.
void some_weights_backward(Context& ctx, const ExpertGradients& g, int64_t first,
                           const ExpertMlpBackward& m) {
  const int64_t count = g.down.dims[0];
  const std::span<const int64_t> all =
      m.rows.subspan(static_cast<size_t>(first), static_cast<size_t>(count + 1));
  if (all.front() == all.back()) return;
  std::vector<int64_t> rows;
  for (const int64_t r : all) rows.push_back(r - all.front());
  const auto part = [&](const Tensor& t) { return t.rows(all.front(), all.back()); };
  expert_weights_backward(ctx, g,
                          {.dx = {},
                           .dgate_up = part(m.dgate_up),
                           .dact = {},
                           .dy = part(m.dy),
                           .x = part(m.x),
                           .gate_up = {},
                           .act = part(m.act),
                           .rows = rows});
}

void expert_mlp_backward(Context& ctx, const LayerWeights& w, const ExpertMlpBackward& m) {
  grouped_linear_backward_input(ctx,
                                {.dx = m.dact, .dy = m.dy, .w = w.down.backward, .rows = m.rows});
  swiglu_backward(ctx, {.dgate_up = m.dgate_up,
                        .dy = m.dact,
                        .gate_up = m.gate_up,
                        .rows = RowCount::last_of(m.rows)});
  grouped_linear_backward_input(
      ctx, {.dx = m.dx, .dy = m.dgate_up, .w = w.gate_up.backward, .rows = m.rows});
}

// From b.dye to b.dxe through the ranks that hold the experts.
void exchanged_mlp_backward(Context& ctx, const LayerBackward& l) {
  const auto& [place, w, g, batch, below, above, a, b] = l;
  ExpertExchange& exchange = *place.exchange;
  {
    const OpTimer timer(ctx.profile, Span::kRanks, "ranks: rows to experts");
    exchange.to_experts(ctx, {.out = b.dy_out,
                              .in = b.dye,
                              .rows = a.rows_host,
                              .received = a.received,
                              .layer = place.index});
  }
  const double begin = now_seconds();
  for (int64_t s = 0; s < exchange.senders(); ++s) {
    const SenderRows from = sender_rows(a.received, s);
    const auto part = [&](const Tensor& t) { return t.rows(from.begin, from.end); };
    const ExpertMlpBackward rows{.dx = part(b.dx_in),
                                 .dgate_up = part(b.dgate_up),
                                 .dact = part(b.dact),
                                 .dy = part(b.dy_out),
                                 .x = part(a.x_in),
                                 .gate_up = part(a.gate_up),
                                 .act = part(a.act),
                                 .rows = from.rows};
    expert_mlp_backward(ctx, w, rows);
    some_weights_backward(ctx, g.experts[static_cast<size_t>(s)], 0, rows);
    if (!g.guests.empty())
      some_weights_backward(ctx, g.guests[static_cast<size_t>(s)], exchange.experts(), rows);
  }
  if (place.observer != nullptr) place.observer->computed(place.index, now_seconds() - begin);
  exchange.add_seconds(now_seconds() - begin);
  const OpTimer timer(ctx.profile, Span::kRanks, "ranks: rows to tokens");
  exchange.to_tokens(ctx, {.out = b.dxe,
                           .in = b.dx_in,
                           .rows = a.rows_host,
                           .received = a.received,
                           .layer = place.index});
}

// Adds to b.dx2: the experts' part of the gradient of x2.
void experts_backward(Context& ctx, const LayerBackward& l) {
  const auto& [place, w, g, batch, below, above, a, b] = l;
  if (place.exchange != nullptr) {
    exchanged_mlp_backward(ctx, l);
  } else {
    const size_t bounds = static_cast<size_t>(place.config.experts + 1);
    const ExpertMlpBackward rows{.dx = b.dxe,
                                 .dgate_up = b.dgate_up,
                                 .dact = b.dact,
                                 .dy = b.dye,
                                 .x = a.xe,
                                 .gate_up = a.gate_up,
                                 .act = a.act,
                                 .rows = {a.rows.as<int64_t>(), bounds}};
    expert_mlp_backward(ctx, w, rows);
    expert_weights_backward(ctx, g.experts[0], rows);
  }
  dispatch_backward(ctx, {.dx = b.dx2, .dxe = b.dxe, .row_of = a.row_of});
}

// Writes b.dx (free here): the router's part of the gradient of x2, from b.dgate.
void route_backward(Context& ctx, const LayerBackward& l) {
  const auto& [place, w, g, batch, below, above, a, b] = l;
  const ModelConfig& c = place.config;
  router_choice_backward(ctx, {.dlogits = b.dlogits,
                               .dgate = b.dgate,
                               .prob = a.prob,
                               .expert = a.expert,
                               .skip = c.skip_class()});
  if (!c.zaya_router()) {
    linear_backward_weight(ctx, {.dw = g.router_out, .dbias = {}, .dy = b.dlogits, .x = a.x2});
    linear_backward_input(ctx, {.dx = b.dx, .dy = b.dlogits, .w = w.router_out.backward});
    return;
  }
  linear_backward_weight(ctx, {.dw = g.router_out, .dbias = {}, .dy = b.dlogits, .x = a.fc2_act});
  linear_backward_input(ctx, {.dx = b.dr_a, .dy = b.dlogits, .w = w.router_out.backward});
  gelu_backward(ctx, {.dx = b.dr_a, .dy = b.dr_a, .x = a.fc2});
  linear_backward_weight(
      ctx, {.dw = g.router_fc2, .dbias = g.router_fc2_b, .dy = b.dr_a, .x = a.fc1_act});
  linear_backward_input(ctx, {.dx = b.dr_b, .dy = b.dr_a, .w = w.router_fc2.backward});
  gelu_backward(ctx, {.dx = b.dr_b, .dy = b.dr_b, .x = a.fc1});
  linear_backward_weight(
      ctx, {.dw = g.router_fc1, .dbias = g.router_fc1_b, .dy = b.dr_b, .x = a.router_x});
  linear_backward_input(ctx, {.dx = b.dr_a, .dy = b.dr_b, .w = w.router_fc1.backward});
  const bool first = place.index == 0, last = place.index + 1 == c.layers;
  router_state_backward(ctx, {.dy = b.dr_b,
                              .ds_prev = first ? Tensor() : b.ds,
                              .dgamma = g.router_gamma,
                              .dnorm = g.router_norm,
                              .dx = b.dr_a,
                              .ds = last ? Tensor() : b.ds,
                              .s = above.s,
                              .rstd = a.router_rstd,
                              .s_prev = first ? Tensor() : below.s,
                              .gamma = w.router_gamma,
                              .norm = w.router_norm});
  linear_backward_weight(ctx,
                         {.dw = g.router_down, .dbias = g.router_down_b, .dy = b.dr_b, .x = a.x2});
  linear_backward_input(ctx, {.dx = b.dx, .dy = b.dr_b, .w = w.router_down.backward});
}

void dense_backward(Context& ctx, const LayerWeights& w, const LayerGradients& g,
                    const LayerActs& a, const BackwardScratch& b) {
  linear_backward_weight(ctx, {.dw = g.experts[0].down, .dbias = {}, .dy = b.dh, .x = a.act});
  linear_backward_input(ctx, {.dx = b.dact, .dy = b.dh, .w = w.down.backward});
  swiglu_backward(
      ctx, {.dgate_up = b.dgate_up, .dy = b.dact, .gate_up = a.gate_up, .rows = a.act.dims[0]});
  linear_backward_weight(ctx,
                         {.dw = g.experts[0].gate_up, .dbias = {}, .dy = b.dgate_up, .x = a.x2});
  linear_backward_input(ctx, {.dx = b.dx2, .dy = b.dgate_up, .w = w.gate_up.backward});
}

// From b.do_ to b.dq, b.dk, b.dv.
void attend_backward(Context& ctx, const LayerPlace& place, const Batch& batch, const LayerActs& a,
                     const BackwardScratch& b) {
  const ModelConfig& c = place.config;
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (place.context != nullptr) {
    place.context->attention().backward(ctx, {.dq = b.dq,
                                              .dk = b.dk,
                                              .dv = b.dv,
                                              .delta = b.delta,
                                              .do_ = b.do_,
                                              .o = a.o,
                                              .lse = a.lse,
                                              .q = a.q,
                                              .k = a.k,
                                              .v = a.v,
                                              .window = c.window(place.index),
                                              .scale = scale});
    return;
  }
  attention_backward(ctx, {.dq = b.dq,
                           .dk = b.dk,
                           .dv = b.dv,
                           .delta = b.delta,
                           .do_ = b.do_,
                           .o = a.o,
                           .lse = a.lse,
                           .q = a.q,
                           .k = a.k,
                           .v = a.v,
                           .segments = batch.segments,
                           .window = c.window(place.index),
                           .scale = scale});
}

// From b.dq, b.dk, b.dv to b.dx, the gradient of below.x.
void project_backward(Context& ctx, const LayerBackward& l) {
  const auto& [place, w, g, batch, below, above, a, b] = l;
  const ModelConfig& c = place.config;
  const bool shared = place.context != nullptr && c.cca();
  const LayerHalo halo = shared ? place.context->kept_halo(place.index) : LayerHalo{},
                  dhalo = shared ? place.context->halo_gradient() : LayerHalo{};
  value_shift_backward(ctx, {.dqkv = b.dqkv,
                             .dv = b.dv,
                             .segments = batch.segments,
                             .delayed = c.cca(),
                             .dhalo = dhalo.value,
                             .halo_row = dhalo.row});
  qk_norm_rope_backward(ctx, {.dqkv = b.dqkv,
                              .dz = b.dz,
                              .dtemp = g.temp,
                              .dq = b.dq,
                              .dk = b.dk,
                              .nq = a.nq,
                              .nk = a.nk,
                              .qkv = a.qkv,
                              .z = a.z,
                              .temp = w.temp,
                              .position = batch.position,
                              .rope = place.rope});
  if (c.cca()) {
    const int64_t G = c.conv_groups(), d = c.head_dim, T = batch.tokens();
    const std::span<const int64_t> rows(a.group_rows.as<int64_t>(), static_cast<size_t>(G + 1));
    const Tensor dz = b.dz.reshaped({G * T, d}), pair = a.pair.reshaped({G * T, 2 * d});
    grouped_linear_backward_weight(
        ctx, {.dw = g.conv_grouped, .dbias = g.conv_grouped_b, .dy = dz, .x = pair, .rows = rows});
    grouped_linear_backward_input(ctx, {.dx = b.dpair.reshaped({G * T, 2 * d}),
                                        .dy = dz,
                                        .w = w.conv_grouped.backward,
                                        .rows = rows});
    cca_conv_backward(ctx, {.dqkv = b.dqkv,
                            .dw = g.conv_depthwise_w,
                            .db = g.conv_depthwise_b,
                            .dpair = b.dpair,
                            .qkv = a.qkv,
                            .w = w.conv_depthwise_w,
                            .segments = batch.segments,
                            .dhalo = dhalo.conv,
                            .halo = halo.conv,
                            .halo_row = halo.row});
  }
  if (shared) place.context->return_halo_gradient(b.dqkv);
  linear_backward_weight(ctx, {.dw = g.qkv, .dbias = {}, .dy = b.dqkv, .x = below.x});
  linear_backward_input(ctx, {.dx = b.dx, .dy = b.dqkv, .w = w.qkv.backward});
}

}  // namespace

void layer_backward(Context& ctx, const LayerBackward& l) {
  const auto& [place, w, g, batch, below, above, a, b] = l;
  const ModelConfig& c = place.config;
  const int64_t T = batch.tokens(), width = c.heads * c.head_dim;

  residual_norm_backward(ctx, {.dh = b.dh,
                               .dr = b.dr,
                               .dscale = g.merge_experts,
                               .dnorm = g.norm_next,
                               .dx = b.dx,
                               .dr_out = b.dr,
                               .r_out = above.r,
                               .rstd = above.rstd,
                               .h = a.h2,
                               .r = a.r1,
                               .scale = w.merge_experts,
                               .norm = w.norm_next});
  if (c.dense()) {
    dense_backward(ctx, w, g, a, b);
  } else {
    zero(ctx, b.dx2);
    combine_backward(ctx, {.dye = b.dye,
                           .dgate = b.dgate,
                           .dx = b.dx2,
                           .dh = b.dh,
                           .ye = a.ye,
                           .gate = a.gate,
                           .x = a.x2,
                           .row_of = a.row_of,
                           .skip_identity = c.skip_identity()});
    experts_backward(ctx, l);
    route_backward(ctx, l);
    add_into(ctx, b.dx2, b.dx);
  }
  residual_norm_backward(ctx, {.dh = b.dh,
                               .dr = b.dr,
                               .dscale = g.merge_attention,
                               .dnorm = g.norm_experts,
                               .dx = b.dx2,
                               .dr_out = b.dr,
                               .r_out = a.r1,
                               .rstd = a.rstd2,
                               .h = a.h1,
                               .r = below.r,
                               .scale = w.merge_attention,
                               .norm = w.norm_experts});
  linear_backward_weight(ctx, {.dw = g.o, .dbias = {}, .dy = b.dh, .x = a.o.reshaped({T, width})});
  linear_backward_input(ctx, {.dx = b.do_.reshaped({T, width}), .dy = b.dh, .w = w.o.backward});
  attend_backward(ctx, place, batch, a, b);
  project_backward(ctx, l);
}

}  // namespace moraine
