// One decoder layer, forward: one call for each operation, in the order of the model specification.
#include "model/layer_forward.h"

#include <cmath>

#include "base/clock.h"
#include "kernels/attention.h"
#include "kernels/cca_conv.h"
#include "kernels/expert_dispatch.h"
#include "kernels/gelu.h"
#include "kernels/host_copy.h"
#include "kernels/qk_norm_rope.h"
#include "kernels/router_choice.h"
#include "kernels/router_state.h"
#include "kernels/swiglu.h"
#include "kernels/value_shift.h"

namespace moraine {
namespace {

void show(const LayerPlace& place, ServedMatrix matrix, const Tensor& x,
          std::span<const int64_t> rows) {
  if (place.observer != nullptr) place.observer->reads(place.index, matrix, x, rows);
}

void show(const LayerPlace& place, ServedMatrix matrix, const Tensor& x) {
  const int64_t rows[2] = {0, x.dims[0]};
  show(place, matrix, x, rows);
}

// What stands before the batch's segments: in a cache, or on other ranks.
LayerHalo halo_before(const LayerPlace& place, const Batch& batch, const LayerActs& a,
                      const LayerMemory& memory) {
  if (memory.cache != nullptr) {
    const int64_t S = static_cast<int64_t>(batch.segments.size());
    const auto rows = [&](const Tensor& t) { return t.empty() ? t : t.rows(0, S); };
    return {
        .conv = rows(memory.cache->conv_halo), .value = rows(memory.cache->value_halo), .row = {}};
  }
  if (place.context != nullptr && place.config.cca()) {
    return place.context->fetch_halo(place.index, a.qkv);
  }
  return {};
}

// q, k, v in the compressed space (CCA, arXiv:2510.04476), or plain.
void project_forward(Context& ctx, const LayerForward& l) {
  const auto& [place, w, batch, below, above, a, scratch, memory] = l;
  const ModelConfig& c = place.config;
  const int64_t T = batch.tokens();
  show(place, ServedMatrix::kQkv, below.x);
  linear_forward(ctx, {.y = a.qkv, .x = below.x, .w = w.qkv.forward, .bias = {}});
  const LayerHalo halo = halo_before(place, batch, a, memory);
  if (c.cca()) {
    cca_conv_forward(ctx, {.pair = a.pair,
                           .qkv = a.qkv,
                           .halo = halo.conv,
                           .w = w.conv_depthwise_w,
                           .b = w.conv_depthwise_b,
                           .segments = batch.segments,
                           .halo_row = halo.row});
    const int64_t G = c.conv_groups(), d = c.head_dim;
    int64_t* rows = a.group_rows.as<int64_t>();
    for (int64_t g = 0; g <= G; ++g) rows[g] = g * T;
    grouped_linear_forward(ctx, {.y = a.z.reshaped({G * T, d}),
                                 .x = a.pair.reshaped({G * T, 2 * d}),
                                 .w = w.conv_grouped.forward,
                                 .bias = w.conv_grouped_b,
                                 .rows = {rows, static_cast<size_t>(G + 1)}});
  }
  qk_norm_rope_forward(ctx, {.q = a.q,
                             .k = a.k,
                             .nq = a.nq,
                             .nk = a.nk,
                             .qkv = a.qkv,
                             .z = a.z,
                             .temp = w.temp,
                             .position = batch.position,
                             .rope = place.rope});
  value_shift_forward(ctx, {.v = a.v,
                            .qkv = a.qkv,
                            .halo = halo.value,
                            .segments = batch.segments,
                            .delayed = c.cca(),
                            .halo_row = halo.row});
}

// Over the batch, a cache, or keys and values on other ranks.
void attend_forward(Context& ctx, const LayerPlace& place, const Batch& batch, LayerActs& a,
                    const LayerMemory& memory) {
  const ModelConfig& c = place.config;
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (memory.cache == nullptr && place.context != nullptr) {
    place.context->attention().forward(ctx, {.o = a.o,
                                             .lse = a.lse,
                                             .q = a.q,
                                             .k = a.k,
                                             .v = a.v,
                                             .window = c.window(place.index),
                                             .scale = scale});
    return;
  }
  Tensor k = a.k, v = a.v;
  if (memory.cache != nullptr) {
    append_to_cache(ctx, *memory.cache, a, batch.segments, memory.pages);
    k = memory.cache->k, v = memory.cache->v;
  }
  if (memory.shared != nullptr) {
    SharedCache& shared = *memory.shared;
    shared.attention.forward(ctx, shared.ranks,
                             {.o = a.o,
                              .lse = a.lse,
                              .q = a.q,
                              .k = k,
                              .v = v,
                              .segments = shared.segments,
                              .keys = shared.keys,
                              .scale = scale,
                              .pages = {memory.pages.page, memory.cache->share.block}});
    return;
  }
  attention_forward(ctx, {.o = a.o,
                          .lse = a.lse,
                          .q = a.q,
                          .k = k,
                          .v = v,
                          .segments = batch.segments,
                          .window = c.window(place.index),
                          .scale = scale,
                          .pages = memory.pages});
}

// Which expert each token goes to, and how much its answer counts.
void route_forward(Context& ctx, const LayerForward& l) {
  const auto& [place, w, batch, below, above, a, scratch, memory] = l;
  const ModelConfig& c = place.config;
  const float eps = static_cast<float>(c.norm_eps);
  Tensor router_in = a.x2;
  if (c.zaya_router()) {
    const Tensor s_prev = place.index > 0 ? below.s : Tensor();
    linear_forward(
        ctx,
        {.y = scratch.router_down, .x = a.x2, .w = w.router_down.forward, .bias = w.router_down_b});
    router_state_forward(ctx, {.s = above.s,
                               .x = a.router_x,
                               .rstd = a.router_rstd,
                               .y = scratch.router_down,
                               .s_prev = s_prev,
                               .gamma = w.router_gamma,
                               .norm = w.router_norm,
                               .eps = eps});
    linear_forward(
        ctx, {.y = a.fc1, .x = a.router_x, .w = w.router_fc1.forward, .bias = w.router_fc1_b});
    gelu_forward(ctx, {.y = a.fc1_act, .x = a.fc1});
    linear_forward(ctx,
                   {.y = a.fc2, .x = a.fc1_act, .w = w.router_fc2.forward, .bias = w.router_fc2_b});
    gelu_forward(ctx, {.y = a.fc2_act, .x = a.fc2});
    router_in = a.fc2_act;
  }
  linear_forward(ctx, {.y = scratch.logits, .x = router_in, .w = w.router_out.forward, .bias = {}});
  router_choice_forward(ctx, {.prob = a.prob,
                              .expert = a.expert,
                              .gate = a.gate,
                              .logits = scratch.logits,
                              .bias = w.balance,
                              .skip = c.skip_class()});
  if (place.observer != nullptr) {
    place.observer->route(place.index, a.expert);
    place.observer->chooses(place.index, a.expert);
  }
  Tensor expert = a.expert;
  if (place.exchange != nullptr)
    expert = place.exchange->positions(place.index, a.expert, scratch.placed);
  else if (place.gather != nullptr)
    expert = place.gather->split(ctx, place.index, a.expert, scratch.placed);
  dispatch_plan(ctx, {.rows = a.rows,
                      .choice_of = a.choice_of,
                      .row_of = a.row_of,
                      .load = a.load,
                      .expert = expert});
  if (place.exchange != nullptr) place.exchange->counts_by_expert(place.index, a.load);
}

struct ExpertMlpForward {
  Tensor y, gate_up, act;         // out
  Tensor x;                       // in
  std::span<const int64_t> rows;  // [El+1]
};

// The experts here, on rows grouped by expert.
void expert_mlp_forward(Context& ctx, const ExpertPacks& w, const ExpertMlpForward& m) {
  grouped_linear_forward(ctx,
                         {.y = m.gate_up, .x = m.x, .w = w.gate_up, .bias = {}, .rows = m.rows});
  swiglu_forward(ctx, {.y = m.act, .gate_up = m.gate_up, .rows = RowCount::last_of(m.rows)});
  grouped_linear_forward(ctx, {.y = m.y, .x = m.act, .w = w.down, .bias = {}, .rows = m.rows});
}

ExpertPacks packs_of(const LayerWeights& w) {
  return {.gate_up = w.gate_up.forward, .down = w.down.forward};
}

// The same rows are on every rank: each computes those of its experts and its guests. All answers.
Tensor gathered_mlp_forward(Context& ctx, const LayerPlace& place, const LayerWeights& w,
                            const LayerActs& a) {
  ExpertGather& gather = *place.gather;
  copy_out(ctx, a.rows_host, a.rows);
  const int64_t* rows = a.rows_host.as<int64_t>();
  const Tensor y = gather.place(a.ye);
  const auto compute = [&](const ExpertPacks& packs, int64_t group) {
    const int64_t end = group + packs.down.groups;
    std::vector<int64_t> held;  // rows of each group here, from the first one's
    for (int64_t g = group; g <= end; ++g) held.push_back(rows[g] - rows[group]);
    if (held.back() == 0) return;
    const auto part = [&](const Tensor& t) { return t.rows(rows[group], rows[end]); };
    expert_mlp_forward(ctx, packs,
                       {.y = part(y),
                        .gate_up = part(a.gate_up),
                        .act = part(a.act),
                        .x = part(a.xe),
                        .rows = held});
  };
  const double begin = now_seconds();
  const int64_t first = gather.group_begin(gather.comm().rank());
  compute(packs_of(w), first);
  if (place.serving_guests != nullptr)
    compute(place.serving_guests->packs(place.index),
            first + gather.expert_end() - gather.expert_begin());
  if (place.observer != nullptr) place.observer->computed(place.index, now_seconds() - begin);
  gather.computed(now_seconds() - begin);
  const OpTimer timer(ctx.profile, Span::kRanks, "ranks: answers to all");
  gather.gather(ctx, y, a.rows_host);
  return y;
}

// The same through the ranks that hold the experts, one sender of rows after another.
void exchanged_mlp_forward(Context& ctx, const LayerPlace& place, const LayerWeights& w,
                           LayerActs& a, const Scratch& scratch) {
  ExpertExchange& exchange = *place.exchange;
  {
    const OpTimer timer(ctx.profile, Span::kRanks, "ranks: rows to experts");
    copy_out(ctx, a.rows_host, a.rows);
    exchange.exchange_counts(place.index, a.rows_host, a.received);
    exchange.to_experts(ctx, {.out = a.x_in,
                              .in = a.xe,
                              .rows = a.rows_host,
                              .received = a.received,
                              .layer = place.index});
  }
  if (place.guests != nullptr) {
    const OpTimer timer(ctx.profile, Span::kRanks, "ranks: guests (wait)");
    place.guests->wait_weights(place.index);
  }
  const double begin = now_seconds();
  for (int64_t s = 0; s < exchange.senders(); ++s) {
    const SenderRows from = sender_rows(a.received, s);
    const auto part = [&](const Tensor& t) { return t.rows(from.begin, from.end); };
    expert_mlp_forward(ctx, packs_of(w),
                       {.y = part(scratch.y_out),
                        .gate_up = part(a.gate_up),
                        .act = part(a.act),
                        .x = part(a.x_in),
                        .rows = from.rows});
  }
  if (place.observer != nullptr) place.observer->computed(place.index, now_seconds() - begin);
  exchange.add_forward_seconds(now_seconds() - begin);
  const OpTimer timer(ctx.profile, Span::kRanks, "ranks: rows to tokens");
  exchange.to_tokens(ctx, {.out = a.ye,
                           .in = scratch.y_out,
                           .rows = a.rows_host,
                           .received = a.received,
                           .layer = place.index});
}

void experts_forward(Context& ctx, const LayerPlace& place, const LayerWeights& w, LayerActs& a,
                     const Scratch& scratch) {
  const ModelConfig& c = place.config;
  dispatch_forward(ctx, {.xe = a.xe, .x = a.x2, .choice_of = a.choice_of, .rows = a.rows});
  Tensor y = a.ye;
  if (place.exchange != nullptr) {
    exchanged_mlp_forward(ctx, place, w, a, scratch);
  } else if (place.gather != nullptr) {
    y = gathered_mlp_forward(ctx, place, w, a);
  } else {
    const std::span<const int64_t> rows(a.rows.as<int64_t>(), static_cast<size_t>(c.experts + 1));
    expert_mlp_forward(ctx, packs_of(w),
                       {.y = a.ye, .gate_up = a.gate_up, .act = a.act, .x = a.xe, .rows = rows});
    show(place, ServedMatrix::kGateUp, a.xe, rows);
    show(place, ServedMatrix::kDown, a.act, rows);
  }
  combine_forward(ctx, {.h = a.h2,
                        .ye = y,
                        .gate = a.gate,
                        .x = a.x2,
                        .row_of = a.row_of,
                        .skip_identity = c.skip_identity()});
}

void dense_forward(Context& ctx, const LayerPlace& place, const LayerWeights& w, LayerActs& a) {
  linear_forward(ctx, {.y = a.gate_up, .x = a.x2, .w = w.gate_up.forward, .bias = {}});
  swiglu_forward(ctx, {.y = a.act, .gate_up = a.gate_up, .rows = a.act.dims[0]});
  linear_forward(ctx, {.y = a.h2, .x = a.act, .w = w.down.forward, .bias = {}});
  show(place, ServedMatrix::kGateUp, a.x2);
  show(place, ServedMatrix::kDown, a.act);
}

}  // namespace

void layer_forward(Context& ctx, const LayerForward& l) {
  const auto& [place, w, batch, below, above, a, scratch, memory] = l;
  const ModelConfig& c = place.config;
  const float eps = static_cast<float>(c.norm_eps);
  const int64_t T = batch.tokens();

  project_forward(ctx, l);
  attend_forward(ctx, place, batch, a, memory);
  const Tensor heads = a.o.reshaped({T, c.heads * c.head_dim});
  show(place, ServedMatrix::kOutput, heads);
  linear_forward(ctx, {.y = a.h1, .x = heads, .w = w.o.forward, .bias = {}});
  residual_norm_forward(ctx, {.r_out = a.r1,
                              .x = a.x2,
                              .rstd = a.rstd2,
                              .h = a.h1,
                              .r = below.r,
                              .scale = w.merge_attention,
                              .norm = w.norm_experts,
                              .eps = eps});
  if (c.dense()) {
    dense_forward(ctx, place, w, a);
  } else {
    route_forward(ctx, l);
    experts_forward(ctx, place, w, a, scratch);
  }
  residual_norm_forward(ctx, {.r_out = above.r,
                              .x = above.x,
                              .rstd = above.rstd,
                              .h = a.h2,
                              .r = a.r1,
                              .scale = w.merge_experts,
                              .norm = w.norm_next,
                              .eps = eps});
}

}  // namespace moraine
