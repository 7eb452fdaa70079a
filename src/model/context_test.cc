// Context parallelism in the model: fails if the loss or any gradient, by name, of sequences shared
// by ranks differs from one rank's beyond rounding; if an expert group across it changes that; or
// if a repetition differs in one bit.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "comm/thread_ranks.h"
#include "kernels/check_tensor.h"
#include "kernels/ref/element.h"
#include "model/context_batch.h"
#include "model/model.h"
#include "parallel/ranks.h"
#include "parallel/test_packed.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

ModelConfig cca_config() {
  ModelConfig c;
  c.vocab_size = 37, c.hidden = 12, c.layers = 3, c.heads = 4, c.kv_heads = 2, c.head_dim = 4;
  c.experts = 4, c.expert_hidden = 6, c.router_hidden = 5, c.skip = SkipKind::kIdentity;
  c.sliding_window = 5, c.sliding_layers = {1}, c.init_std = 0.3, c.max_positions = 64;
  return c;
}
ModelConfig gqa_config() {
  ModelConfig c = cca_config();
  c.attention = AttentionKind::kGqa, c.router = RouterKind::kLinear,
  c.residual = ResidualKind::kPlain, c.skip = SkipKind::kNone;
  c.experts_per_token = 2;
  return c;
}
ModelConfig dense_config() {
  ModelConfig c = cca_config();
  c.experts = 0, c.skip = SkipKind::kNone;
  return c;
}

struct Job {
  ModelConfig config;
  int ranks, context, expert;
  ContextVariant variant;
  DType compute;
  Recompute recompute = Recompute::kNone;
};

// All sequences of a step; data parallel rank i has `kSequences` of them.
constexpr int64_t kSequences = 2, kLength = 41;

struct Data {
  Data(int64_t groups, uint64_t seed)
      : packed(random_packed(1, groups * kSequences, kLength, seed)) {
    Rig rig;
    const int64_t rows = packed.layout.rows();
    const Tensor t = rig.integers({rows}, 37, 5), y = rig.integers({rows}, 37, 6);
    tokens.assign(t.as<int32_t>(), t.as<int32_t>() + rows);
    targets.assign(y.as<int32_t>(), y.as<int32_t>() + rows);
    targets[3] = -1;
  }
  // Document borders of one group's sequences, from its own first row.
  std::vector<int64_t> borders(int64_t group) const {
    std::vector<int64_t> out;
    const int64_t rows = kSequences * kLength;
    for (const int64_t b : packed.segment_begin) {
      if (b >= group * rows && b < (group + 1) * rows) out.push_back(b - group * rows);
    }
    return out;
  }
  Packed packed;
  std::vector<int32_t> tokens, targets;
};

// Weights far from their initial values, so that no term hides.
Tensor make_master(Rig& rig, const ModelConfig& config, DType wide) {
  const ParameterTable table = build_parameters(config);
  const Tensor master = rig.zeros({table.total_count}, wide);
  initialize_parameters(table, config, 3, master);
  for (const Parameter& p : table.all) {
    const Tensor t = view(p, master),
                 noise = rig.normal({t.count()}, DType::kF64, static_cast<uint64_t>(p.offset), 0.2);
    const bool balance = p.kind == Parameter::Kind::kBalance;
    for (int64_t i = 0; i < t.count(); ++i) ref::add(t, i, balance ? 0 : ref::get(noise, i));
    if (balance && config.has_skip()) ref::set(t, t.count() - 1, 0.15);  // skip is used
  }
  return master;
}

struct Answer {
  double loss = 0;
  Tensor gradients, load;  // f64, by the whole table; [L, classes]
};

Answer empty_answer(Rig& rig, const ModelConfig& c) {
  return {.loss = 0,
          .gradients = rig.zeros({build_parameters(c).total_count}, DType::kF64),
          .load = c.dense() ? Tensor() : rig.zeros({c.layers, c.classes()}, DType::kI64)};
}

Answer one_rank(Rig& out, const ModelConfig& c, const Data& data, DType compute) {
  Rig rig(compute == DType::kF64 ? Backend::kRef : Backend::kCpu);
  Arena arena(Arena::Mode::kReal);
  const DType wide = wide_dtype(compute);
  const int64_t T = data.packed.layout.rows();
  Model model(arena, c, {.compute = compute, .tokens = T, .positions = kLength, .training = true},
              make_master(rig, c, wide));
  model.refresh(rig.ctx);
  Batch batch{
      .token = rig.int32s(data.tokens), .position = rig.zeros({T}, DType::kI32), .segments = {}};
  set_documents(batch, data.packed.segment_begin);
  const Tensor gradients = rig.zeros({model.table().total_count}, wide);
  Answer answer = empty_answer(out, c);
  answer.loss =
      model.loss_and_gradients(rig.ctx, batch, rig.int32s(data.targets), {gradients}, answer.load);
  answer.gradients = out.copy_as(gradients, DType::kF64);
  return answer;
}

