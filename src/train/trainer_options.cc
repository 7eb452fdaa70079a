// The cost model of context_cost.h, asked for the largest batch of shared sequences.
#include "train/trainer_options.h"

#include <algorithm>

#include "parallel/context_cost.h"
#include "train/step_layout.h"

namespace moraine {
namespace {

// Without a measured curve: a message between processes of one host, and half a core.
constexpr double kNominalAlpha = 5e-6, kNominalBeta = 5e9, kNominalFlops = 50e9,
                 kNominalMemory = 10e9;

// Buffers of whole sequences beyond this are the ring's case: a fixed number, so that the choice,
// and with it the bits, are no accident of the machine.
constexpr int64_t kGatherBytes = int64_t{1} << 30;

ContextVariant cheaper_variant(const RunConfig& c, const ContextLayout& layout,
                               const Machine& machine) {
  const bool measured = machine.comm.ranks > 0;
  const double gflops = matmul_gflops(machine, compute_dtype(c) == DType::kBF16);
  return choose_context_variant(
             {.alpha_seconds = measured ? machine.comm.message_latency_us * 1e-6 : kNominalAlpha,
              .bytes_per_second = measured ? machine.comm.message_gb_s * 1e9 : kNominalBeta,
              .flops_per_second =
                  measured ? gflops * 1e9 / std::max(1, machine.threads) : kNominalFlops,
              .bytes_per_second_memory = measured ? machine.read_gb_s * 1e9 : kNominalMemory,
              .ranks = layout.ranks,
              .tokens = layout.most_rows(),
              .pairs = layout.sequences * layout.length * layout.length / 2 / layout.ranks,
              .heads = c.model.heads,
              .kv_heads = c.model.kv_heads,
              .head_dim = c.model.head_dim,
              .element_bytes = dtype_bytes(compute_dtype(c)),
              .most_bytes = kGatherBytes})
      .variant;
}

ContextVariant context_variant(const RunConfig& c, const Timeline& timeline,
                               const Machine& machine) {
  if (c.parallel.attention == AttentionExchange::kRing) return ContextVariant::kRing;
  if (c.parallel.attention == AttentionExchange::kGather) return ContextVariant::kAllGather;
  ContextLayout largest;
  for (const StepPlan& plan : timeline.kinds()) {
    const ContextLayout layout = micro_layout(c, plan);
    if (layout.ranks > 1 && layout.rows() > largest.rows()) largest = layout;
  }
  if (largest.rows() == 0) return ContextVariant::kAllGather;
  // Of devices nothing is measured: by nominal rates, so a function of the config alone.
  const Machine unknown;
  return cheaper_variant(c, largest, c.train.device == "cpu" ? machine : unknown);
}

}  // namespace

TrainerOptions trainer_options(const RunConfig& c, const Timeline& timeline,
                               const Machine& machine) {
  return {
      .bucket_bytes =
          c.parallel.bucket_bytes > 0 ? c.parallel.bucket_bytes : suggested_bucket_bytes(machine),
      .variant = context_variant(c, timeline, machine),
      .bytes_per_second = machine.comm.ranks > 0 ? machine.comm.message_gb_s * 1e9 : kNominalBeta};
}

}  // namespace moraine
