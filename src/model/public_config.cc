// PublicConfig: reads and writes the keys of both dialects.
#include "model/public_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"

namespace moraine {
namespace {

// Typed access with messages; `name` is the file.
class Keys {
 public:
  Keys(const Json& json, std::string name) : json_(json), name_(std::move(name)) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  int64_t integer(const char* key) const {
    const Json& value = get(key);
    if (value.is_number_integer()) return check(key, value.get<int64_t>());
    if (value.is_array()) {  // per-layer list: the first entry that is not 0 (or a letter)
      for (const Json& element : value) {
        if (element.is_number_integer() && element.get<int64_t>() != 0)
          return check(key, element.get<int64_t>());
      }
    }
    throw_error(Code::kInvalidArgument, "{}: {} = {}: wanted an integer", name_, key,
                json_text(value));
  }
  int64_t integer_or(const char* key, int64_t otherwise) const {
    return has(key) ? integer(key) : otherwise;
  }
  double number_or(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    const Json& value = get(key);
    if (!value.is_number())
      throw_error(Code::kInvalidArgument, "{}: {} = {}: wanted a number", name_, key,
                  json_text(value));
    return value.get<double>();
  }
  bool flag_or(const char* key, bool otherwise) const {
    return has(key) && json_[key].is_boolean() ? json_[key].get<bool>() : otherwise;
  }
  const Json& get(const char* key) const {
    if (!has(key)) throw_error(Code::kInvalidArgument, "{}: key {} is missing", name_, key);
    return json_[key];
  }
  // Stops unless the key is absent or holds `wanted`.
  void only(const char* key, const Json& wanted) const {
    if (!has(key) || json_[key] == wanted) return;
    throw_error(Code::kInvalidArgument, "{}: {} = {}: only {} is supported", name_, key,
                json_text(json_[key]), json_text(wanted));
  }
  // An id, or the first of a list of ids (several end tokens).
  int64_t id_or_none(const char* key) const {
    if (!has(key)) return -1;
    const Json& value = json_[key];
    if (value.is_array() && !value.empty() && value[0].is_number_integer())
      return value[0].get<int64_t>();
    return value.is_number_integer() ? value.get<int64_t>() : -1;
  }

