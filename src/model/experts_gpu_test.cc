// Experts on other ranks, with an emulated GPU for each rank: fails if an expert's gradient is not the sender's own to
// the bit, if anything of a sender's pass depends on who holds the experts, or if a layer waits for the device more
// often than to send rows and to send answers.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "model/test_gpu_model.h"
#include "model/weights.h"
#include "parallel/ranks.h"

namespace moraine {
namespace {

using namespace testing;
using gpu::Emulation;
using gpu::MatrixRule;

constexpr int kRanks = 2;

// What a backward pass leaves, in the host's memory.
struct ExpertsPassed {
  double loss = 0;
  Tensor gradients, load;
};

// Of rank r: document r of a golden file, each one shorter than the one before.
struct RankFile : GoldenFile {
  explicit RankFile(int r) : GoldenFile("native-tiny"), rank(r) {}
  Batch document() {
    const int64_t T = length - 3 * rank;
    Batch b{.token = token.rows(rank * length, rank * length + T),
            .position = rig.zeros({T}, DType::kI32),
            .segments = {}};
    set_documents(b, std::vector<int64_t>{0});
    return b;
  }
  ModelOptions options(Recompute recompute, ExpertExchange* exchange) const {
    return {.compute = DType::kBF16,
            .tokens = length,
            .positions = 64,
            .training = true,
            .recompute = recompute,
            .exchange = exchange};
  }
  // Gradients of `count` elements.
  ExpertsPassed backward(GpuModel& on, const Tensor& there) {
    const Batch batch = document();
    const ModelConfig& c = on.model->config();
    ExpertsPassed p{.loss = 0,
                    .gradients = rig.zeros({there.count()}, DType::kF32),
                    .load = rig.zeros({c.layers, c.classes()}, DType::kI64)};
    on.gpu.clear(there.data, there.bytes());
    p.loss = on.model->loss_and_gradients(
        on.ctx, batch, target.rows(rank * length, rank * length + batch.tokens()), {there}, p.load);
    copy_out(on.ctx, p.gradients, there);
    return p;
  }
  const int rank;
};

// What `held` has of a parameter of the table of all experts.
Tensor held_rows(const Parameter& held, const ParameterTable& all, const Tensor& flat) {
  const Tensor whole = view(*all.find(held.name), flat);
  if (held.kind != Parameter::Kind::kExperts) return whole;
  return whole.rows(held.row_begin, held.row_begin + held.dims[0]);
}

// A rank's own gradients, and those that it has summed for each sender, are those of each alone.
void expect_apart(const ParameterTable& table, const ParameterTable& all, const ExpertsPassed& got,
                  const std::vector<ExpertsPassed>& alone, size_t rank) {
  for (const Parameter& p : table.all) {
    SCOPED_TRACE(p.name + " of rank " + std::to_string(rank));
    if (p.kind != Parameter::Kind::kExperts) {
      EXPECT_SAME_BITS(view(p, got.gradients), held_rows(p, all, alone[rank].gradients));
      continue;
    }
    for (size_t s = 0; s < alone.size(); ++s) {
      const int64_t begin = p.offset - table.expert_begin;
      const Tensor sum = sender_experts(table, got.gradients, static_cast<int64_t>(s))
                             .rows(begin, begin + p.count());
      const Tensor want = held_rows(p, all, alone[s].gradients);
      EXPECT_SAME_BITS(sum, want.reshaped({p.count()}));
    }
  }
  EXPECT_EQ(got.loss, alone[rank].loss);
  EXPECT_SAME_BITS(got.load, alone[rank].load);
}

void check_ranks(const Emulation& emulation, Recompute recompute) {
  std::vector<std::unique_ptr<RankFile>> files;
  std::vector<ExpertsPassed> alone;
  for (int r = 0; r < kRanks; ++r) {
    RankFile& file = *files.emplace_back(std::make_unique<RankFile>(r));
    GpuModel on(file.directory.config(), file.weights, emulation,
                file.options(Recompute::kNone, nullptr));
    alone.push_back(file.backward(
        on, on.arena.take("gradients", "gradients", DType::kF32, {file.weights.count()})));
  }
  run_thread_ranks(kRanks, [&](Transport& transport) {
    const size_t me = static_cast<size_t>(transport.rank());
    RankFile& file = *files[me];
    const ModelConfig& c = file.directory.config();
    Ranks ranks(transport, make_mesh(kRanks, transport.rank(), kRanks, 1, kRanks, c.experts), 30);
    ExpertExchange exchange(ranks.experts, c.experts);
    const ParameterTable table = held_parameters(c, &exchange), all = build_parameters(c);
    const Tensor held = file.rig.zeros({table.total_count}, DType::kF32);
    for (const Parameter& p : table.all)
      copy_in(file.rig.ctx, view(p, held), held_rows(p, all, file.weights));
    GpuModel on(c, held, emulation, file.options(recompute, &exchange));
    const Tensor there = on.arena.take("gradients", "gradients", DType::kF32,
                                       {gradient_count(table, exchange.senders())});
    on.gpu.waits = on.gpu.copies_out = 0;
    const ExpertsPassed got = file.backward(on, there);
    expect_apart(table, all, got, alone, me);
    // Counts, rows and answers of each layer go out, and gradients of answers and of rows; two of them wait.
    const int64_t again = recompute == Recompute::kLayer ? c.layers - 1 : 0;
    EXPECT_EQ(on.gpu.waits, 2 * (2 * c.layers + again));
    EXPECT_EQ(on.gpu.copies_out, 3 + 5 * c.layers + 3 * again);  // losses, loads, the test's own
  });
}

TEST(GpuExperts, GradientsAreApartBySenderWithTheBitsOfEachAlone) {
  check_ranks({.wave = 64, .rule = MatrixRule::kCdna3}, Recompute::kNone);
  check_ranks(
      {.wave = 32, .order = gpu::ThreadOrder::kRandom, .seed = 7, .rule = MatrixRule::kSm90},
      Recompute::kLayer);
}

}  // namespace
}  // namespace moraine
