// PublicConfig: the two public config.json dialects of ZAYA checkpoints, to and from ModelConfig.
//
//   native  "block" layout of Hugging Face transformers: num_hidden_layers counts blocks,
//           router_hidden_size
//   legacy  alternating layers of the first 8B release: num_hidden_layers counts both kinds,
//           zaya_mlp_expansion (the per-layer lists of the very first base release are read as well)
//
// Errors: kInvalidArgument or kNotFound with the key, what it holds and what is supported.
// Source: docs/model.md, layouts.
#pragma once

#include <string>

#include "base/json.h"
#include "model/config.h"

namespace moraine {

enum class Layout : uint8_t { kNative, kLegacy };

struct PublicConfig {
  ModelConfig config;
  Layout layout;
};

PublicConfig read_public_config(const std::string& text, const std::string& name);
std::string write_public_config(const ModelConfig& config, Layout layout, const std::string& dtype);

// Which of the model's choices no public layout can express; empty if all can.
std::string not_exportable(const ModelConfig& config);

}  // namespace moraine
