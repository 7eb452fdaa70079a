// Parameters: every weight of a model by name, shape and place in one flat buffer.
//
// The flat buffer is the unit of gradients, optimizer state, its shares and checkpoints. Names and
// shapes are those of the public HF-native layout (docs/model.md, layouts). Shared matrices come
// first, then the experts', then the small vectors; within a layer q, k, v_current, v_delayed are
// adjacent, so that they are also one [C + K*d, D] matrix.
//
// A rank that holds only some experts has a table of these: the same names, fewer rows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/pool.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace moraine {

struct Parameter {
  enum class Kind : uint8_t {
    kEmbedding,  // [V, D]
    kMatrix,     // [n, k]
    kExperts,    // [E, n, k]: each expert a matrix by itself
    kConv,       // [C, taps] or [C, d, taps]
    kVector,     // norms, scales, biases, temperature
    kBalance,    // balancing biases: no gradient, own rule
  };
  enum class Init : uint8_t { kNormal, kOnes, kZeros, kSkipBias };

  std::string name;
  std::vector<int64_t> dims;
  Kind kind;
  Init init;
  int64_t offset = 0;     // elements from the start of the flat buffer
  int64_t row_begin = 0;  // kExperts: the first expert held here
  int64_t rows_all = 0;   // kExperts: experts of all ranks together

  int64_t count() const;
  std::vector<int64_t> global_dims() const;  // as if all experts were here
};

// Half-open range of experts.
struct ExpertRange {
  int64_t begin = 0, end = 0;
};

struct ParameterTable {
  std::vector<Parameter> all;  // in order of offset
  int64_t expert_begin = 0;    // elements of the experts: [expert_begin, matrix_count)
  int64_t matrix_count = 0;    // elements of the matrices: [0, matrix_count) of the flat buffer
  int64_t total_count = 0;     // elements in all
  std::unordered_map<std::string, size_t> position;  // of a name in `all`

  const Parameter* find(const std::string& name) const;  // null if absent
  int64_t expert_count() const { return matrix_count - expert_begin; }
};

ParameterTable build_parameters(const ModelConfig& config);
ParameterTable build_parameters(const ModelConfig& config, const ExpertRange& experts);

// Parameters in all, and those that one token uses (one embedding row does not count, the head does).
struct ParameterCount {
  int64_t total, active, embedding;
};
ParameterCount count_parameters(const ModelConfig& config);

// A parameter's part of a flat buffer.
Tensor view(const Parameter& parameter, const Tensor& flat);

// Where weights come from that are not in memory as a whole: elements [begin, begin + out.count()) of the flat
// buffer of a table, as f32. May throw Error.
using WeightSource = std::function<void(int64_t begin, const Tensor& out)>;

// Calls visit(parameter, begin, out) for each parameter that [begin, begin + out.count()) of the flat buffer
// meets: `begin` an element of the parameter as if all experts were here, `out` [count] the part of `out`.
using ParameterVisit =
    std::function<void(const Parameter& parameter, int64_t begin, const Tensor& out)>;
void for_each_parameter(const ParameterTable& table, int64_t begin, const Tensor& out,
                        const ParameterVisit& visit);

// Fills `flat` with initial values: a function of (seed, name, index among all experts).
void initialize_parameters(const ParameterTable& table, const ModelConfig& config, uint64_t seed,
                           const Tensor& flat);
// The same for elements [begin, begin + out.count()) alone.
struct InitialValues {
  const ParameterTable& table;
  const ModelConfig& config;
  uint64_t seed;
};
void initialize_elements(const InitialValues& values, int64_t begin, const Tensor& out);
void initialize_elements(Pool& pool, const InitialValues& values, int64_t begin, const Tensor& out);

}  // namespace moraine
