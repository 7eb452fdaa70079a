// WideModel: a model of initial weights with far more words than a head's panel has, for tests of heads in two stages.
#pragma once

#include <memory>

#include "kernels/context.h"
#include "model/cache.h"
#include "model/model.h"

namespace moraine::testing {

struct WideModel {
  WideModel(DType compute, bool coarse_head, int threads = 2) : pool(threads) {
    config.vocab_size = 5003, config.hidden = 248, config.layers = 2, config.heads = 4;
    config.kv_heads = 2, config.head_dim = 8, config.experts = 3, config.expert_hidden = 24;
    config.router_hidden = 12, config.init_std = 0.1, config.max_positions = 256;
    const ParameterTable table = build_parameters(config);
    master = arena.take("weights.master", "weights", DType::kF32, {table.total_count});
    embedding = view(*table.find("model.embed_tokens.weight"), master);
    initialize_parameters(table, config, 7, master);
    ctx = make_context(Backend::kCpu, pool, arena);
    model = std::make_unique<Model>(
        arena, config,
        ModelOptions{
            .compute = compute, .tokens = 64, .positions = 128, .coarse_head = coarse_head},
        master);
    cache = make_cache(arena, config, compute, {.pages = 64, .segments = 16, .page_rows = 16});
    model->refresh(ctx);
  }

  ModelConfig config;
  Pool pool;
  Arena arena{Arena::Mode::kReal};
  Context ctx;
  Tensor master, embedding;  // of which the head is a copy: refresh after a change
  std::unique_ptr<Model> model;
  Cache cache;
};

}  // namespace moraine::testing
