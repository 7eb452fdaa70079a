// SavedRows: fails if the parts of all ranks do not tile every tensor once, on any mesh.
#include "train/saved_rows.h"

#include <gtest/gtest.h>

#include <map>

#include "parallel/ranks.h"
#include "train/distributed_optimizer.h"
#include "train/run_config.h"

namespace moraine {
namespace {

// The rows that all ranks write, and read, by tensor.
struct TensorParts {
  std::vector<int64_t> shape;
  std::vector<int> writers, readers;
};

void note(std::map<std::string, TensorParts>& all, const TensorRows& t, bool writes) {
  TensorParts& rows = all[t.name];
  if (rows.shape.empty()) rows.shape = t.shape;
  ASSERT_EQ(rows.shape, t.shape) << t.name;
  ASSERT_EQ(static_cast<size_t>(t.local.rank), t.shape.size()) << t.name;
  for (size_t d = 1; d < t.shape.size(); ++d) ASSERT_EQ(t.local.dims[d], t.shape[d]) << t.name;
  std::vector<int>& count = writes ? rows.writers : rows.readers;
  count.resize(static_cast<size_t>(t.shape[0]), 0);
  ASSERT_LE(t.row_begin + t.local.dims[0], t.shape[0]) << t.name;
  for (int64_t r = 0; r < t.local.dims[0]; ++r) ++count[static_cast<size_t>(t.row_begin + r)];
}

RunConfig config_of(MatrixRule matrices) {
  RunConfig c;
  c.model.hidden = 32, c.model.layers = 2, c.model.heads = 2, c.model.kv_heads = 1;
  c.model.head_dim = 16, c.model.experts = 8, c.model.expert_hidden = 24;
  c.model.router_hidden = 16, c.model.vocab_size = 5000;
  c.optimizer.matrices = matrices;
  return c;
}

void check_mesh(const RunConfig& c, int ranks, int64_t expert) {
  std::map<std::string, TensorParts> all;
  for (int r = 0; r < ranks; ++r) {
    PlannedRanks planned(make_mesh(ranks, r, expert, 1, 8, c.model.experts));
    const Mesh& mesh = planned.ranks().mesh;
    const int64_t held = c.model.experts / expert, first = mesh.expert_rank() * held;
    const ParameterTable table = build_parameters(c.model, {.begin = first, .end = first + held});
    std::vector<float> memory(static_cast<size_t>(table.total_count));
    const Tensor master = make_tensor(memory.data(), DType::kF32, {table.total_count});
    for (const TensorRows& t : weights_to_write(table, master, mesh)) note(all, t, true);
    for (const TensorRows& t : weights_to_read(table, master)) note(all, t, false);
    std::vector<ParameterSpec> shared, experts;
    const std::vector<ParameterSpec> specs = optimizer_specs(c, table);
    for (size_t i = 0; i < specs.size(); ++i)
      (table.all[i].kind == Parameter::Kind::kExperts ? experts : shared).push_back(specs[i]);
    Arena arena(Arena::Mode::kReal);
    const DistributedOptimizerOptions options{.rules = optimizer_options(c)};
    std::vector<double> a(static_cast<size_t>(ranks), 0.0),
        b(static_cast<size_t>(ranks / expert), 0.0);
    for (const DistributedOptimizer& o :
         {DistributedOptimizer(arena, shared, options, planned.ranks().shared, a),
          DistributedOptimizer(arena, experts, options, planned.ranks().replicas, b)}) {
      for (const bool writes : {true, false}) {
        for (const TensorRows& t : optimizer_rows(table, o.state(), mesh, writes))
          note(all, t, writes);
      }
    }
  }
  for (const auto& [name, rows] : all) {
    for (size_t i = 0; i < rows.writers.size(); ++i)
      ASSERT_EQ(rows.writers[i], 1) << name << " row " << i << " on " << ranks << "/" << expert;
    ASSERT_EQ(rows.writers.size(), static_cast<size_t>(rows.shape[0])) << name;
    for (const int readers : rows.readers) ASSERT_GE(readers, 1) << name;
  }
}

TEST(SavedRows, PartsTileEveryTensorOnce) {
  for (const MatrixRule matrices : {MatrixRule::kMuon, MatrixRule::kAdamW}) {
    for (const int ranks : {1, 2, 4, 8}) {
      for (int64_t expert = 1; expert <= ranks; expert *= 2)
        check_mesh(config_of(matrices), ranks, expert);
    }
  }
}

}  // namespace
}  // namespace moraine
