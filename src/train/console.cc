// Tables and lines.
#include "train/console.h"

#include "base/log.h"
#include "model/parameters.h"

namespace moraine {
namespace {

constexpr double kShownOfMemory = 0.01;  // of the total, of a buffer that has a row

// What the words of a step's line mean.
void print_legend(const Run& run) {
  if (run.config.model.experts == 0) return;
  say("of experts: balance, tokens of the busiest one over the mean, worst layer; ent, entropy of "
      "their loads, 1 is perfect; skip, choices of no expert; dead, experts of all layers without "
      "a token\n");
}

}  // namespace

std::string hardware_text(const Run& run) {
  if (run.gpu != nullptr)
    return fmt::format("device: {} ({}), its peak not measured", run.gpu->name(),
                       gpu::kKernelsState);
  return fmt::format("machine: {} threads, {}, measured peak {:.0f} GFLOP/s ({}), {:.0f} GB/s read",
                     run.machine.threads, run.machine.isa,
                     matmul_gflops(run.machine, compute_dtype(run.config) == DType::kBF16),
                     dtype_name(compute_dtype(run.config)), run.machine.read_gb_s);
}

void print_start(const Run& run) {
  const ParameterCount count = count_parameters(run.config.model);
  const RunConfig& c = run.config;
  say("{}\n", print_run_config(c));
  say("{}\n", hardware_text(run));
  const Mesh& mesh = run.ranks.mesh;
  say("ranks: {} ({}): {} data x {} context, experts over {}; this is rank 0's table\n", mesh.ranks,
      run.ranks.world.transport().name(), mesh.data(), mesh.context, mesh.expert);
  say("model: {} parameters, {} active per token, {} in the embedding\n",
      format_count(static_cast<double>(count.total)),
      format_count(static_cast<double>(count.active)),
      format_count(static_cast<double>(count.embedding)));
  say("\n{}\n",
      optimizer_table(optimizer_specs(c, run.trainer->model().table()), optimizer_options(c)));
  say("memory (all buffers: moraine plan memory):\n{}\n", memory_table(run.arena, kShownOfMemory));
  const auto plan = run.data->loader(0).plan(0, 0);
  const Loader& data = run.data->loader(0);
  const double tokens = static_cast<double>(data.total_tokens()),
               targets = static_cast<double>(data.total_targets());
  say("data: {} tokens{}; packing fills {:.2f}% of {} sequences an epoch\n", format_count(tokens),
      targets < tokens ? fmt::format(", {} of them targets", format_count(targets)) : "",
      100 * plan->efficiency(), plan->num_sequences());
  say("run: {} steps, {} tokens, from step {}\n", run.timeline.steps(),
      format_count(static_cast<double>(run.timeline.tokens())), run.state.step);
  print_legend(run);
  say("\n");
}

void print_step(const StepMetrics& metrics) { say("{}\n", human_line(metrics)); }

void print_profile(const std::string& text) { say_text(text); }

void print_no_profile() { say("profile: no step was left to watch\n"); }

void print_sample(int64_t step, const std::string& text) {
  say("--- sample at step {}\n{}\n---\n", step, text);
}

}  // namespace moraine