// Adds a rank's gradients, of the experts it holds for every sender, to the whole table's.
void add_gradients(const ParameterTable& whole, const Tensor& sum, const ParameterTable& held,
                   const Tensor& mine, int64_t senders) {
  for (const Parameter& p : held.all) {
    const Parameter& to = *whole.find(p.name);
    const bool experts = p.kind == Parameter::Kind::kExperts;
    const int64_t first = experts && !p.dims.empty() ? p.row_begin * (p.count() / p.dims[0]) : 0;
    for (int64_t s = 0; s < (experts ? senders : 1); ++s) {
      const int64_t from =
          s == 0 ? p.offset
                 : held.total_count + (s - 1) * held.expert_count() + p.offset - held.expert_begin;
      for (int64_t i = 0; i < p.count(); ++i) {
        ref::add(sum, to.offset + first + i, ref::get(mine, from + i));
      }
    }
  }
}

void run_rank(const Job& job, const Data& data, Transport& transport, Answer& sum,
              std::mutex& mutex) {
  const ModelConfig& c = job.config;
  Ranks ranks(transport,
              make_mesh(job.ranks, transport.rank(), job.expert, job.context,
                        job.ranks / job.context, std::max<int64_t>(1, c.experts)),
              60);
  Rig rig(job.compute == DType::kF64 ? Backend::kRef : Backend::kCpu, 1);
  Arena arena(Arena::Mode::kReal);
  const DType wide = wide_dtype(job.compute);
  const ContextLayout layout = {job.context, kSequences, kLength};
  ContextParallel context(
      arena,
      context_sizes(
          c, {.variant = job.variant, .most = layout, .compute = job.compute, .training = true}));
  std::unique_ptr<ExpertExchange> exchange;
  if (job.expert > 1) exchange = std::make_unique<ExpertExchange>(ranks.experts, c.experts);
  const ParameterTable whole = build_parameters(c), held = held_parameters(c, exchange.get());
  const Tensor all = make_master(rig, c, wide), master = rig.zeros({held.total_count}, wide);
  for (const Parameter& p : held.all) {
    const int64_t first =
        p.kind == Parameter::Kind::kExperts ? p.row_begin * (p.count() / p.dims[0]) : 0;
    for (int64_t i = 0; i < p.count(); ++i) {
      ref::set(master, p.offset + i, ref::get(all, whole.find(p.name)->offset + first + i));
    }
  }
  Model model(arena, c,
              {.compute = job.compute,
               .tokens = layout.most_rows(),
               .positions = kLength,
               .training = true,
               .recompute = job.recompute,
               .exchange = exchange.get(),
               .context = &context},
              master);
  model.refresh(rig.ctx);
  const int64_t group = ranks.mesh.data_rank();
  ContextRows place = make_context_rows(layout, ranks.mesh.context_rank(), data.borders(group));
  const int64_t most = layout.most_rows();
  const auto part = [&](const std::vector<int32_t>& v) {
    return std::span(v).subspan(static_cast<size_t>(group * layout.rows()),
                                static_cast<size_t>(layout.rows()));
  };
  const ContextBatch rows = context_batch(place, part(data.tokens), part(data.targets),
                                          {.token = rig.zeros({most}, DType::kI32),
                                           .position = rig.zeros({most}, DType::kI32),
                                           .target = rig.zeros({most}, DType::kI32)});
  context.begin(rig.ctx, ranks.context(), std::move(place));
  const Tensor gradients = rig.zeros({gradient_count(held, job.expert)}, wide);
  const Tensor load = c.dense() ? Tensor() : rig.zeros({c.layers, c.classes()}, DType::kI64);
  const double mine = model.loss_and_gradients(rig.ctx, rows.batch, rows.target, {gradients}, load);
  const std::lock_guard lock(mutex);  // sums in f64: their order does not matter here
  sum.loss += mine;
  add_gradients(whole, sum.gradients, held, gradients, job.expert);
  for (int64_t i = 0; !load.empty() && i < load.count(); ++i) {
    sum.load.as<int64_t>()[i] += load.as<int64_t>()[i];
  }
}

Answer many_ranks(Rig& rig, const Job& job, const Data& data) {
  Answer sum = empty_answer(rig, job.config);
  std::mutex mutex;
  run_thread_ranks(job.ranks,
                   [&](Transport& transport) { run_rank(job, data, transport, sum, mutex); });
  return sum;
}