 private:
  int64_t check(const char* key, int64_t value) const {
    if (value >= 0 && value <= (int64_t{1} << 31)) return value;
    throw_error(Code::kInvalidArgument, "{}: {} = {} is out of range", name_, key, value);
  }
  const Json& json_;
  std::string name_;
};

// What a message shows of a value, which may be long or hold anything.
std::string shown(const Json& value) {
  const std::string text = json_text(value);
  return text.size() <= 80 ? text : text.substr(0, 80) + "...";
}

// Null if there is none.
const Json& member(const Json& json, const char* key) {
  static const Json none;
  return json.is_object() && json.contains(key) ? json[key] : none;
}

// Why weights that another program has packed are not read; empty: they are (model/stored_weight.h). `how`: its
// quantization_config.
std::string unread(const Json& how) {
  const Json& method = member(how, "quant_method");
  if (method != "compressed-tensors") return shown(method.is_null() ? how : method);
  std::vector<const Json*> parts = {&how};
  for (const Json& group : member(how, "config_groups")) parts.push_back(&group);
  bool any = false;
  for (const Json* part : parts) {
    const Json& format = member(*part, "format");
    const Json& block = member(member(*part, "weights"), "block_structure");
    const bool read = format == "float-quantized" || format == "naive-quantized" ||
                      format == "mxfp4-pack-quantized";
    any = any || read;
    if (!read && !format.is_null() && format != "mixed-precision")
      return "compressed-tensors in the format " + shown(format);
    if (!block.is_null() && block != Json{128, 128})
      return "compressed-tensors with block_structure " + shown(block);
  }
  const Json& rotation = member(how, "transform_config");
  if (!rotation.is_null() && !rotation.empty()) return "compressed-tensors with a transform_config";
  return any ? "" : "compressed-tensors without a format";
}

void check_packing(const Keys& keys, const std::string& name) {
  for (const char* key : {"quantization_config", "quantization"}) {
    if (!keys.has(key)) continue;
    const std::string why = unread(keys.get(key));
    if (why.empty()) continue;
    throw_error(Code::kInvalidArgument,
                "{}: {} is {}: of weights packed by another program those of compressed-tensors "
                "are read that are float-quantized, naive-quantized or mxfp4-pack-quantized, in "
                "blocks of 128 x 128 if in any; take the model that it was made from, and pack "
                "that with `moraine quantize`. If the weights are plain after all, remove the key",
                name, key, why);
  }
}

void read_shared(const Keys& keys, ModelConfig& c) {
  c.vocab_size = keys.integer("vocab_size");
  c.hidden = keys.integer("hidden_size");
  c.max_positions = keys.integer_or("max_position_embeddings", 131072);
  c.bos_id = keys.id_or_none("bos_token_id");
  c.eos_id = keys.id_or_none("eos_token_id");
  c.pad_id = keys.id_or_none("pad_token_id");
  keys.only("cca_time0", 2);
  keys.only("cca_time1", 2);
  keys.only("attention_bias", false);
  keys.only("lm_head_bias", false);
  keys.only("tie_word_embeddings", true);
}

// {"hybrid": {...}, "hybrid_sliding": {...}}, or one flat object for all.
void read_native_rope(const Keys& keys, const std::string& name, ModelConfig& c) {
  if (!keys.has("rope_parameters")) {
    c.rope_theta = keys.number_or("rope_theta", 10000);
    c.rotary_fraction = keys.number_or("partial_rotary_factor", 0.5);
    return;
  }
  const Json& rope = keys.get("rope_parameters");
  const Json& full = rope.contains("hybrid") ? rope["hybrid"] : rope;
  const Keys full_keys(full, name + ": rope_parameters");
  full_keys.only("rope_type", "default");
  c.rope_theta = full_keys.number_or("rope_theta", 10000);
  c.rotary_fraction = full_keys.number_or("partial_rotary_factor", 0.5);
  if (!rope.contains("hybrid_sliding")) return;
  const Keys sliding(rope["hybrid_sliding"], name + ": rope_parameters.hybrid_sliding");
  sliding.only("rope_type", "default");
  sliding.only("partial_rotary_factor", c.rotary_fraction);
  c.sliding_rope_theta = sliding.number_or("rope_theta", 10000);
}

ModelConfig read_native(const Keys& keys, const std::string& name) {
  ModelConfig c;
  read_shared(keys, c);
  c.layers = keys.integer("num_hidden_layers");
  c.heads = keys.integer("num_attention_heads");
  c.kv_heads = keys.integer("num_key_value_heads");
  c.head_dim = keys.integer("head_dim");
  c.experts = keys.integer("num_experts");
  c.expert_hidden = keys.integer("moe_intermediate_size");
  c.router_hidden = keys.integer("router_hidden_size");
  c.norm_eps = keys.number_or("rms_norm_eps", 1e-5);
  c.skip = SkipKind::kZero;
  keys.only("num_experts_per_tok", 1);
  keys.only("hidden_act", "silu");
  read_native_rope(keys, name, c);
  if (keys.has("layer_types")) {
    const Json& types = keys.get("layer_types");
    if (!types.is_array() || static_cast<int64_t>(types.size()) != c.layers) {
      throw_error(Code::kInvalidArgument, "{}: layer_types wants {} entries, one a layer", name,
                  c.layers);
    }
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] == "hybrid_sliding") {
        c.sliding_layers.push_back(static_cast<int64_t>(i));
      } else if (types[i] != "hybrid") {
        throw_error(Code::kInvalidArgument,
                    "{}: layer_types[{}] = {}: known are \"hybrid\", \"hybrid_sliding\"", name, i,
                    json_text(types[i]));
      }
    }
    if (!c.sliding_layers.empty()) c.sliding_window = keys.integer("sliding_window");
  }
  return c;
}

