// PlanShape: a table of shapes; then each sizing rule of the first beside the size that just misses it.
#include "cli/plan_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check_place.h"
#include "base/error.h"
#include "base/json.h"
#include "base/pool.h"
#include "bench/machine.h"
#include "cli/plan_step.h"
#include "train/shape_plans.h"
#include "train/step_layout.h"

namespace moraine {
namespace {

// A product at the chosen size and just beside it.
struct NearMiss {
  std::string rule, chosen, missed;
  ProductPoint at, beside;
};

std::vector<NearMiss> near_misses(const RunConfig& config, const ShapePlan& plan) {
  const ModelConfig& m = plan.model;
  const Timeline timeline(config);
  const int64_t rows = plan.micro_sequences * timeline.at(timeline.steps() - 1).sequence;
  const bool bf16 = compute_dtype(config) == DType::kBF16;
  const int64_t D = m.hidden, F = m.expert_hidden, d = m.head_dim, V = m.vocab_size,
                G = m.conv_groups(),
                each = std::max<int64_t>(1, rows * m.experts_per_token / m.experts);
  const auto product = [&](int64_t r, int64_t n, int64_t k, int64_t groups) {
    return ProductPoint{.bf16 = bf16, .rows = r, .n = n, .k = k, .groups = groups};
  };
  const auto size = [](const char* name, int64_t n) { return fmt::format("{} {}", name, n); };
  std::vector<NearMiss> all = {
      {"width a multiple of 64", size("hidden", D), size("hidden", D + 7), product(rows, D, D, 1),
       product(rows, D + 7, D + 7, 1)},
      {"experts' width likewise", size("expert_hidden", F), size("expert_hidden", F + 7),
       product(each, 2 * F, D, m.experts), product(each, 2 * (F + 7), D, m.experts)},
      {"head of 64 or 128", size("head_dim", d), size("head_dim", d - 8),
       product(rows, d, 2 * d, G), product(rows, d - 8, 2 * (d - 8), G)},
      {"vocabulary a multiple of 64", size("vocab_size", (V + 63) / 64 * 64),
       size("vocab_size", (V + 63) / 64 * 64 + 1), product(256, (V + 63) / 64 * 64, D, 1),
       product(256, (V + 63) / 64 * 64 + 1, D, 1)},
      {"enough rows for an expert", size("rows", each),
       size("rows", std::max<int64_t>(1, each / 4)), product(each, 2 * F, D, m.experts),
       product(std::max<int64_t>(1, each / 4), 2 * F, D, m.experts)},
      {"few wide experts, not many narrow", size("experts", m.experts),
       size("experts", 4 * m.experts), product(each, 2 * F, D, m.experts),
       product(std::max<int64_t>(1, each / 4), F / 2, D, 4 * m.experts)},
  };
  return all;
}

void print_near_misses(const std::vector<NearMiss>& all, const RunConfig& config, bool json) {
  Pool pool(usable_cores());
  if (!json)
    fmt::print("\n{:<36}{:<22}{:>10}   {:<22}{:>10}{:>12}\n", "rule, measured here", "chosen",
               "of peak", "near miss", "of peak", "costs");
  for (const NearMiss& m : all) {
    // In turns: what disturbs one disturbs the other.
    const ProductShares shares = compare_products(m.at, m.beside, pool);
    const double cost = 1 - shares.second / shares.first;
    if (json) {
      fmt::print("{}\n", json_text(Json{{"plan", "shape.rule"},
                                        {"rule", m.rule},
                                        {"chosen", m.chosen},
                                        {"chosen_percent", shares.first},
                                        {"near_miss", m.missed},
                                        {"near_miss_percent", shares.second},
                                        {"cost", cost}}));
    } else {
      fmt::print("{:<36}{:<22}{:>8.1f} %   {:<22}{:>8.1f} %{:>10.1f} %\n", m.rule, m.chosen,
                 shares.first, m.missed, shares.second, 100 * cost);
    }
  }
  if (json || config.model.vocab_size % 64 == 0) return;
  fmt::print("the vocabulary of {} is no multiple of 64; the tokenizer decides it\n",
             config.model.vocab_size);
}

void print_shape(const ShapePlan& p) {
  const ModelConfig& m = p.model;
  fmt::print("{:>7}{:>7}{:>8}{:>9}{:>9}{:>8}{:>7}{:>9}{:>9}{:>9.1f}{:>11.1f}{:>8.1f} %{:>9.3g}\n",
             m.hidden, m.layers, fmt::format("{}x{}", m.heads, m.head_dim), m.kv_heads, m.experts,
             m.router_hidden, p.micro_sequences,
             fmt::format("{:.1f}M", static_cast<double>(p.parameters.total) / 1e6),
             fmt::format("{:.1f}M", static_cast<double>(p.parameters.active) / 1e6),
             1e3 * p.time.seconds, static_cast<double>(p.bytes) / (1 << 20), 100 * p.peak_share,
             p.run_seconds / 3600);
}

Json json_of(const ShapePlan& p) {
  const ModelConfig& m = p.model;
  return {{"plan", "shape"},
          {"hidden", m.hidden},
          {"layers", m.layers},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"experts", m.experts},
          {"expert_hidden", m.expert_hidden},
          {"router_hidden", m.router_hidden},
          {"micro_sequences", p.micro_sequences},
          {"parameters", p.parameters.total},
          {"active_parameters", p.parameters.active},
          {"step_ms", 1e3 * p.time.seconds},
          {"memory_bytes", p.bytes},
          {"peak_share", p.peak_share},
          {"run_hours", p.run_seconds / 3600}};
}

void check_out(const PlanShapeFlags& f) {
  check_file_place(posix_file_system(), "plan shape --out", f.out);
  if (f.overwrite || !posix_file_system().exists(f.out)) return;
  throw_error(Code::kInvalidArgument,
              "plan shape --out {}: this file is there already; choose another name, or replace it "
              "with --overwrite",
              f.out);
}

}  // namespace