// `truth`: one rank in f64. Of other types, a rank's rounding may be another draw of what one
// rank's own distance from the truth shows: in this parameter, or, where few elements may happen to
// be near, in all parameters together.
void expect_same_answer(const ModelConfig& c, const Answer& got, const Answer& one,
                        const Answer& truth) {
  const double loss_off = std::abs(one.loss - truth.loss) / truth.loss;
  EXPECT_NEAR(got.loss / one.loss, 1, 3 * loss_off + 1e-7 * (&one != &truth) + 1e-12);
  if (!got.load.empty()) EXPECT_SAME_BITS(got.load, one.load);
  const ParameterTable table = build_parameters(c);
  double squares = 0;
  for (const Parameter& p : table.all) {
    squares += std::pow(relative_distance(view(p, one.gradients), view(p, truth.gradients)), 2);
  }
  const double usual = std::sqrt(squares / static_cast<double>(table.all.size()));
  for (const Parameter& p : table.all) {
    if (p.kind == Parameter::Kind::kBalance) continue;
    const double off = relative_distance(view(p, one.gradients), view(p, truth.gradients));
    EXPECT_LE(relative_distance(view(p, got.gradients), view(p, one.gradients)),
              3 * std::max(off, usual) + 1e-11)
        << p.name;
  }
}

const Job kJobs[] = {
    {cca_config(), 2, 2, 1, ContextVariant::kRing, DType::kF64},
    {cca_config(), 4, 4, 1, ContextVariant::kRing, DType::kF64, Recompute::kLayer},
    {cca_config(), 2, 2, 2, ContextVariant::kRing, DType::kF64},  // the same two ranks
    {cca_config(), 4, 4, 2, ContextVariant::kRing, DType::kF64},
    {cca_config(), 4, 2, 2, ContextVariant::kRing, DType::kF64, Recompute::kLayer},
    {cca_config(), 4, 2, 4, ContextVariant::kRing, DType::kF64},  // experts across data and context
    {gqa_config(), 2, 2, 2, ContextVariant::kRing, DType::kF64},
    {gqa_config(), 4, 4, 1, ContextVariant::kRing, DType::kF64, Recompute::kLayer},
    {dense_config(), 4, 4, 1, ContextVariant::kRing, DType::kF64},
    {cca_config(), 4, 4, 1, ContextVariant::kRing, DType::kF32},
    {cca_config(), 4, 4, 2, ContextVariant::kAllGather, DType::kF32},
    {cca_config(), 2, 2, 1, ContextVariant::kAllGather, DType::kF32, Recompute::kLayer},
    {gqa_config(), 4, 2, 2, ContextVariant::kAllGather, DType::kF32},
    {gqa_config(), 2, 2, 1, ContextVariant::kRing, DType::kF32},
    {dense_config(), 4, 4, 1, ContextVariant::kRing, DType::kBF16},
    {dense_config(), 2, 2, 1, ContextVariant::kAllGather, DType::kBF16, Recompute::kLayer},
};

TEST(ContextModel, LossAndEveryGradientAreThoseOfOneRank) {
  for (size_t i = 0; i < std::size(kJobs); ++i) {
    const Job& job = kJobs[i];
    SCOPED_TRACE("job " + std::to_string(i));
    Rig rig;
    const Data data(job.ranks / job.context, 11 + i);
    const Answer truth = one_rank(rig, job.config, data, DType::kF64);
    const Answer one =
        job.compute == DType::kF64 ? truth : one_rank(rig, job.config, data, job.compute);
    expect_same_answer(job.config, many_ranks(rig, job, data), one, truth);
  }
}

// A rank's own bits, twice; recomputed or kept.
TEST(ContextModel, RepetitionAndRecomputationChangeNoBit) {
  for (const ContextVariant variant : {ContextVariant::kRing, ContextVariant::kAllGather}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const Data data(1, 4);
      Rig rig;
      Job job = {cca_config(), 2, 2, 2, variant, compute};
      const Answer first = many_ranks(rig, job, data), second = many_ranks(rig, job, data);
      job.recompute = Recompute::kLayer;
      const Answer third = many_ranks(rig, job, data);
      for (const Answer* again : {&second, &third}) {
        EXPECT_EQ(again->loss, first.loss);
        EXPECT_SAME_BITS(again->gradients, first.gradients);
      }
    }
  }
}

// A model with a context that is not active is one with whole sequences.
TEST(ContextModel, WithoutAContextTheModelTakesWholeSequences) {
  const ModelConfig c = cca_config();
  const Data data(1, 4);
  Rig rig;
  Arena arena(Arena::Mode::kReal);
  const int64_t T = data.packed.layout.rows();
  ContextParallel context(arena, context_sizes(c, {.variant = ContextVariant::kRing,
                                                   .most = {2, kSequences, kLength},
                                                   .compute = DType::kF32,
                                                   .training = false}));
  Batch batch{
      .token = rig.int32s(data.tokens), .position = rig.zeros({T}, DType::kI32), .segments = {}};
  set_documents(batch, data.packed.segment_begin);
  const Tensor master = make_master(rig, c, DType::kF32);
  double loss[2];
  for (const bool with : {false, true}) {
    Model model(arena, c,
                {.compute = DType::kF32,
                 .tokens = T,
                 .positions = kLength,
                 .context = with ? &context : nullptr},
                master);
    model.refresh(rig.ctx);
    loss[with] = model.loss(rig.ctx, batch, rig.int32s(data.targets));
  }
  EXPECT_EQ(loss[0], loss[1]);
}

}  // namespace
}  // namespace moraine
