// What a run is made of, and its state as a checkpoint tells it.
#include "train/run.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "comm/all_ranks.h"
#include "kernels/gpu/open_device.h"
#include "parallel/rank_threads.h"
#include "train/run_kept.h"
#include "train/run_mesh.h"

namespace moraine {
namespace {

bool same_place(const Mesh& a, const Mesh& b) {
  return a.ranks == b.ranks && a.rank == b.rank && a.context == b.context && a.expert == b.expert;
}

ArenaReserve* kept_memory(RunKept* kept, const Mesh& mesh) {
  if (kept == nullptr) return nullptr;
  if (!same_place(kept->mesh, mesh)) kept->memory.clear();
  kept->mesh = mesh;
  return &kept->memory;
}

Arena make_arena(gpu::GpuArenaMemory* device, ArenaReserve* reserve) {
  return device != nullptr ? Arena(Arena::Mode::kReal, device) : Arena(Arena::Mode::kReal, reserve);
}

}  // namespace

Run::Run(FileSystem& files, const RunConfig& c, const RunOptions& o, const Timeline& t,
         std::unique_ptr<RunData> d, Transport& transport)
    : fs(files),
      config(c),
      options(o),
      timeline(t),
      data(std::move(d)),
      ranks(transport,
            run_mesh(c, transport.size(), transport.rank(), o.kept != nullptr ? o.kept->phase : 0),
            c.parallel.deadline_seconds),
      pool(rank_threads(c.train.threads, ranks.world)),
      gpu(gpu::open_device(c.train.device, rank_of_host(transport))),
      generation(gpu == nullptr ? "cpu" : gpu->generation()),
      gpu_memory(gpu == nullptr ? nullptr : std::make_unique<gpu::GpuArenaMemory>(*gpu)),
      arena(make_arena(gpu_memory.get(), kept_memory(o.kept, ranks.mesh))),
      state{.spike = SpikeDetector(c.spike.sigma)} {}

Run::~Run() {
  if (options.kept == nullptr) return;
  options.kept->data = std::move(data);
  options.kept->tokenizer = std::move(tokenizer);
  options.kept->chat_template = chat_template;
}

CheckpointInfo Run::info() const {
  const int64_t step = state.step;
  CheckpointInfo info;
  write_state(state, &info);
  info.tokens_seen = step < timeline.steps() ? timeline.at(step).tokens_before : timeline.tokens();
  info.seed = static_cast<uint64_t>(config.train.seed);
  info.values["ranks"] = std::to_string(ranks.mesh.ranks);
  if (gpu != nullptr) info.values[kGenerationValue] = generation;
  info.values["data.hash"] = hash_hex(data->hash());
  // What the weights were last trained with, for who reads them as a model.
  const double theta =
      config.phases[static_cast<size_t>(step > 0 ? timeline.at(step - 1).phase : 0)].rope_theta;
  if (theta > 0) info.values["rope_theta"] = fmt::format("{}", theta);
  info.config = print_run_config(config);
  return info;
}

std::vector<CheckpointFile> Run::files() const {
  std::vector<CheckpointFile> carried = {{"config.toml", print_run_config(config)}};
  if (tokenizer != nullptr) carried.push_back({"tokenizer.json", tokenizer->json()});
  if (!chat_template.empty()) carried.push_back({"chat_template.jinja", chat_template});
  return carried;
}

void Run::open_logs() {
  if (!first()) return;
  logs.metrics =
      std::make_unique<MetricsWriter>(fs, join_path(options.out, "metrics.jsonl"), state.step);
  logs.events = std::make_unique<EventWriter>(fs, join_path(options.out, "tensorboard"), state.step,
                                              static_cast<double>(std::time(nullptr)));
}

}  // namespace moraine
