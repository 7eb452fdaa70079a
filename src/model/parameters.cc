// The list of weights of a config, in one order.
#include "model/parameters.h"

#include <algorithm>

#include "base/hash.h"
#include "base/random.h"

namespace moraine {
namespace {

using Kind = Parameter::Kind;
using Init = Parameter::Init;

class Builder {
 public:
  void matrix(const std::string& name, std::vector<int64_t> dims, Kind kind = Kind::kMatrix) {
    matrices_.push_back({name, std::move(dims), kind, Init::kNormal});
  }
  void experts(const std::string& name, const ExpertRange& held, std::vector<int64_t> dims) {
    Parameter p{name, std::move(dims), Kind::kExperts, Init::kNormal};
    p.rows_all = p.dims[0];
    p.row_begin = held.begin;
    p.dims[0] = held.end - held.begin;
    experts_.push_back(p);
  }
  void vector(const std::string& name, std::vector<int64_t> dims, Init init,
              Kind kind = Kind::kVector) {
    vectors_.push_back({name, std::move(dims), kind, init});
  }
  ParameterTable build() {
    ParameterTable table;
    for (std::vector<Parameter>* part : {&matrices_, &experts_, &vectors_}) {
      for (Parameter& p : *part) {
        p.offset = table.total_count;
        table.total_count += p.count();
        table.position.emplace(p.name, table.all.size());
        table.all.push_back(std::move(p));
      }
      if (part == &matrices_) table.expert_begin = table.total_count;
      if (part == &experts_) table.matrix_count = table.total_count;
    }
    return table;
  }

 private:
  std::vector<Parameter> matrices_, experts_, vectors_;
};

void add_residual_scale(Builder& b, const std::string& prefix, int64_t D) {
  b.vector(prefix + "hidden_states_scale", {D}, Init::kOnes);
  b.vector(prefix + "hidden_states_bias", {D}, Init::kZeros);
  b.vector(prefix + "residual_scale", {D}, Init::kOnes);
  b.vector(prefix + "residual_bias", {D}, Init::kZeros);
}

void add_attention(Builder& b, const ModelConfig& c, const std::string& layer) {
  const int64_t D = c.hidden, d = c.head_dim, half = c.value_width() / 2;
  const std::string qkv = layer + "self_attn.qkv_proj.";
  b.matrix(qkv + "q_proj.weight", {c.heads * d, D});
  b.matrix(qkv + "k_proj.weight", {c.kv_heads * d, D});
  if (c.cca()) {
    b.matrix(qkv + "v_proj_current.weight", {half, D});
    b.matrix(qkv + "v_proj_delayed.weight", {half, D});
    b.matrix(qkv + "conv_qk_grouped.weight", {c.conv_channels(), d, 2}, Kind::kConv);
    b.vector(qkv + "conv_qk_grouped.bias", {c.conv_channels()}, Init::kZeros);
    b.vector(qkv + "conv_qk_depthwise.weight", {c.conv_channels(), 1, 2}, Init::kNormal,
             Kind::kConv);
    b.vector(qkv + "conv_qk_depthwise.bias", {c.conv_channels()}, Init::kZeros);
    b.vector(layer + "self_attn.qk_norm.temp", {c.kv_heads}, Init::kOnes);
  } else {
    b.matrix(qkv + "v_proj.weight", {c.value_width(), D});
  }
  b.matrix(layer + "self_attn.o_proj.weight", {D, c.heads * d});
}

void add_router(Builder& b, const ModelConfig& c, int64_t index, const std::string& gate) {
  const int64_t D = c.hidden, R = c.router_hidden, classes = c.classes();
  if (c.zaya_router()) {
    b.matrix(gate + "down_proj.weight", {R, D});
    b.vector(gate + "down_proj.bias", {R}, Init::kZeros);
    if (index > 0) b.vector(gate + "router_states_scale", {R}, Init::kOnes);
    b.vector(gate + "router_mlp.norm.weight", {R}, Init::kOnes);
    for (const std::string fc : {"fc1", "fc2"}) {
      b.matrix(gate + "router_mlp." + fc + ".weight", {R, R});
      b.vector(gate + "router_mlp." + fc + ".bias", {R}, Init::kZeros);
    }
    b.matrix(gate + "router_mlp.out_proj.weight", {classes, R});
  } else {
    b.matrix(gate + "weight", {classes, D});
  }
  b.vector(gate + "balancing_biases", {classes}, Init::kSkipBias, Kind::kBalance);
}

}  // namespace

int64_t Parameter::count() const {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  return n;
}

std::vector<int64_t> Parameter::global_dims() const {
  std::vector<int64_t> all = dims;
  if (kind == Kind::kExperts) all[0] = rows_all;
  return all;
}

const Parameter* ParameterTable::find(const std::string& name) const {
  const auto found = position.find(name);
  return found == position.end() ? nullptr : &all[found->second];
}

ParameterTable build_parameters(const ModelConfig& c) {
  return build_parameters(c, {.begin = 0, .end = c.experts});
}

ParameterTable build_parameters(const ModelConfig& c, const ExpertRange& held) {
  Builder b;
  const int64_t D = c.hidden, E = c.experts, F = c.expert_hidden;
  b.matrix("model.embed_tokens.weight", {c.vocab_size, D}, Kind::kEmbedding);
  if (c.scaled()) {
    b.vector("model.input_hidden_states_scale", {D}, Init::kOnes);
    b.vector("model.input_hidden_states_bias", {D}, Init::kZeros);
  }
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    b.vector(layer + "input_layernorm.weight", {D}, Init::kOnes);
    add_attention(b, c, layer);
    if (c.scaled()) add_residual_scale(b, layer + "post_attention_residual_scale.", D);
    b.vector(layer + "post_attention_layernorm.weight", {D}, Init::kOnes);
    if (c.dense()) {
      b.matrix(layer + "mlp.gate_up_proj.weight", {2 * F, D});
      b.matrix(layer + "mlp.down_proj.weight", {D, F});
    } else {
      add_router(b, c, i, layer + "mlp.gate.");
      b.experts(layer + "mlp.experts.gate_up_proj", held, {E, 2 * F, D});
      b.experts(layer + "mlp.experts.down_proj", held, {E, D, F});
    }
    if (c.scaled()) add_residual_scale(b, layer + "post_mlp_residual_scale.", D);
  }
  b.vector("model.norm.weight", {D}, Init::kOnes);
  return b.build();
}

