// Embedding, layers, head; then the same backwards.
#include "model/model.h"

#include <algorithm>

#include "kernels/check_tensor.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gpu/operations.h"
#include "kernels/gpu/runtime.h"
#include "kernels/host_copy.h"
#include "kernels/qk_norm_rope.h"
#include "model/layer_backward.h"
#include "model/operations.h"

namespace moraine {

ParameterTable held_parameters(const ModelConfig& config, const ExpertExchange* exchange,
                               const ExpertGather* gather) {
  if (gather != nullptr)
    return build_parameters(config, {.begin = gather->expert_begin(), .end = gather->expert_end()});
  if (exchange == nullptr) return build_parameters(config);
  const int64_t begin = exchange->expert_begin();
  return build_parameters(config, {.begin = begin, .end = begin + exchange->experts()});
}

Model::Model(Arena& arena, const ModelConfig& config, const ModelOptions& options,
             const Tensor& master)
    : config_(config),
      options_(options),
      table_(held_parameters(config, options.exchange, options.gather)),
      master_(master) {
  MR_CHECK(options.tokens > 0 && options.positions > 0);
  on_device_ = arena.on_device();
  if (on_device_) gpu::require_operations(operations_of(config_, options_), "a model");
  const DType X = options.compute, W = wide_dtype(X);
  if (options.packed != nullptr) {
    MR_CHECK(!options.training, "packed weights can not be trained");
    const auto weights_of = on_device_ ? take_packed_weights : map_weights;
    weights_ = weights_of(arena, config_, table_, *options.packed);
    MR_CHECK(weights_.head.forward.dtype == X, "packs for %s rows",
             dtype_name(weights_.head.forward.dtype));
  } else {
    check_tensor(master, "master", W, {table_.total_count});
    const int64_t slots = options.guests == nullptr ? 0 : options.exchange->slots();
    weights_ = make_weights(arena, config_, table_, master,
                            {.compute = X, .training = options.training, .guests = slots});
  }
  if (options.guests != nullptr) add_guests(arena);
  for (const LayerWeights& w : weights_.layers)
    if (options.serving_guests != nullptr)
      options.serving_guests->add_layer(arena,
                                        {.gate_up = w.gate_up.forward, .down = w.down.forward});
  senders_ = options.exchange == nullptr ? 1 : options.exchange->senders();
  acts_ = make_activations(arena, config_,
                           {.compute = X,
                            .tokens = options.tokens,
                            .senders = senders_,
                            .guests = options.guests == nullptr ? 0 : options.exchange->slots(),
                            .groups = options.gather == nullptr ? 0 : options.gather->groups(),
                            .training = options.training,
                            .recompute = options.recompute});
  if (options.cache_ranks != nullptr) {
    Communicator& ranks = *options.cache_ranks;
    shared_cache_.emplace(SharedCache{
        ranks, TreeAttention(arena, ranks.size(), options.tokens, config.heads, config.head_dim)});
  }
  head_ = make_head_scratch(arena, config_.vocab_size, X, options.training);
  if (options.coarse_head && can_be_coarse(weights_.head.forward))
    coarse_head_ = take_coarse(arena, "head.coarse", weights_.head.forward);
  losses_ = losses_host_ = arena.take("head.losses", "scratch", W, {options.tokens});
  loads_host_ = acts_.loads;
  if (on_device_) take_host_side(arena);
  const int64_t P = options.positions, pairs = config_.rotary() / 2;
  rope_full_ = arena.take("rope.full", "scratch", W, {P, pairs, 2});
  if (config_.sliding_window > 0)
    rope_sliding_ = arena.take("rope.sliding", "scratch", W, {P, pairs, 2});
}

// What a device's model has for the host to write and to read.
void Model::take_host_side(Arena& arena) {
  const DType W = wide_dtype(options_.compute);
  device_batch_ = DeviceBatch(arena, options_.tokens,
                              {.vocabulary = config_.vocab_size, .positions = options_.positions});
  losses_host_ = arena.take_host("head.losses_host", "scratch", W, {options_.tokens});
  lse_ = arena.take("head.lse", "scratch", DType::kF64, {kHeadRows});
  if (options_.training && !config_.dense())
    loads_host_ = arena.take_host("dispatch_loads_host", "activations", DType::kI64,
                                  {config_.layers, acts_.loads.dims[1]});
  const int64_t rows = options_.tokens * config_.experts_per_token;
  if (options_.exchange != nullptr)
    options_.exchange->stage(arena, options_.compute, rows, config_.hidden);
  if (options_.gather != nullptr)
    options_.gather->stage(arena, options_.compute, rows, config_.hidden);
  logits_host_ = arena.take_host("head.logits_host", "scratch", W, {kHeadRows, config_.vocab_size});
}

void Model::add_guests(Arena& arena) {
  MR_CHECK(options_.packed == nullptr && options_.exchange != nullptr);
  for (const LayerWeights& w : weights_.layers) {
    std::vector<PackedMatrix> packs = {w.gate_up.forward, w.down.forward};
    if (options_.training) packs.insert(packs.end(), {w.gate_up.backward, w.down.backward});
    options_.guests->add_layer(arena, std::move(packs));
  }
}

// What the guests of a layer add, and where it goes at the end of a slot.
void Model::view_guests(int64_t layer, LayerGradients& g) const {
  const ModelConfig& c = config_;
  const int64_t C = options_.exchange->slots(), D = c.hidden, F = c.expert_hidden;
  for (int64_t s = 0; s < senders_; ++s) {
    g.guests.push_back({.gate_up = options_.guests->gradient(layer, s, 0).reshaped({C, 2 * F, D}),
                        .down = options_.guests->gradient(layer, s, 1).reshaped({C, D, F})});
  }
}

void Model::return_guests(int64_t layer, const LayerGradients& g) {
  std::vector<Tensor> home;
  for (const ExpertGradients& of : g.experts) home.insert(home.end(), {of.gate_up, of.down});
  options_.guests->return_gradients(layer, std::move(home));
}

void Model::refresh(Context& ctx) {
  if (options_.guests != nullptr) options_.guests->wait();
  if (options_.packed == nullptr) {
    refresh_weights(ctx, config_, table_, master_, weights_);
  } else if (on_device_) {
    copy_packed_weights(ctx, config_, table_, *options_.packed, weights_);
  }
  if (!coarse_head_.empty()) make_coarse(ctx, weights_.head.forward, coarse_head_);
  if (options_.guests != nullptr) options_.guests->send_weights();
  if (theta_ == 0) set_rope_theta(ctx, config_.rope_theta, config_.sliding_rope_theta);
}

void Model::set_rope_theta(Context& ctx, double theta, double sliding_theta) {
  if (theta != theta_) rope_table(ctx, {.table = rope_full_, .theta = theta});
  if (sliding_theta != sliding_theta_ && config_.sliding_window > 0) {
    rope_table(ctx, {.table = rope_sliding_, .theta = sliding_theta});
  }
  theta_ = theta;
  sliding_theta_ = sliding_theta;
}

LayerPlace Model::place(int64_t layer) const {
  const bool shared = options_.context != nullptr && options_.context->active();
  return {.config = config_,
          .index = layer,
          .rope = config_.slides(layer) ? rope_sliding_ : rope_full_,
          .exchange = options_.exchange,
          .guests = options_.guests,
          .gather = options_.gather,
          .serving_guests = options_.serving_guests,
          .context = shared ? options_.context : nullptr,
          .observer = observer_};
}

LayerMemory Model::memory(int64_t layer, Cache& cache, std::span<const int32_t> pages) {
  LayerCache& of = cache.layers[static_cast<size_t>(layer)];
  return {.cache = &of,
          .pages = {pages, cache.page_rows},
          .shared = of.share.members > 1 ? &*shared_cache_ : nullptr};
}

// The same for all layers that share.
void Model::see_held_keys(const Cache& cache, Segments segments) {
  shared_cache_->segments.clear();
  shared_cache_->keys.clear();
  const auto layer = std::find_if(cache.layers.begin(), cache.layers.end(),
                                  [](const LayerCache& l) { return l.share.members > 1; });
  if (layer == cache.layers.end()) return;
  MR_CHECK(layer->share.members == shared_cache_->ranks.size(), "%ld members",
           long(layer->share.members));
  for (const Segment& s : segments)
    add_held_part(layer->share, s, shared_cache_->segments, shared_cache_->keys);
}

void Model::embed(Context& ctx, const Batch& batch, const Activations& acts) {
  if (options_.packed == nullptr) {
    embedding_forward(ctx, {.x = acts.embedded, .table = weights_.embedding, .token = batch.token});
  } else {
    embedding_packed_forward(
        ctx, {.x = acts.embedded, .table = weights_.token_rows, .token = batch.token});
  }
  const Boundary& first = acts.below(0);
  residual_norm_forward(ctx, {.r_out = first.r,
                              .x = first.x,
                              .rstd = first.rstd,
                              .h = acts.embedded,
                              .r = {},
                              .scale = weights_.merge_input,
                              .norm = weights_.norm_first,
                              .eps = static_cast<float>(config_.norm_eps)});
}

void Model::run_layer(Context& ctx, int64_t i, const Batch& batch, Activations& acts,
                      const LayerMemory& memory) {
  if (memory.cache != nullptr) gather_state(ctx, *memory.cache, batch.segments, memory.pages);
  layer_forward(ctx, {.place = place(i),
                      .w = weights_.layers[static_cast<size_t>(i)],
                      .batch = batch,
                      .below = acts.below(i),
                      .above = acts.above(i),
                      .a = acts.acts(i),
                      .scratch = acts.scratch,
                      .memory = memory});
}

void Model::observe(ForwardObserver* observer) {
  observer_ = observer;
  host_observer_.reset();
  if (!on_device_ || observer == nullptr) return;
  host_observer_ = std::make_unique<HostObserver>(*observer);
  observer_ = host_observer_.get();
}

Tensor Model::forward(Context& ctx, const Batch& batch, Cache* cache,
                      std::span<const int32_t> pages) {
  if (on_device_) return pass(ctx, device_batch_.put(ctx, batch), cache, pages);
  return pass(ctx, batch, cache, pages);
}

Tensor Model::pass(Context& ctx, const Batch& batch, Cache* cache, std::span<const int32_t> pages) {
  if (host_observer_ != nullptr) host_observer_->begin_pass(ctx);
  Activations acts = first_rows(acts_, config_, batch.tokens());
  embed(ctx, batch, acts);
  if (shared_cache_ && cache != nullptr) see_held_keys(*cache, batch.segments);
  for (int64_t i = 0; i < config_.layers; ++i)
    run_layer(ctx, i, batch, acts, cache == nullptr ? LayerMemory() : memory(i, *cache, pages));
  if (options_.gather != nullptr) options_.gather->settle();
  if (options_.serving_placer != nullptr) options_.serving_placer->end_step();
  const Tensor x = acts.above(config_.layers - 1).x;
  if (observer_ != nullptr) {
    const int64_t rows[2] = {0, x.dims[0]};
    observer_->reads(-1, ServedMatrix::kHead, x, rows);
  }
  return x;
}

double Model::sum_losses(
    int64_t T) const {  // rows in order: one row's place does not depend on the batch
  double sum = 0;
  for (int64_t t = 0; t < T; ++t) {
    sum += losses_host_.dtype == DType::kF64 ? losses_host_.as<double>()[t]
                                             : static_cast<double>(losses_host_.as<float>()[t]);
  }
  return sum;
}

double Model::loss(Context& ctx, const Batch& batch, const Tensor& target, Tensor* losses) {
  const int64_t T = batch.tokens();
  const Tensor x = forward(ctx, batch);
  head_loss(ctx, weights_.head, head_,
            {.loss = losses_.rows(0, T),
             .dx = {},
             .dembedding = {},
             .x = x,
             .target = device_batch_.put_target(ctx, target)});
  copy_out(ctx, losses_host_.rows(0, T), losses_.rows(0, T));
  if (losses != nullptr) *losses = losses_host_.rows(0, T);
  return sum_losses(T);
}

Tensor Model::logits(Context& ctx, const Tensor& hidden) {
  const Tensor there = head_logits(ctx, weights_.head, head_, hidden);
  if (!on_device_) return there;
  const Tensor host = logits_host_.rows(0, there.dims[0]);
  copy_out(ctx, host, there);
  return host;
}

void Model::log_sums(Context& ctx, const Tensor& lse) {
  MR_CHECK(on_device_);
  const int64_t n = lse.dims[0];
  std::vector<int32_t> none(static_cast<size_t>(n), -1);
  const Tensor target = make_tensor(none.data(), DType::kI32, {n});
  cross_entropy(ctx, {.loss = losses_.rows(0, n),
                      .dlogits = {},
                      .logits = head_.logits.rows(0, n),
                      .target = device_batch_.put_target(ctx, target),
                      .lse = lse_.rows(0, n)});
  copy_out(ctx, lse, lse_.rows(0, n));
}

// Integers: in whatever order.
void Model::add_loads(Context& ctx, const Activations& acts, const Tensor& load) {
  if (load.empty()) return;
  copy_out(ctx, loads_host_, acts.loads);
  const int64_t classes = config_.classes(), groups = loads_host_.dims[1];
  for (int64_t i = 0; i < config_.layers; ++i) {
    for (int64_t e = 0; e < classes; ++e)
      load.as<int64_t>()[i * classes + e] += loads_host_.as<int64_t>()[i * groups + e];
  }
}

double Model::loss_and_gradients(Context& ctx, const Batch& given, const Tensor& target,
                                 const GradientSink& sink, const Tensor& load) {
  MR_CHECK(options_.training);
  const Batch batch = device_batch_.put(ctx, given);
  const int64_t T = batch.tokens(), L = config_.layers;
  Activations acts = first_rows(acts_, config_, T);
  ModelGradients g = view_gradients(config_, table_, sink.sum, senders_);
  Tensor x;
  {
    const OpTimer timer(ctx.profile, Span::kPhase, "forward");
    x = pass(ctx, batch, nullptr, {});
  }
  const OpTimer timer(ctx.profile, Span::kPhase, "backward");
  const BackwardScratch& b = acts.backward;
  head_loss(ctx, weights_.head, head_,
            {.loss = losses_.rows(0, T),
             .dx = b.dx,
             .dembedding = g.embedding,
             .x = x,
             .target = device_batch_.put_target(ctx, target)});

  zero(ctx, b.dr);
  for (int64_t i = L - 1; i >= 0; --i) {
    if (acts.recompute && i < L - 1) {
      const OpTimer again(ctx.profile, Span::kPhase, "recompute");
      run_layer(ctx, i, batch, acts, {});
    }
    const LayerActs& a = acts.acts(i);
    LayerGradients& of = g.layers[static_cast<size_t>(i)];
    if (options_.guests != nullptr) view_guests(i, of);
    layer_backward(ctx, {.place = place(i),
                         .w = weights_.layers[static_cast<size_t>(i)],
                         .g = of,
                         .batch = batch,
                         .below = acts.below(i),
                         .above = acts.above(i),
                         .a = a,
                         .b = b});
    if (options_.guests != nullptr && sink.ends_slot) return_guests(i, of);
    if (sink.layer_done) sink.layer_done(i);
  }
  const Boundary& first = acts.below(0);
  residual_norm_backward(ctx, {.dh = b.dh,
                               .dr = {},
                               .dscale = g.merge_input,
                               .dnorm = g.norm_first,
                               .dx = b.dx,
                               .dr_out = b.dr,
                               .r_out = first.r,
                               .rstd = first.rstd,
                               .h = acts.embedded,
                               .r = {},
                               .scale = weights_.merge_input,
                               .norm = weights_.norm_first});
  embedding_backward(ctx, {.dtable = g.embedding, .dx = b.dh, .token = batch.token});
  add_loads(ctx, acts, load);
  copy_out(ctx, losses_host_.rows(0, T), losses_.rows(0, T));
  return sum_losses(T);
}

}  // namespace moraine
