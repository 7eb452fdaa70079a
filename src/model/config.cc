// ModelConfig: the fields of [model], named shapes, and the rules that a shape must keep.
#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/nearest.h"
#include "kernels/limits.h"

namespace moraine {
namespace {

constexpr int64_t kExpertsInAll = int64_t{1} << 20;  // a plan lists the matrices of each: 0.6 GB

void apply_shape(ModelConfig& c, const std::string& where) {
  if (c.shape.empty()) return;
  if (c.shape == "zaya1-8b") {
    c.vocab_size = 262272, c.hidden = 2048, c.layers = 40, c.heads = 8, c.kv_heads = 2,
    c.head_dim = 128;
    c.experts = 16, c.expert_hidden = 2048, c.router_hidden = 256;
    c.rope_theta = 5e6;
    return;
  }
  if (c.shape == "zaya1-74b") {
    c.vocab_size = 262272, c.hidden = 4096, c.layers = 60, c.heads = 16, c.kv_heads = 2,
    c.head_dim = 128;
    c.experts = 24, c.expert_hidden = 4096, c.router_hidden = 256, c.sliding_window = 4097;
    for (int64_t i = 1; i < c.layers; i += 2) c.sliding_layers.push_back(i);
    return;
  }
  throw_error(Code::kInvalidArgument,
              "{}: unknown shape \"{}\": known are \"zaya1-8b\", \"zaya1-74b\"", where, c.shape);
}

}  // namespace

int64_t ModelConfig::rotary() const {
  return static_cast<int64_t>(std::llround(rotary_fraction * static_cast<double>(head_dim)));
}

bool ModelConfig::slides(int64_t layer) const {
  return sliding_window > 0 &&
         std::find(sliding_layers.begin(), sliding_layers.end(), layer) != sliding_layers.end();
}

Fields model_fields(ModelConfig& c) {
  constexpr double kWide = 1 << 20;
  return {
      {"shape", &c.shape, "",
       "Named preset (zaya1-8b, zaya1-74b) that sets the fields first; empty: none."},
      {"vocab_size", &c.vocab_size, "tokens", "Rows of the embedding; 0: the tokenizer's size.", 0,
       1 << 24},
      {"hidden", &c.hidden, "channels", "Model width D.", 1, kWide},
      {"layers", &c.layers, "", "Blocks, each attention and experts.", 1, 4096},
      {"heads", &c.heads, "", "Query heads H.", 1, 4096},
      {"kv_heads", &c.kv_heads, "", "Key-value heads K; divides heads.", 1, 4096},
      {"head_dim", &c.head_dim, "channels", "Width of a head.", 2, 1024},
      {"experts", &c.experts, "", "Experts per block E; 0: one dense MLP.", 0, 65536},
      {"expert_hidden", &c.expert_hidden, "channels",
       "Width F inside an expert (or the dense MLP).", 1, kWide},
      {"experts_per_token", &c.experts_per_token, "", "Experts that each token is sent to (top-k).",
       1, 64},
      {"router_hidden", &c.router_hidden, "channels", "Width R of the ZAYA1 router.", 1, kWide},
      choice_field("attention", &c.attention,
                   "Compressed Convolutional Attention, or plain grouped-query.", {"cca", "gqa"}),
      choice_field("router", &c.router,
                   "The ZAYA1 MLP router with depth averaging, or one linear layer.",
                   {"zaya", "linear"}),
      choice_field("residual", &c.residual,
                   "Learned scale and bias on both sides of each merge, or plain addition.",
                   {"scaled", "plain"}),
      choice_field("skip", &c.skip,
                   "The skip class: passes its input times its probability, passes zero (as "
                   "HF-native code), "
                   "or there is none.",
                   {"identity", "zero", "none"}),
      {"norm_eps", &c.norm_eps, "", "Epsilon of every RMSNorm.", 1e-12, 1},
      {"rotary_fraction", &c.rotary_fraction, "",
       "Share of a head's channels that rotate; the result must be even.", 0, 1},
      {"rope_theta", &c.rope_theta, "", "Base of the rotary angles.", 1, 1e12},
      {"sliding_window", &c.sliding_window, "positions",
       "What a sliding layer sees, its own position included; 0: none slides.", 0, 1 << 30},
      {"sliding_layers", &c.sliding_layers, "", "Layers that slide, counted from 0.", 0, 4096},
      {"sliding_rope_theta", &c.sliding_rope_theta, "",
       "Base of the rotary angles in sliding layers.", 1, 1e12},
      {"init_std", &c.init_std, "", "Standard deviation of the initial matrices.", 0, 10},
      {"max_positions", &c.max_positions, "positions",
       "Longest document the model is used with; no sequence in training is longer.", 1, 1 << 30},
      {"bos_id", &c.bos_id, "", "Token that begins a text; -1: none.", -1, 1 << 24},
      {"eos_id", &c.eos_id, "", "Token that ends a text; -1: none.", -1, 1 << 24},
      {"pad_id", &c.pad_id, "", "Token that pads; -1: none.", -1, 1 << 24},
  };
}

ModelConfig read_model_config(const SettingsTable& table) {
  ModelConfig config;
  table.read(model_fields(config));
  if (!config.shape.empty()) {
    const std::string shape = config.shape;
    config = ModelConfig();
    config.shape = shape;
    apply_shape(config, table.where("shape"));
    table.read(model_fields(config));  // what is written beside `shape` wins
  }
  check_model_config(config, table.where("shape"));
  return config;
}

void check_model_config(const ModelConfig& c, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    const size_t dot = where.rfind(".shape");
    throw_error(Code::kInvalidArgument, "{}: {}",
                dot == std::string::npos ? where : where.substr(0, dot), what);
  };
  if (c.heads % c.kv_heads != 0) {
    fail(fmt::format("heads = {} is not divisible by kv_heads = {}; allowed kv_heads: its divisors",
                     c.heads, c.kv_heads));
  }
  for (const auto& [name, id] : {std::pair("bos_id", c.bos_id), std::pair("eos_id", c.eos_id)}) {
    if (c.vocab_size > 0 && id >= c.vocab_size)
      fail(fmt::format("{} = {} is no token of vocab_size = {}", name, id, c.vocab_size));
  }
  if (c.rotary() % 2 != 0) {
    fail(
        fmt::format("rotary_fraction = {} of head_dim = {} rotates {} channels; the count must be "
                    "even (pairs rotate): "
                    "choose head_dim * rotary_fraction even",
                    c.rotary_fraction, c.head_dim, c.rotary()));
  }
  if (c.cca() && c.value_width() % 2 != 0) {
    fail(fmt::format(
        "kv_heads * head_dim = {} is odd; cca delays one half of the values: it must be even",
        c.value_width()));
  }
  if (!c.dense() && c.experts_per_token > c.experts) {
    fail(fmt::format("experts_per_token = {} is more than experts = {}", c.experts_per_token,
                     c.experts));
  }
  if (c.sliding_window == 0 && !c.sliding_layers.empty()) {
    fail("sliding_layers is given but sliding_window = 0; set the window, or remove the layers");
  }
  for (const int64_t layer : c.sliding_layers) {
    if (layer >= c.layers)
      fail(fmt::format("sliding_layers holds {}, but layers = {} (counted from 0)", layer,
                       c.layers));
  }
  // What a kernel's scratch holds (kernels/limits.h).
  const auto at_most = [&](const std::string& what, int64_t value, int64_t limit) {
    if (value > limit)
      fail(fmt::format("{}: {}; the limit of the kernels is {}", what, value, limit));
  };
  at_most("router outputs (experts, and the skip class)", c.classes(), kRouterClassesMax);
  at_most(c.scaled() ? "4 * hidden" : "hidden", (c.scaled() ? 4 : 1) * c.hidden, kSumColumnsMax);
  if (!c.dense() && c.zaya_router())
    at_most("2 * router_hidden", 2 * c.router_hidden, kSumColumnsMax);
  if (c.cca()) at_most("3 * (heads + kv_heads) * head_dim", 3 * c.conv_channels(), kSumColumnsMax);
  if (!heads_fit_scratch(c.conv_groups(), c.head_dim)) {
    fail(
        fmt::format("heads + kv_heads = {} of head_dim = {} are {} channels; the limit of the "
                    "kernels is about 200,000",
                    c.conv_groups(), c.head_dim, c.conv_channels()));
  }
  if (c.layers * c.experts > kExpertsInAll) {
    fail(fmt::format("layers = {} of experts = {} have {} experts; the limit is {} in all",
                     c.layers, c.experts, c.layers * c.experts, kExpertsInAll));
  }
  // One packed weight or activation row block must stay addressable and sane.
  const double parameters = static_cast<double>(c.layers) *
                            static_cast<double>(std::max<int64_t>(c.experts, 1)) * 3.0 *
                            static_cast<double>(c.hidden) * static_cast<double>(c.expert_hidden);
  if (parameters > 1e14)
    fail(fmt::format("the experts would have {:.1e} parameters; the limit is 1e14", parameters));
}

}  // namespace moraine
