// PublicLayout: the mapping of names, and copying in both directions.
#include "model/public_layout.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors/writer.h"
#include "model/model_place.h"
#include "model/stored_weight.h"

namespace moraine {
namespace {

constexpr int64_t kBesideWeights = int64_t{1} << 20;  // of a tokenizer, headers and an index

struct Rename {
  const char* native;
  const char* legacy;
};

// Inside a block: attention parts live in legacy layer 2i, the rest in 2i + 1.
constexpr Rename kAttention[] = {
    {"input_layernorm.weight", "input_norm.weight"},
    {"self_attn.qkv_proj.q_proj.weight", "self_attn.qkv.linear_q.weight"},
    {"self_attn.qkv_proj.k_proj.weight", "self_attn.qkv.linear_k.weight"},
    {"self_attn.qkv_proj.v_proj_current.weight", "self_attn.qkv.val_proj1.weight"},
    {"self_attn.qkv_proj.v_proj_delayed.weight", "self_attn.qkv.val_proj2.weight"},
    {"self_attn.qkv_proj.conv_qk_depthwise.weight", "self_attn.qkv.conv_qk.0.weight"},
    {"self_attn.qkv_proj.conv_qk_depthwise.bias", "self_attn.qkv.conv_qk.0.bias"},
    {"self_attn.qkv_proj.conv_qk_grouped.weight", "self_attn.qkv.conv_qk.1.weight"},
    {"self_attn.qkv_proj.conv_qk_grouped.bias", "self_attn.qkv.conv_qk.1.bias"},
    {"self_attn.qk_norm.temp", "self_attn.qkv.temp"},
    {"self_attn.o_proj.weight", "self_attn.o_proj.weight"},
};
constexpr Rename kExperts[] = {
    {"post_attention_layernorm.weight", "input_norm.weight"},
    {"mlp.gate.down_proj.weight", "zaya_block.router.down_proj.weight"},
    {"mlp.gate.down_proj.bias", "zaya_block.router.down_proj.bias"},
    {"mlp.gate.router_states_scale", "zaya_block.router.router_states_scale"},
    {"mlp.gate.balancing_biases", "zaya_block.router.balancing_biases"},
    {"mlp.gate.router_mlp.norm.weight", "zaya_block.router.rmsnorm_eda.weight"},
    {"mlp.gate.router_mlp.fc1.weight", "zaya_block.router.router_mlp.0.weight"},
    {"mlp.gate.router_mlp.fc1.bias", "zaya_block.router.router_mlp.0.bias"},
    {"mlp.gate.router_mlp.fc2.weight", "zaya_block.router.router_mlp.2.weight"},
    {"mlp.gate.router_mlp.fc2.bias", "zaya_block.router.router_mlp.2.bias"},
    {"mlp.gate.router_mlp.out_proj.weight", "zaya_block.router.router_mlp.4.weight"},
};

std::string legacy_layer(int64_t i) { return "model.layers." + std::to_string(i) + "."; }

// "post_mlp_residual_scale.residual_bias" -> "residual_bias" if the prefix fits, else "".
std::string after(const std::string& name, const std::string& prefix) {
  return name.compare(0, prefix.size(), prefix) == 0 ? name.substr(prefix.size()) : "";
}

std::vector<std::string> legacy_block_names(const ModelConfig& c, int64_t block,
                                            const std::string& part) {
  for (const Rename& r : kAttention) {
    if (part == r.native) return {legacy_layer(2 * block) + r.legacy};
  }
  for (const Rename& r : kExperts) {
    if (part == r.native) return {legacy_layer(2 * block + 1) + r.legacy};
  }
  if (const std::string v = after(part, "post_attention_residual_scale."); !v.empty()) {
    return {legacy_layer(2 * block + 1) + "res_scale." + v};
  }
  if (const std::string v = after(part, "post_mlp_residual_scale."); !v.empty()) {
    return {block + 1 < c.layers ? legacy_layer(2 * block + 2) + "res_scale." + v
                                 : "model.res_scale." + v};
  }
  const char* fc = part == "mlp.experts.gate_up_proj" ? "linear_fc1"
                   : part == "mlp.experts.down_proj"  ? "linear_fc2"
                                                      : nullptr;
  MR_CHECK(fc != nullptr, "%s", part.c_str());
  std::vector<std::string> names;
  for (int64_t e = 0; e < c.experts; ++e) {
    names.push_back(legacy_layer(2 * block + 1) + "zaya_block.experts.local_experts." +
                    std::to_string(e) + "." + fc + ".weight");
  }
  return names;
}

// Of each tensor of a parameter, whichever experts this rank holds.
std::vector<int64_t> stored_shape(const Parameter& p, Layout layout) {
  std::vector<int64_t> dims = p.global_dims();
  if (layout == Layout::kLegacy && p.kind == Parameter::Kind::kExperts) dims.erase(dims.begin());
  return dims;
}

bool same_values(const StoredWeight& a, const StoredWeight& b, int64_t count) {
  constexpr int64_t kBlock = int64_t{1} << 20;
  std::vector<float> left(static_cast<size_t>(std::min(count, kBlock))), right(left.size());
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    read_stored_weight(a, begin, n, left.data());
    read_stored_weight(b, begin, n, right.data());
    if (std::memcmp(left.data(), right.data(), static_cast<size_t>(n) * sizeof(float)) != 0)
      return false;
  }
  return true;
}

// The head if the files have one: it has to be the embedding.
std::optional<StoredWeight> find_head(const SafetensorsSet& set, const ModelConfig& c) {
  const std::vector<const SafetensorsEntry*>& all = set.entries();
  const bool any = std::any_of(all.begin(), all.end(), [](const SafetensorsEntry* entry) {
    return entry->name.starts_with("lm_head.");
  });
  if (!any) return std::nullopt;
  const std::vector<int64_t> dims = {c.vocab_size, c.hidden};
  const StoredWeight head = find_stored_weight(set, "lm_head.weight", dims);
  if (same_values(head, find_stored_weight(set, "model.embed_tokens.weight", dims),
                  c.vocab_size * c.hidden))
    return head;
  throw_error(
      Code::kInvalidArgument,
      "{}: lm_head.weight differs from model.embed_tokens.weight; only tied heads are supported",
      head.values->file);
}

void check_all_used(const SafetensorsSet& set, const std::vector<StoredWeight>& weights,
                    Layout layout) {
  std::vector<std::string_view> used;
  for (const StoredWeight& w : weights) {
    for (const SafetensorsEntry* entry : {w.values, w.scales, w.input_scale}) {
      if (entry != nullptr) used.push_back(entry->name);
    }
  }
  std::sort(used.begin(), used.end());
  for (const SafetensorsEntry* entry : set.entries()) {
    if (std::binary_search(used.begin(), used.end(), std::string_view(entry->name))) continue;
    throw_error(Code::kInvalidArgument,
                "{}: tensor {} does not belong to a {} ZAYA model with this config.json, or is a "
                "weight once more",
                entry->file, entry->name, layout == Layout::kNative ? "native" : "legacy");
  }
}

struct Slice {
  std::string name;
  const Parameter* parameter;
  Tensor tensor;  // f32, in the master buffer
  DType dtype;    // as written
};

std::vector<Slice> slices_of(const ModelConfig& c, const ParameterTable& table,
                             const Tensor& master, const ExportOptions& options) {
  std::vector<Slice> slices;
  for (const Parameter& p : table.all) {
    const std::vector<std::string> names = stored_names(c, p, options.layout);
    const Tensor whole = view(p, master);
    for (size_t i = 0; i < names.size(); ++i) {
      Tensor t = whole;
      if (names.size() > 1) {
        t = whole.rows(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
        t = t.reshaped({p.dims[1], p.dims[2]});
      }
      slices.push_back(
          {names[i], &p, t, p.kind == Parameter::Kind::kBalance ? DType::kF32 : options.dtype});
    }
  }
  return slices;
}

void append_slice(SafetensorsWriter& writer, const Slice& slice) {
  if (slice.dtype == DType::kF32) {
    writer.append(slice.tensor.data, slice.tensor.bytes());
    return;
  }
  const float* values = slice.tensor.as<float>();
  std::vector<BF16> block;
  constexpr int64_t kBlock = int64_t{1} << 20;
  for (int64_t begin = 0; begin < slice.tensor.count(); begin += kBlock) {
    const int64_t end = std::min(slice.tensor.count(), begin + kBlock);
    block.clear();
    for (int64_t i = begin; i < end; ++i) block.push_back(to_bf16(values[i]));
    writer.append(block.data(), (end - begin) * 2);
  }
}

int64_t slice_bytes(const Slice& s) { return s.tensor.count() * dtype_bytes(s.dtype); }

// `written` hears of each slice.
void write_file(FileSystem& fs, const std::string& path, const std::vector<Slice>& slices,
                const std::function<void(const Slice&)>& written) {
  std::vector<SafetensorsSpec> specs;
  for (const Slice& s : slices) {
    specs.push_back(
        {s.name, s.dtype, std::vector<int64_t>(s.tensor.dims, s.tensor.dims + s.tensor.rank)});
  }
  std::vector<SafetensorsSpec> ordered;
  const std::vector<size_t> order = aligned_order(specs);
  for (const size_t i : order) ordered.push_back(specs[i]);
  SafetensorsWriter writer(fs, path, ordered);
  for (const size_t i : order) {
    append_slice(writer, slices[i]);
    written(slices[i]);
  }
  writer.finish();
}

// What goes into which file, in the order of the parameters.
struct Shards {
  std::vector<std::vector<Slice>> files = std::vector<std::vector<Slice>>(1);
  int64_t bytes = 0;  // of all

  std::string name(size_t i) const {
    return files.size() == 1 ? "model.safetensors"
                             : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  }
};

Shards divide(const std::vector<Slice>& slices, int64_t most) {
  Shards shards;
  int64_t bytes = 0;
  for (const Slice& slice : slices) {
    const int64_t size = slice_bytes(slice);
    if (bytes > 0 && bytes + size > most) {
      shards.files.emplace_back();
      bytes = 0;
    }
    shards.files.back().push_back(slice);
    bytes += size;
    shards.bytes += size;
  }
  return shards;
}

void write_shards(FileSystem& fs, const std::string& folder, const Shards& shards,
                  const std::function<void(int64_t done, int64_t total)>& progress) {
  Json map = Json::object();
  int64_t done = 0;
  const auto written = [&](const Slice& slice) {
    done += slice_bytes(slice);
    if (progress) progress(done, shards.bytes);
  };
  for (size_t i = 0; i < shards.files.size(); ++i) {
    const std::string name = shards.name(i);
    write_file(fs, join_path(folder, name), shards.files[i], written);
    for (const Slice& s : shards.files[i]) map[s.name] = name;
  }
  if (shards.files.size() == 1) return;
  const Json index = {{"metadata", {{"total_size", shards.bytes}}}, {"weight_map", map}};
  fs.write_atomic(join_path(folder, "model.safetensors.index.json"), json_text(index, 2) + "\n");
}

}  // namespace

std::vector<std::string> stored_names(const ModelConfig& c, const Parameter& p, Layout layout) {
  if (layout == Layout::kNative) return {p.name};
  if (p.name == "model.norm.weight") return {"model.final_norm.weight"};
  if (const std::string v = after(p.name, "model.input_"); !v.empty())
    return {"model.layers.0.res_scale." + v};
  const std::string rest = after(p.name, "model.layers.");
  if (rest.empty()) return {p.name};  // the embedding
  const size_t dot = rest.find('.');
  return legacy_block_names(c, std::stoll(rest.substr(0, dot)), rest.substr(dot + 1));
}

void check_public_weights(const SafetensorsSet& set, const ModelConfig& c, Layout layout) {
  const ParameterTable table = build_parameters(c);
  std::vector<StoredWeight> weights;
  for (const Parameter& p : table.all) {
    for (const std::string& name : stored_names(c, p, layout))
      weights.push_back(find_stored_weight(set, name, stored_shape(p, layout)));
  }
  if (const std::optional<StoredWeight> head = find_head(set, c)) weights.push_back(*head);
  check_all_used(set, weights, layout);
}

void read_public_elements(const PublicWeights& w, const Parameter& p, int64_t begin,
                          const Tensor& out) {
  const std::vector<std::string> names = stored_names(w.config, p, w.layout);
  const std::vector<int64_t> dims = stored_shape(p, w.layout);
  int64_t each = 1;
  for (const int64_t n : dims) each *= n;
  float* to = out.as<float>();
  for (int64_t left = out.count(); left > 0;) {
    const std::string& name = names.at(static_cast<size_t>(begin / each));
    const int64_t at = begin % each, count = std::min(left, each - at);
    read_stored_weight(find_stored_weight(w.set, name, dims), at, count, to);
    begin += count, to += count, left -= count;
  }
}

void write_public_model(FileSystem& fs, const std::string& name, const ModelToExport& model,
                        const ExportOptions& options) {
  const ModelConfig& c = model.config;
  const std::string reason = not_exportable(c);
  if (!reason.empty())
    throw_error(Code::kInvalidArgument, "export to {}: the model has {}", name, reason);
  const Shards shards =
      divide(slices_of(c, model.table, model.master, options), options.shard_bytes);
  const std::string directory = directory_to_make(name);
  check_room(fs, directory, shards.bytes + kBesideWeights);  // what else there is takes less
  ModelPlace(fs, directory).write([&](const std::string& folder) {
    write_shards(fs, folder, shards, model.progress);
    // A loader wants to know the class of a tokenizer; files that came with the model say it themselves.
    if (!model.language_files.empty())
      fs.write_atomic(join_path(folder, "tokenizer_config.json"),
                      json_text(Json{{"tokenizer_class", "PreTrainedTokenizerFast"}}, 2) + "\n");
    for (const CheckpointFile& file : model.language_files)
      fs.write_atomic(join_path(folder, file.name), file.content);
    fs.write_atomic(join_path(folder, "config.json"),
                    write_public_config(c, options.layout, dtype_name(options.dtype)));
  });
}

}  // namespace moraine