ModelConfig read_legacy(const Keys& keys, const std::string& name) {
  ModelConfig c;
  read_shared(keys, c);
  const int64_t layers = keys.integer("num_hidden_layers");
  if (layers % 2 != 0)
    throw_error(Code::kInvalidArgument,
                "{}: num_hidden_layers = {}: alternating layers come in pairs", name, layers);
  c.layers = layers / 2;
  const bool lists = keys.has("zaya_layers");  // the first base release
  c.heads = lists ? keys.integer("cca_num_q_heads") : keys.integer("num_attention_heads");
  c.kv_heads = lists ? keys.integer("num_query_groups_list") : keys.integer("num_query_groups");
  c.head_dim = keys.has("head_dim") ? keys.integer("head_dim") : keys.integer("kv_channels");
  c.experts = lists ? keys.integer("zaya_layers") : keys.integer("num_experts");
  c.expert_hidden = keys.integer(lists ? "ffn_hidden_size_list" : "ffn_hidden_size") / 2;
  c.router_hidden = keys.integer("zaya_mlp_expansion");
  c.norm_eps = keys.number_or("norm_epsilon", 1e-5);
  c.rope_theta = keys.number_or("rope_theta", 10000);
  c.rotary_fraction = keys.number_or("partial_rotary_factor", 0.5);
  c.skip = keys.flag_or("zaya_use_mod", true) ? SkipKind::kIdentity : SkipKind::kNone;
  keys.only("moe_router_topk", 1);
  keys.only("zaya_use_eda", true);
  keys.only("scale_residual_merge", true);
  keys.only("clamp_temp", false);
  keys.only("add_bias_linear", false);
  keys.only("activation_func", "swiglu");
  keys.only("rope_scaling", nullptr);
  if (keys.has("sliding_window") && keys.has("swa_layers")) {
    // Legacy counts only the positions before.
    c.sliding_window = keys.integer("sliding_window") + 1;
    c.sliding_rope_theta = keys.number_or("swa_rotary_base", 10000);
    for (const Json& layer : keys.get("swa_layers")) {
      if (!layer.is_number_integer() || layer.get<int64_t>() % 2 != 0) {
        throw_error(Code::kInvalidArgument,
                    "{}: swa_layers holds {}: attention layers have even numbers", name,
                    json_text(layer));
      }
      c.sliding_layers.push_back(layer.get<int64_t>() / 2);
    }
  }
  return c;
}

Json write_native(const ModelConfig& c) {
  const Json rope = {{"partial_rotary_factor", c.rotary_fraction},
                     {"rope_theta", c.rope_theta},
                     {"rope_type", "default"}};
  Json types = Json::array(), parameters = {{"hybrid", rope}};
  for (int64_t i = 0; i < c.layers; ++i) types.push_back(c.slides(i) ? "hybrid_sliding" : "hybrid");
  if (c.sliding_window > 0) {
    parameters["hybrid_sliding"] = rope;
    parameters["hybrid_sliding"]["rope_theta"] = c.sliding_rope_theta;
  }
  return {{"hidden_act", "silu"},
          {"initializer_range", c.init_std},
          {"layer_types", types},
          {"moe_intermediate_size", c.expert_hidden},
          {"num_experts_per_tok", 1},
          {"num_hidden_layers", c.layers},
          {"num_key_value_heads", c.kv_heads},
          {"output_router_logits", false},
          {"rms_norm_eps", c.norm_eps},
          {"rope_parameters", parameters},
          {"router_hidden_size", c.router_hidden},
          {"sliding_window", c.sliding_window > 0 ? Json(c.sliding_window) : Json(nullptr)}};
}

