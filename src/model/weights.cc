// Names to places: the one file that knows which parameter is which field.
#include "model/weights.h"

#include "kernels/elementwise.h"
#include "kernels/host_copy.h"
#include "model/device_packs.h"
#include "model/packed_model.h"

namespace moraine {
namespace {

// Finds parameters of one flat buffer by the suffix of a layer.
class Lookup {
 public:
  Lookup(const ParameterTable& table, const Tensor& flat) : table_(table), flat_(flat) {}

  Tensor get(const std::string& name) const {
    const Parameter* p = table_.find(name);
    MR_CHECK(p != nullptr, "%s", name.c_str());
    return view(*p, flat_);
  }
  Tensor optional(const std::string& name) const {
    return table_.find(name) == nullptr ? Tensor() : get(name);
  }
  ResidualScale scale(const std::string& prefix) const {
    return {.h_scale = optional(prefix + "hidden_states_scale"),
            .h_bias = optional(prefix + "hidden_states_bias"),
            .r_scale = optional(prefix + "residual_scale"),
            .r_bias = optional(prefix + "residual_bias")};
  }

 private:
  const ParameterTable& table_;
  const Tensor flat_;
};

std::string layer_name(int64_t i) { return "model.layers." + std::to_string(i) + "."; }

std::string qkv_name(const std::string& layer) { return layer + "self_attn.qkv_proj"; }

// q, k and v adjacent in the flat buffer, as one matrix.
Tensor fused_qkv(const ModelConfig& c, const Lookup& at, const std::string& layer) {
  Tensor qkv = at.get(qkv_name(layer) + ".q_proj.weight");
  qkv.dims[0] = c.qkv_width();
  return qkv;
}

std::string next_norm_name(const ModelConfig& c, int64_t i) {
  return i + 1 < c.layers ? layer_name(i + 1) + "input_layernorm.weight" : "model.norm.weight";
}

// Groups of n x k; the rest of a parameter's shape says how many there are.
PackSource source_of(const ParameterTable& table, const std::string& name, int64_t n, int64_t k) {
  const Parameter* p = table.find(name);
  MR_CHECK(p != nullptr, "%s", name.c_str());
  const int64_t groups = n * k > 0 ? p->count() / (n * k) : 1;  // a vocabulary may be empty
  const bool experts = p->kind == Parameter::Kind::kExperts;
  return {.name = name,
          .begin = p->offset,
          .groups = groups,
          .n = n,
          .k = k,
          .group_begin = experts ? p->row_begin : 0,
          .groups_all = experts ? p->rows_all : groups};
}

PackSource head_source(const ModelConfig& c, const ParameterTable& table) {
  PackSource head = source_of(table, "model.embed_tokens.weight", c.vocab_size, c.hidden);
  head.served = ServedMatrix::kHead;
  return head;
}

// Every matrix of a layer with its pack: visit(pack, source).
template <class F>
void for_each_pack(const ModelConfig& c, const ParameterTable& table, int64_t i, LayerWeights& w,
                   const F& visit) {
  const std::string layer = layer_name(i), gate = layer + "mlp.gate.";
  const int64_t D = c.hidden, F2 = 2 * c.expert_hidden, R = c.router_hidden;
  const auto served = [&](MatrixPack& pack, PackSource source, ServedMatrix matrix) {
    source.layer = i;
    source.served = matrix;
    visit(pack, source);
  };
  PackSource qkv =
      source_of(table, qkv_name(layer) + ".q_proj.weight", c.heads * c.head_dim, c.hidden);
  qkv.name = qkv_name(layer);
  qkv.n = c.qkv_width();
  served(w.qkv, qkv, ServedMatrix::kQkv);
  if (c.cca()) {
    visit(w.conv_grouped, source_of(table, qkv_name(layer) + ".conv_qk_grouped.weight", c.head_dim,
                                    2 * c.head_dim));
  }
  served(w.o, source_of(table, layer + "self_attn.o_proj.weight", D, c.heads * c.head_dim),
         ServedMatrix::kOutput);
  if (c.dense()) {
    served(w.gate_up, source_of(table, layer + "mlp.gate_up_proj.weight", F2, D),
           ServedMatrix::kGateUp);
    served(w.down, source_of(table, layer + "mlp.down_proj.weight", D, c.expert_hidden),
           ServedMatrix::kDown);
    return;
  }
  if (c.zaya_router()) {
    visit(w.router_down, source_of(table, gate + "down_proj.weight", R, D));
    visit(w.router_fc1, source_of(table, gate + "router_mlp.fc1.weight", R, R));
    visit(w.router_fc2, source_of(table, gate + "router_mlp.fc2.weight", R, R));
    visit(w.router_out, source_of(table, gate + "router_mlp.out_proj.weight", c.classes(), R));
  } else {
    visit(w.router_out, source_of(table, gate + "weight", c.classes(), D));
  }
  served(w.gate_up, source_of(table, layer + "mlp.experts.gate_up_proj", F2, D),
         ServedMatrix::kGateUp);
  served(w.down, source_of(table, layer + "mlp.experts.down_proj", D, c.expert_hidden),
         ServedMatrix::kDown);
}

// Fills the vector fields that weights and gradients share by name.
template <class L>
void find_vectors(const ModelConfig& c, const Lookup& at, int64_t i, L& w) {
  const std::string layer = layer_name(i), qkv = layer + "self_attn.qkv_proj.",
                    gate = layer + "mlp.gate.";
  if (c.cca()) {
    w.conv_depthwise_w = at.get(qkv + "conv_qk_depthwise.weight").reshaped({c.conv_channels(), 2});
    w.conv_depthwise_b = at.get(qkv + "conv_qk_depthwise.bias");
    w.conv_grouped_b = at.get(qkv + "conv_qk_grouped.bias").reshaped({c.conv_groups(), c.head_dim});
    w.temp = at.get(layer + "self_attn.qk_norm.temp");
  }
  w.merge_attention = at.scale(layer + "post_attention_residual_scale.");
  w.merge_experts = at.scale(layer + "post_mlp_residual_scale.");
  w.norm_experts = at.get(layer + "post_attention_layernorm.weight");
  w.norm_next = at.get(next_norm_name(c, i));
  if (c.dense() || !c.zaya_router()) return;
  w.router_down_b = at.get(gate + "down_proj.bias");
  w.router_gamma = at.optional(gate + "router_states_scale");
  w.router_norm = at.get(gate + "router_mlp.norm.weight");
  w.router_fc1_b = at.get(gate + "router_mlp.fc1.bias");
  w.router_fc2_b = at.get(gate + "router_mlp.fc2.bias");
}

// A flat buffer of which only the vector part exists: offsets of vectors land in `vectors`.
Tensor shifted(const ParameterTable& table, const Tensor& vectors) {
  Tensor flat = vectors;
  flat.dims[0] = table.total_count;
  if (vectors.data != nullptr) {
    flat.data = static_cast<char*>(vectors.data) - table.matrix_count * dtype_bytes(vectors.dtype);
  }
  return flat;
}

}  // namespace

PackSource embedding_source(const ModelConfig& c, const ParameterTable& table) {
  PackSource rows = head_source(c, table);
  rows.name = "model.embed_tokens.embedding";
  rows.served = ServedMatrix::kEmbedding;
  return rows;
}

std::vector<PackSource> pack_sources(const ModelConfig& c, const ParameterTable& table) {
  std::vector<PackSource> sources;
  LayerWeights unused;
  const auto add = [&](MatrixPack&, const PackSource& source) { sources.push_back(source); };
  for (int64_t i = 0; i < c.layers; ++i) for_each_pack(c, table, i, unused, add);
  sources.push_back(head_source(c, table));
  return sources;
}

namespace {

bool is_experts(const ParameterTable& table, const std::string& name) {
  const Parameter* p = table.find(name);
  return p != nullptr && p->kind == Parameter::Kind::kExperts;
}

// All but the embedding; `take` gives a pack its memory.
template <class F>
ModelWeights lay_out(const ModelConfig& c, const ParameterTable& table, const Tensor& vector_part,
                     const F& take) {
  ModelWeights w;
  w.vectors = vector_part;
  const Lookup vectors(table, shifted(table, w.vectors));
  w.merge_input = vectors.scale("model.input_");
  w.norm_first = vectors.get(layer_name(0) + "input_layernorm.weight");
  w.layers.resize(static_cast<size_t>(c.layers));
  for (int64_t i = 0; i < c.layers; ++i) {
    LayerWeights& layer = w.layers[static_cast<size_t>(i)];
    for_each_pack(c, table, i, layer, take);
    find_vectors(c, vectors, i, layer);
    if (!c.dense()) layer.balance = vectors.get(layer_name(i) + "mlp.gate.balancing_biases");
  }
  take(w.head, head_source(c, table));
  return w;
}

}  // namespace

ModelWeights make_weights(Arena& arena, const ModelConfig& c, const ParameterTable& table,
                          const Tensor& master, const WeightOptions& o) {
  const Tensor vectors = arena.take("weights.vectors", "weights", master.dtype,
                                    {table.total_count - table.matrix_count});
  ModelWeights w = lay_out(c, table, vectors, [&](MatrixPack& pack, const PackSource& source) {
    const int64_t guests = is_experts(table, source.name) ? o.guests : 0;
    const int64_t G = source.groups + guests, n = source.n, k = source.k;
    pack.forward =
        take_packed(arena, "weights.packed", {.dtype = o.compute, .groups = G, .n = n, .k = k});
    if (o.training) {
      pack.backward = take_packed(arena, "weights.packed_transposed",
                                  {.dtype = o.compute, .groups = G, .n = k, .k = n});
    }
  });
  w.embedding = Lookup(table, master).get("model.embed_tokens.weight");
  return w;
}

ModelWeights map_weights(Arena& arena, const ModelConfig& c, const ParameterTable& table,
                         const PackedModel& packed) {
  const Tensor vectors = arena.take("weights.vectors", "weights", DType::kF32,
                                    {table.total_count - table.matrix_count});
  if (!arena.dry()) packed.read_vectors(table, vectors);
  const auto map = [&](const PackedMatrix& pack) {
    arena.note_mapped("weights.packed", packed_bytes(pack));
    return pack;
  };
  ModelWeights w = lay_out(c, table, vectors, [&](MatrixPack& pack, const PackSource& source) {
    pack.forward = map(packed.pack(source));
  });
  w.token_rows = packed.has_embedding() ? map(packed.embedding()) : w.head.forward;
  return w;
}

ModelWeights take_packed_weights(Arena& arena, const ModelConfig& c, const ParameterTable& table,
                                 const PackedModel& packed) {
  const Tensor vectors = arena.take("weights.vectors", "weights", DType::kF32,
                                    {table.total_count - table.matrix_count});
  const auto take = [&](const PackedMatrix& pack) {
    return take_packed(arena, "weights.packed", pack);
  };
  ModelWeights w = lay_out(c, table, vectors, [&](MatrixPack& pack, const PackSource& source) {
    pack.forward = take(packed.pack(source));
  });
  w.token_rows = packed.has_embedding() ? take(packed.embedding()) : w.head.forward;
  return w;
}

void copy_packed_weights(Context& ctx, const ModelConfig& c, const ParameterTable& table,
                         const PackedModel& packed, ModelWeights& w) {
  const auto copy = [&](MatrixPack& pack, const PackSource& source) {
    copy_pack_in(ctx, pack.forward, packed.pack(source));
  };
  for (int64_t i = 0; i < c.layers; ++i)
    for_each_pack(c, table, i, w.layers[static_cast<size_t>(i)], copy);
  copy(w.head, head_source(c, table));
  if (packed.has_embedding()) copy_pack_in(ctx, w.token_rows, packed.embedding());
  std::vector<float> vectors(static_cast<size_t>(w.vectors.count()));
  const Tensor host = make_tensor(vectors.data(), DType::kF32, {w.vectors.count()});
  packed.read_vectors(table, host);
  copy_in(ctx, w.vectors, host);
}

void refresh_weights(Context& ctx, const ModelConfig& c, const ParameterTable& table,
                     const Tensor& master, ModelWeights& w) {
  // Of experts those held here; guests come from their homes (parallel/guest_experts.h).
  const auto held = [](PackedMatrix packed, const PackSource& source) {
    packed.groups = source.groups;
    return packed;
  };
  const auto pack = [&](MatrixPack& p, const PackSource& source) {
    const Tensor t = master.rows(source.begin, source.begin + source.count())
                         .reshaped({source.groups * source.n, source.k});
    pack_matrix(ctx, {.packed = held(p.forward, source),
                      .w = t,
                      .transpose = false,
                      .transposed = held(p.backward, source)});
  };
  for (int64_t i = 0; i < c.layers; ++i)
    for_each_pack(c, table, i, w.layers[static_cast<size_t>(i)], pack);
  pack(w.head, head_source(c, table));

  const bool round = w.head.forward.dtype == DType::kBF16;
  round_copy(ctx, w.vectors, master.rows(table.matrix_count, table.total_count),
             round ? DType::kBF16 : DType::kF32);
  for (const Parameter& p : table.all) {  // balancing biases move by less than bf16 can tell
    if (!round || p.kind != Parameter::Kind::kBalance) continue;
    round_copy(ctx, view(p, shifted(table, w.vectors)), view(p, master), DType::kF32);
  }
}

int64_t gradient_count(const ParameterTable& table, int64_t senders) {
  return table.total_count + (senders - 1) * table.expert_count();
}

// The experts' region as sender `s` adds to it.
Tensor sender_experts(const ParameterTable& table, const Tensor& flat, int64_t s) {
  const int64_t begin =
      s == 0 ? table.expert_begin : table.total_count + (s - 1) * table.expert_count();
  return flat.rows(begin, begin + table.expert_count());
}

ModelGradients view_gradients(const ModelConfig& c, const ParameterTable& table, const Tensor& flat,
                              int64_t senders) {
  const Lookup at(table, flat);
  const auto expert = [&](const std::string& name, int64_t s) {
    Parameter p = *table.find(name);
    p.offset -= table.expert_begin;
    return view(p, sender_experts(table, flat, s));
  };
  ModelGradients g;
  g.embedding = at.get("model.embed_tokens.weight");
  g.merge_input = at.scale("model.input_");
  g.norm_first = at.get(layer_name(0) + "input_layernorm.weight");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = layer_name(i), gate = layer + "mlp.gate.";
    LayerGradients l;
    find_vectors(c, at, i, l);
    l.qkv = fused_qkv(c, at, layer);
    if (c.cca()) {
      l.conv_grouped = at.get(layer + "self_attn.qkv_proj.conv_qk_grouped.weight")
                           .reshaped({c.conv_groups(), c.head_dim, 2 * c.head_dim});
    }
    l.o = at.get(layer + "self_attn.o_proj.weight");
    if (c.dense()) {
      l.experts.push_back({.gate_up = at.get(layer + "mlp.gate_up_proj.weight"),
                           .down = at.get(layer + "mlp.down_proj.weight")});
    } else {
      if (c.zaya_router()) {
        l.router_down = at.get(gate + "down_proj.weight");
        l.router_fc1 = at.get(gate + "router_mlp.fc1.weight");
        l.router_fc2 = at.get(gate + "router_mlp.fc2.weight");
      }
      l.router_out = at.get(gate + (c.zaya_router() ? "router_mlp.out_proj.weight" : "weight"));
      for (int64_t s = 0; s < senders; ++s) {
        l.experts.push_back({.gate_up = expert(layer + "mlp.experts.gate_up_proj", s),
                             .down = expert(layer + "mlp.experts.down_proj", s)});
      }
    }
    g.layers.push_back(l);
  }
  return g;
}

}  // namespace moraine