void declare_plan_shape(Flags& flags, PlanShapeFlags* f) {
  flags
      .integer("parameters", &f->parameters, "shape: budget of parameters, in all.", 0,
               int64_t{1} << 50)
      .number("hours", &f->hours, "shape: or of time, for the run that the config describes.")
      .text("out", &f->out, "shape: config to write, with the first shape.")
      .flag("overwrite", &f->overwrite, "shape: replace a file that is there.")
      .flag("no-measure", &f->no_measure, "shape: do not measure here what near misses cost.");
}

void print_plan_shape(const PlanShapeFlags& f, const RunConfig& config, const ShapeAsked& asked) {
  check_plan_number("hours", f.hours, 0);
  check_plan_number("memory-gib", asked.memory_gib, 0);
  if (!f.out.empty()) check_out(f);
  const Machine machine = plan_machine(asked.machine_file);
  const std::vector<ShapePlan> plans =
      plan_shapes(config, machine, asked.ranks,
                  {.parameters = f.parameters,
                   .seconds = f.hours * 3600,
                   .memory_bytes = static_cast<int64_t>(asked.memory_gib * (int64_t{1} << 30))});
  if (!asked.json)
    fmt::print("{:>7}{:>7}{:>8}{:>9}{:>9}{:>8}{:>7}{:>9}{:>9}{:>9}{:>11}{:>10}{:>9}\n", "hidden",
               "layers", "heads", "kv_heads", "experts", "router", "micro", "params", "active",
               "step ms", "MiB", "of peak", "hours");
  for (const ShapePlan& p : plans) {
    if (asked.json)
      fmt::print("{}\n", json_text(json_of(p)));
    else
      print_shape(p);
  }
  const RunConfig chosen = with_shape(config, plans.front());
  if (!f.no_measure) print_near_misses(near_misses(chosen, plans.front()), chosen, asked.json);
  if (f.out.empty()) return;
  posix_file_system().write_atomic(f.out, print_run_config(chosen));
  if (!asked.json) fmt::print("\nwrote {}\n", f.out);
}

}  // namespace moraine
