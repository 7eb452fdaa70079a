// ModelConfig: the shape of a model, and which of the comparable blocks it is made of.
//
// The default is the ZAYA1 block; the alternatives are its baselines in the same engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/settings.h"

namespace moraine {

// Names in the config: those of the fields, in this order.
enum class AttentionKind : uint8_t { kCca, kGqa };
enum class RouterKind : uint8_t { kZaya, kLinear };
enum class ResidualKind : uint8_t { kScaled, kPlain };
enum class SkipKind : uint8_t { kIdentity, kZero, kNone };

struct ModelConfig {
  std::string shape;            // a named preset that sets the fields below first, or ""
  int64_t vocab_size = 0;       // V; 0: from the tokenizer
  int64_t hidden = 256;         // D
  int64_t layers = 6;           // L, each attention + experts
  int64_t heads = 4;            // H, query heads
  int64_t kv_heads = 2;         // K, key-value heads
  int64_t head_dim = 64;        // d
  int64_t experts = 8;          // E; 0: one dense MLP
  int64_t expert_hidden = 256;  // F
  int64_t experts_per_token = 1;
  int64_t router_hidden = 64;  // R
  AttentionKind attention = AttentionKind::kCca;
  RouterKind router = RouterKind::kZaya;
  ResidualKind residual = ResidualKind::kScaled;
  SkipKind skip = SkipKind::kIdentity;
  double norm_eps = 1e-5;
  double rotary_fraction = 0.5;
  double rope_theta = 10000;
  int64_t sliding_window = 0;  // positions a sliding layer sees, its own included; 0: none slides
  std::vector<int64_t> sliding_layers;
  double sliding_rope_theta = 10000;
  double init_std = 0.02;
  int64_t max_positions = 131072;
  int64_t bos_id = -1, eos_id = -1, pad_id = -1;

  bool cca() const { return attention == AttentionKind::kCca; }
  bool zaya_router() const { return router == RouterKind::kZaya; }
  bool scaled() const { return residual == ResidualKind::kScaled; }
  bool skip_identity() const { return skip == SkipKind::kIdentity; }
  bool dense() const { return experts == 0; }
  bool has_skip() const { return !dense() && skip != SkipKind::kNone; }
  int64_t classes() const { return experts + (has_skip() ? 1 : 0); }
  int32_t skip_class() const { return has_skip() ? static_cast<int32_t>(experts) : -1; }
  int64_t conv_groups() const { return heads + kv_heads; }            // G
  int64_t conv_channels() const { return conv_groups() * head_dim; }  // C
  int64_t value_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return conv_channels() + value_width(); }
  int64_t rotary() const;  // channels that rotate, even
  bool slides(int64_t layer) const;
  int64_t window(int64_t layer) const { return slides(layer) ? sliding_window : 0; }
};

Fields model_fields(ModelConfig& config);

// Reads [model], applies `shape` first. Errors: kInvalidArgument.
ModelConfig read_model_config(const SettingsTable& table);

// Impossible shapes: which key, what it is, what is allowed. `where` opens the message.
void check_model_config(const ModelConfig& config, const std::string& where);

}  // namespace moraine