ParameterCount count_parameters(const ModelConfig& config) {
  ParameterCount count{0, 0, config.vocab_size * config.hidden};
  for (const Parameter& p : build_parameters(config).all) {
    count.total += p.count();
    const bool expert = p.name.find(".mlp.experts.") != std::string::npos && !config.dense();
    count.active += expert ? p.count() / config.experts * config.experts_per_token : p.count();
  }
  return count;
}

Tensor view(const Parameter& p, const Tensor& flat) {
  Tensor t;
  t.dtype = flat.dtype;
  t.rank = static_cast<int>(p.dims.size());
  for (size_t i = 0; i < p.dims.size(); ++i) t.dims[i] = p.dims[i];
  if (flat.data != nullptr)
    t.data = static_cast<char*>(flat.data) + p.offset * dtype_bytes(flat.dtype);
  return t;
}

void for_each_parameter(const ParameterTable& table, int64_t begin, const Tensor& out,
                        const ParameterVisit& visit) {
  const int64_t end = begin + out.count();
  MR_CHECK(begin >= 0 && end <= table.total_count, "[%ld, %ld) of %ld", long(begin), long(end),
           long(table.total_count));
  const Tensor flat = out.reshaped({out.count()});
  auto p = std::upper_bound(table.all.begin(), table.all.end(), begin,
                            [](int64_t at, const Parameter& q) { return at < q.offset; });
  if (p != table.all.begin()) --p;
  for (; p != table.all.end() && p->offset < end; ++p) {
    const int64_t from = std::max(begin, p->offset), to = std::min(end, p->offset + p->count());
    if (from >= to) continue;
    const int64_t before = p->row_begin * (p->count() / p->dims[0]);
    visit(*p, before + from - p->offset, flat.rows(from - begin, to - begin));
  }
}

void initialize_elements(const InitialValues& values, int64_t begin, const Tensor& out) {
  const ModelConfig& config = values.config;
  for_each_parameter(
      values.table, begin, out, [&](const Parameter& p, int64_t from, const Tensor& t) {
        const uint64_t stream = hash_bytes(p.name.data(), static_cast<int64_t>(p.name.size())).low;
        for (int64_t i = 0; i < t.count(); ++i) {
          double value = p.init == Init::kOnes ? 1 : 0;
          if (p.init == Init::kNormal) {
            value = config.init_std * random_normal(values.seed, Stream::kInit, stream,
                                                    static_cast<uint64_t>(from + i));
          }
          if (p.init == Init::kSkipBias)
            value = config.has_skip() && from + i == config.experts ? -1 : 0;
          if (t.dtype == DType::kF64) {
            t.as<double>()[i] = value;
          } else {
            t.as<float>()[i] = static_cast<float>(value);
          }
        }
      });
}

void initialize_elements(Pool& pool, const InitialValues& values, int64_t begin,
                         const Tensor& out) {
  constexpr int64_t kBlock = int64_t{1} << 14;
  const int64_t count = out.count();
  pool.parallel_for((count + kBlock - 1) / kBlock, [&](int64_t block, int) {
    const int64_t from = block * kBlock, to = std::min(count, from + kBlock);
    initialize_elements(values, begin + from, out.rows(from, to));
  });
}

void initialize_parameters(const ParameterTable& table, const ModelConfig& config, uint64_t seed,
                           const Tensor& flat) {
  check_shape(flat, "flat", {table.total_count});
  initialize_elements({table, config, seed}, 0, flat);
}

}  // namespace moraine