Json write_legacy(const ModelConfig& c) {
  Json sliding = nullptr, layers = nullptr;
  if (c.sliding_window > 0) {
    sliding = c.sliding_window - 1;
    layers = Json::array();
    for (const int64_t layer : c.sliding_layers) layers.push_back(2 * layer);
  }
  return {{"cca", true},
          {"num_query_groups", c.kv_heads},
          {"num_key_value_heads", c.kv_heads},
          {"kv_channels", c.head_dim},
          {"ffn_hidden_size", 2 * c.expert_hidden},
          {"num_hidden_layers", 2 * c.layers},
          {"moe_router_topk", 1},
          {"zaya_mlp_expansion", c.router_hidden},
          {"zaya_use_mod", c.has_skip()},
          {"zaya_use_eda", true},
          {"zaya_high_prec", true},
          {"scale_residual_merge", true},
          {"residual_in_fp32", true},
          {"fused_add_norm", false},
          {"normalization", "RMSNorm"},
          {"norm_epsilon", c.norm_eps},
          {"activation_func", "swiglu"},
          {"gated_linear_unit", true},
          {"add_bias_linear", false},
          {"apply_rope_fusion", true},
          {"bias_activation_fusion", true},
          {"activation_func_fp8_input_store", false},
          {"clamp_temp", false},
          {"rope_theta", c.rope_theta},
          {"rope_scaling", nullptr},
          {"partial_rotary_factor", c.rotary_fraction},
          {"sliding_window", sliding},
          {"swa_layers", layers},
          {"swa_rotary_base", c.sliding_rope_theta},
          {"mamba_cache_dtype", "float32"}};
}

}  // namespace

PublicConfig read_public_config(const std::string& text, const std::string& name) {
  const Json json = parse_json(text, name);
  if (!json.is_object()) throw_error(Code::kCorrupt, "{}: wanted a JSON object", name);
  const Keys keys(json, name);
  keys.only("model_type", "zaya");
  check_packing(keys, name);
  const bool native = keys.has("router_hidden_size");
  if (!native && !keys.has("zaya_mlp_expansion")) {
    throw_error(Code::kInvalidArgument,
                "{}: neither router_hidden_size (native layout) nor zaya_mlp_expansion (legacy "
                "layout) is there: no ZAYA model",
                name);
  }
  if (keys.has("num_experts") && keys.integer("num_experts") == 0)
    throw_error(Code::kInvalidArgument, "{}: num_experts = 0: a ZAYA model has experts", name);
  PublicConfig result{.config = native ? read_native(keys, name) : read_legacy(keys, name),
                      .layout = native ? Layout::kNative : Layout::kLegacy};
  // The ranges of [model] hold here too.
  SettingsTable::parse("[model]\n" + print_fields(model_fields(result.config)), name)
      .table("model")
      .read(model_fields(result.config));
  check_model_config(result.config, name);
  return result;
}

std::string write_public_config(const ModelConfig& c, Layout layout, const std::string& dtype) {
  const auto id = [](int64_t value) { return value < 0 ? Json(nullptr) : Json(value); };
  Json json = {{"architectures", {"ZayaForCausalLM"}},
               {"model_type", "zaya"},
               {"vocab_size", c.vocab_size},
               {"hidden_size", c.hidden},
               {"head_dim", c.head_dim},
               {"num_attention_heads", c.heads},
               {"num_experts", c.experts},
               {"max_position_embeddings", c.max_positions},
               {"cca_time0", 2},
               {"cca_time1", 2},
               {"attention_bias", false},
               {"attention_dropout", 0.0},
               {"lm_head_bias", false},
               {"tie_word_embeddings", true},
               {"use_cache", true},
               {"bos_token_id", id(c.bos_id)},
               {"eos_token_id", id(c.eos_id)},
               {"pad_token_id", id(c.pad_id)},
               {"dtype", dtype == "bf16" ? "bfloat16" : "float32"}};
  json.update(layout == Layout::kNative ? write_native(c) : write_legacy(c));
  return json_text(json, 2) + "\n";
}

std::string not_exportable(const ModelConfig& c) {
  if (!c.cca()) return "attention = \"gqa\" (public layouts hold cca only)";
  if (c.dense()) return "experts = 0 (public layouts hold experts only)";
  if (!c.zaya_router()) return "router = \"linear\" (public layouts hold the zaya router only)";
  if (!c.scaled()) return "residual = \"plain\" (public layouts hold scaled residuals only)";
  if (c.experts_per_token != 1)
    return "experts_per_token = " + std::to_string(c.experts_per_token) +
           " (public layouts hold 1 only)";
  if (!c.has_skip()) return "skip = \"none\" (public layouts hold a skip class)";
  return "";
}

}  // namespace moraine
