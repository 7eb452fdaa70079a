// Opening, resuming and saving a run.
#include "train/run.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "base/resident.h"
#include "kernels/isa.h"
#include "model/model_directory.h"

namespace moraine {
namespace {

std::string tokenizer_text(FileSystem& fs, const RunConfig& c) {
  if (!c.data.tokenizer.empty()) {
    const bool folder = fs.is_directory(c.data.tokenizer);
    return fs.read(folder ? join_path(c.data.tokenizer, "tokenizer.json") : c.data.tokenizer);
  }
  return c.train.init.empty() ? "" : ModelDirectory::open(fs, c.train.init).tokenizer_json();
}

void check_tokenizer(const RunConfig& c, const RunData& data, const Tokenizer& tokenizer) {
  const Hash128 hash =
      hash_bytes(tokenizer.json().data(), static_cast<int64_t>(tokenizer.json().size()));
  if (hash == data.meaning().tokenizer_hash) return;
  throw_error(Code::kInvalidArgument,
              "data.tokenizer {}: the data was built with another tokenizer; build it again, or "
              "name the one it was built with",
              c.data.tokenizer.empty() ? c.train.init : c.data.tokenizer);
}

// The first lines in which two texts differ; equal: empty.
std::pair<std::string, std::string> differing_lines(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const size_t ae = std::min(a.find('\n', i), a.size()), be = std::min(b.find('\n', j), b.size());
    const std::string x = i < a.size() ? a.substr(i, ae - i) : "",
                      y = j < b.size() ? b.substr(j, be - j) : "";
    if (x != y) return {x, y};
    i = ae + 1, j = be + 1;
  }
  return {};
}

// First line in which two configs differ, for a message.
std::string first_difference(const std::string& a, const std::string& b) {
  const auto [x, y] = differing_lines(a, b);
  return x == y ? "" : fmt::format("the run has `{}`, this config says `{}`", x, y);
}

void check_same_run(const Run& run, const Checkpoint& checkpoint) {
  const RunConfig before = read_run_config(
      SettingsTable::parse(checkpoint.info().config, checkpoint.directory() + ": config"));
  const std::string difference = first_difference(answer_text(before), answer_text(run.config));
  if (!difference.empty()) {
    throw_error(Code::kInvalidArgument,
                "resume {}: {}; a run must go on as it began: restore the value, or start a new "
                "run (another --out, or --resume never)",
                checkpoint.directory(), difference);
  }
  const auto& values = checkpoint.info().values;
  const auto data = values.find("data.hash");
  if (data != values.end() && data->second != hash_hex(run.data->hash())) {
    throw_error(Code::kInvalidArgument,
                "resume {}: the training data has other content than when the run began; restore "
                "it, or start a new run",
                checkpoint.directory());
  }
}

void resume_from(Run& run, const Checkpoint& checkpoint) {
  check_same_run(run, checkpoint);
  run.trainer->restore(checkpoint);
  run.read_info(checkpoint.info());
  if (!run.first()) return;
  log_event(Level::kInfo, "checkpoint.loaded", "directory={} step={} tokens={}",
            checkpoint.directory(), run.step, checkpoint.info().tokens_seen);
}

// Steps that every run of this config saves, however often it was stopped: only to these may it
// roll back, or the answer would depend on the stops.
bool is_regular_save(const RunConfig& c, int64_t step) {
  return step > 0 && step % c.checkpoint.every_steps == 0;
}

void warn_bad(const std::string& directory, const std::string& reason) {
  log_event(Level::kWarning, "checkpoint.bad", "directory={} reason=\"{}\"", directory, reason);
}

// Where rank 0 wants to go on from; empty: a new run.
std::string resume_directory(Run& run) {
  const std::string& how = run.options.resume;
  if (how == "never") {
    if (!list_checkpoints(run.fs, run.options.out).empty()) {
      throw_error(Code::kInvalidArgument,
                  "--resume never: {} holds a run already; remove it or choose another --out",
                  run.options.out);
    }
    return "";
  }
  if (how != "auto") return Checkpoint::open(run.fs, how).directory();
  if (!run.fs.exists(run.options.out)) return "";
  const auto checkpoint = newest_good(run.fs, run.options.out, warn_bad);
  if (checkpoint) return checkpoint->directory();
  if (list_checkpoints(run.fs, run.options.out).empty()) return "";
  throw_error(Code::kCorrupt,
              "resume {}: it holds checkpoints, and none of them is whole; `moraine inspect {}` "
              "names the damage; to start again, choose another --out",
              run.options.out, run.options.out);
}

// Where this host has the newest copy in memory, if it is newer than `step`; else empty.
std::string newer_in_memory(Run& run, int64_t step) {
  if (run.memory == nullptr || run.options.resume != "auto") return "";
  // Somebody removed the folder of the run to begin again.
  const std::string begun = join_path(run.options.out, "config.toml");
  if (from_first(run, run.first() && run.fs.exists(begun) ? "begun" : "").empty()) {
    run.memory->remove();
    return "";
  }
  const std::optional<std::string> copy = run.memory->newest(warn_bad);
  if (!copy) return "";
  const Checkpoint checkpoint = Checkpoint::open(run.fs, *copy, /*verify=*/false);
  return checkpoint.info().step > step ? *copy : "";
}

bool resume(Run& run) {
  // Rank 0 has verified it; parts are checked again as they are read.
  const std::string directory = from_first(run, run.first() ? resume_directory(run) : "");
  std::optional<Checkpoint> disk;
  if (!directory.empty()) disk = Checkpoint::open(run.fs, directory, /*verify=*/false);
  const std::string copy = newer_in_memory(run, disk ? disk->info().step : -1);
  if (!copy.empty()) {
    resume_from(run, Checkpoint::open(run.fs, copy, /*verify=*/false));
    return true;
  }
  if (!disk) return false;
  resume_from(run, *disk);
  if (run.options.resume != "auto") return true;
  run.saved_step = run.step;
  // A crash may have come between the checkpoint and its mark.
  if (run.first() && is_regular_save(run.config, run.step))
    mark_last_good(run.fs, run.options.out, run.step);
  return true;
}

void start_new(Run& run) {
  const uint64_t seed = static_cast<uint64_t>(run.config.train.seed);
  if (run.config.train.init.empty()) {
    run.trainer->initialize(seed);
  } else {
    const ModelDirectory directory = ModelDirectory::open(run.fs, run.config.train.init);
    directory.read_weights(run.trainer->model().table(), run.trainer->master());
    if (run.first()) log_event(Level::kInfo, "model.loaded", "directory={}", directory.path());
  }
  run.trainer->refresh();
}

int ranks_on_this_host(const Transport& transport) {
  int ranks = 0;
  for (int r = 0; r < transport.size(); ++r)
    ranks += transport.host_of(r) == transport.host_of(transport.rank());
  return ranks;
}

// Threads of one rank: the cores that the launcher has bound it to; else the cores of its host are
// shared with the other ranks there.
int run_threads(const RunConfig& c, const Transport& transport) {
  if (c.train.threads > 0) return static_cast<int>(c.train.threads);
  const bool bound = transport.name().starts_with("mpi") && usable_cores() < machine_cores();
  return std::max(1, bound ? usable_cores() : usable_cores() / ranks_on_this_host(transport));
}

// Threads move to other cores at will, processes too: a rank is a program, an instruction set and a
// config.
std::string identity(const Run& run) {
  const std::string program = posix_file_system().read("/proc/self/exe");
  return fmt::format("program = {}\ninstructions = {}\nout = {}\nresume = {}\ndata = {}\n{}",
                     hash_hex(hash_bytes(program.data(), static_cast<int64_t>(program.size()))),
                     isa_name(isa()), run.options.out, run.options.resume,
                     hash_hex(run.data->hash()), print_run_config(run.config));
}

// One answer needs one program and one config.
void check_same_everywhere(Run& run) {
  const std::vector<std::string> all = all_gather_text(run.ranks.world, identity(run));
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto [first, other] = differing_lines(all[0], all[r]);
    throw_error(Code::kInvalidArgument,
                "start: rank 0 has `{}`, rank {} has `{}`; all ranks of a run must run the same "
                "program with the same config and data",
                first, r, other);
  }
}

Mesh run_mesh(const RunConfig& c, int ranks, int rank) {
  return make_mesh(ranks, rank, c.parallel.expert, phase_context(c, 0), c.train.slots,
                   c.model.experts);
}

MemoryCopyOptions memory_options(const RunConfig& c) {
  MemoryCopyOptions options;
  options.base = c.checkpoint.memory_folder;
  return options;
}

// [model] of a run that starts from a model is the model's own.
void adopt_model(FileSystem& fs, RunConfig& c) {
  ModelConfig given = c.model, unset;
  c.model = ModelDirectory::open(fs, c.train.init).config();
  const std::string difference =
      first_difference(print_fields(model_fields(c.model)), print_fields(model_fields(given)));
  if (difference.empty() || print_fields(model_fields(given)) == print_fields(model_fields(unset)))
    return;
  throw_error(Code::kInvalidArgument,
              "train.init = {}: {}; the shape comes with the model: leave [model] out",
              c.train.init, difference);
}

// The shape and tokenizer of a run that has begun are its own: the model it started from may be
// gone.
void adopt_own_model(FileSystem& fs, const RunOptions& options, RunConfig& c) {
  const std::vector<int64_t> steps = list_checkpoints(fs, options.out);
  const std::string saved = join_path(options.out, "config.toml");
  if (steps.empty() || options.resume == "never" || !fs.exists(saved)) return;
  const RunConfig own = read_run_config(SettingsTable::parse(fs.read(saved), saved));
  if (own.train.init != c.train.init) return;  // check_same_run will say so
  c.model = own.model;
  if (c.data.tokenizer.empty() && fs.exists(join_path(options.out, "tokenizer.json")))
    c.data.tokenizer = options.out;
}

// The kernel hands out more than there is, and kills whoever touches it: better to say so before
// step one.
void check_memory(const Run& run, const Transport& transport) {
  Arena planned(Arena::Mode::kDry);
  plan_run_memory(planned, run.config, transport.size(), transport.rank());
  const int64_t available = available_memory_bytes(), here = ranks_on_this_host(transport);
  if (planned.bytes() * here <= available) return;
  throw_error(Code::kInvalidArgument,
              "take memory: the run plans {:.1f} MiB on each of {} ranks of this host, and {:.1f} "
              "MiB are available; `moraine plan memory` prints by name what takes it; "
              "train.recompute = \"layer\", fewer slots or a smaller micro batch need less",
              static_cast<double>(planned.bytes()) / (1 << 20), here,
              static_cast<double>(available) / (1 << 20));
}

}  // namespace

Run::Run(FileSystem& files, const RunConfig& c, const RunOptions& o, const Timeline& t,
         std::unique_ptr<RunData> d, Transport& transport)
    : fs(files),
      config(c),
      options(o),
      timeline(t),
      data(std::move(d)),
      ranks(transport, run_mesh(c, transport.size(), transport.rank()),
            c.parallel.deadline_seconds),
      pool(run_threads(c, transport)),
      arena(Arena::Mode::kReal),
      spike(c.spike.sigma) {}

CheckpointInfo Run::info() const {
  CheckpointInfo info;
  info.step = step;
  info.tokens_seen = step < timeline.steps() ? timeline.at(step).tokens_before : timeline.tokens();
  info.seed = static_cast<uint64_t>(config.train.seed);
  char text[64];
  std::snprintf(text, sizeof text, "%a", loss);
  info.values = {{"spike", spike.save()},
                 {"skip_sequences", std::to_string(skip_sequences)},
                 {"skip_phase", std::to_string(skip_phase)},
                 {"rollbacks", std::to_string(rollbacks)},
                 {"loss", text},
                 {"data.hash", hash_hex(data->hash())}};
  // What the weights were last trained with, for who reads them as a model.
  const double theta =
      config.phases[static_cast<size_t>(step > 0 ? timeline.at(step - 1).phase : 0)].rope_theta;
  if (theta > 0) info.values["rope_theta"] = fmt::format("{}", theta);
  info.config = print_run_config(config);
  return info;
}

void Run::read_info(const CheckpointInfo& info) {
  const auto value = [&](const char* key) {
    const auto found = info.values.find(key);
    if (found == info.values.end())
      throw_error(Code::kCorrupt,
                  "checkpoint step {}: value {} is missing; is it a model without training state?",
                  info.step, key);
    return found->second;
  };
  step = info.step;
  saved_step = -1;
  spike.restore(value("spike"));
  skip_sequences = std::strtoll(value("skip_sequences").c_str(), nullptr, 10);
  skip_phase = std::strtoll(value("skip_phase").c_str(), nullptr, 10);
  rollbacks = std::strtoll(value("rollbacks").c_str(), nullptr, 10);
  loss = std::strtod(value("loss").c_str(), nullptr);
}

std::vector<CheckpointFile> Run::files() const {
  std::vector<CheckpointFile> carried = {{"config.toml", print_run_config(config)}};
  if (tokenizer != nullptr) carried.push_back({"tokenizer.json", tokenizer->json()});
  return carried;
}

RunConfig complete_config(FileSystem& fs, RunConfig c) {
  if (!c.train.init.empty() && c.model.vocab_size == 0) adopt_model(fs, c);
  if (c.phases.front().train.empty()) return c;
  const TokenMeaning meaning = read_manifest(fs, c.phases.front().train.front().path).meaning;
  if (c.model.vocab_size == 0) c.model.vocab_size = meaning.vocabulary_size;
  if (c.model.vocab_size < meaning.vocabulary_size) {
    throw_error(Code::kInvalidArgument,
                "model.vocab_size = {}: the data has tokens up to {}; wanted at least {} (or 0: as "
                "the data)",
                c.model.vocab_size, meaning.vocabulary_size - 1, meaning.vocabulary_size);
  }
  if (c.model.eos_id < 0) c.model.eos_id = meaning.eos_id;
  return c;
}

std::string from_first(Run& run, const std::string& text) {
  return all_gather_text(run.ranks.world, run.first() ? text : "")[0];
}

namespace {

// Rank 0 has the machine file.
TrainerOptions agreed_options(Run& run) {
  TrainerOptions options = trainer_options(run.config, run.timeline, run.machine);
  const std::string text = from_first(
      run, fmt::format("{} {}", options.bucket_bytes, static_cast<int>(options.variant)));
  char* rest = nullptr;
  options.bucket_bytes = std::strtoll(text.c_str(), &rest, 10);
  options.variant = static_cast<ContextVariant>(std::strtol(rest, nullptr, 10));
  return options;
}

}  // namespace

std::unique_ptr<Run> open_run(FileSystem& fs, const RunConfig& given, const RunOptions& options,
                              Transport& transport) {
  RunConfig config = given;
  if (!given.train.init.empty()) adopt_own_model(fs, options, config);
  config = complete_config(fs, config);
  const Timeline timeline(config);
  auto data = std::make_unique<RunData>(fs, config, timeline);
  auto run = std::make_unique<Run>(fs, config, options, timeline, std::move(data), transport);
  check_same_everywhere(*run);
  const std::string tokenizer = tokenizer_text(fs, config);
  if (!tokenizer.empty()) {
    run->tokenizer = Tokenizer::parse(tokenizer, "tokenizer.json");
    check_tokenizer(config, *run->data, *run->tokenizer);
  }
  if (run->first()) {
    run->machine = options.machine_file.empty() ? measure_machine_quick(run->pool)
                                                : load_machine(fs, options.machine_file);
  }
  check_memory(*run, transport);
  run->trainer = std::make_unique<Trainer>(run->arena, run->pool, config, timeline, run->ranks,
                                           agreed_options(*run));
  if (run->first()) fs.make_directories(options.out);
  if (config.checkpoint.memory_every_steps > 0) {
    run->memory =
        std::make_unique<MemoryCopy>(run->ranks.memory, fs, options.out, memory_options(config));
  }
  if (!resume(*run)) start_new(*run);
  const SaverOptions saver{
      .retention = {.keep = config.checkpoint.keep,
                    .permanent_every = config.checkpoint.permanent_every_steps},
      .checkpoint = {}};
  run->saver = std::make_unique<ShardedSaver>(run->ranks.saver, fs, options.out, saver);
  if (!run->first()) return run;
  fs.write_atomic(join_path(options.out, "config.toml"), print_run_config(config));
  if (run->tokenizer != nullptr)
    fs.write_atomic(join_path(options.out, "tokenizer.json"), run->tokenizer->json());
  run->open_logs();
  return run;
}

void Run::open_logs() {
  if (!first()) return;
  metrics = std::make_unique<MetricsWriter>(fs, join_path(options.out, "metrics.jsonl"), step);
  events = std::make_unique<EventWriter>(fs, join_path(options.out, "tensorboard"), step,
                                         static_cast<double>(std::time(nullptr)));
}

Cache make_sample_cache(Arena& arena, const RunConfig& config, Trainer& trainer) {
  return make_cache(arena, config.model, compute_dtype(config), 1,
                    trainer.model().options().positions);
}

void plan_run_memory(Arena& arena, const RunConfig& config, int ranks, int rank) {
  const Timeline timeline(config);
  PlannedRanks planned(run_mesh(config, ranks, rank));
  Pool pool(run_threads(config, planned.ranks().world.transport()));
  Trainer trainer(arena, pool, config, timeline, planned.ranks(),
                  trainer_options(config, timeline, Machine()));
  if (!config.data.tokenizer.empty() || !config.train.init.empty())
    make_sample_cache(arena, config, trainer);
}

namespace {

void report_disk(Run& run, bool wait) {
  const std::optional<SaveResult> saved = wait ? run.saver->wait() : run.saver->poll();
  if (!saved) return;
  run.saved_step = saved->step;
  if (!run.first()) return;
  log_event(Level::kInfo, "checkpoint.saved", "step={} bytes={} ms={:.0f} still_ms={:.1f} hash={}",
            saved->step, saved->written.bytes, saved->seconds * 1e3, run.still_seconds * 1e3,
            hash_hex(saved->written.hash));
  if (!saved->warning.empty())
    log_event(Level::kWarning, "checkpoint.retention", "{}", saved->warning);
  mark_last_good(run.fs, run.options.out, saved->step);
}

void report_memory(Run& run, bool wait) {
  if (run.memory == nullptr) return;
  const std::optional<SaveResult> saved = wait ? run.memory->wait() : run.memory->poll();
  if (!saved || !run.first()) return;
  if (!saved->written.directory.empty()) {
    log_event(Level::kInfo, "memory.saved", "step={} bytes={} ms={:.0f} still_ms={:.1f}",
              saved->step, saved->written.bytes, saved->seconds * 1e3, run.still_seconds * 1e3);
  }
  if (!saved->warning.empty()) log_event(Level::kWarning, "memory.refused", "{}", saved->warning);
}

}  // namespace

void report_save(Run& run, bool wait) {
  report_memory(run, wait);
  try {
    report_disk(run, wait);
  } catch (const Error& e) {
    if (e.code() == Code::kPeerLost) throw;
    if (wait && run.step == run.timeline.steps()) throw;  // the run's result is not on disk
    if (!run.first()) return;
    log_event(Level::kError, "checkpoint.failed",
              "code={} reason=\"{}\" remedy=\"training goes on, the next save tries again\"",
              code_name(e.code()), e.what());
  }
}

bool saving(const Run& run) {
  return !run.saver->idle() || (run.memory != nullptr && !run.memory->idle());
}

void save_in_background(Run& run) {
  const double begin = now_seconds();
  report_save(run, /*wait=*/true);
  run.saver->start(run.info(), run.trainer->copy_shard(), run.files());
  run.still_seconds = now_seconds() - begin;
  fault_point("save.started");
}

void copy_to_memory(Run& run) {
  const double begin = now_seconds();
  report_save(run, /*wait=*/true);
  run.memory->start(run.info(), run.trainer->copy_shard(), run.files());
  run.still_seconds = now_seconds() - begin;
  fault_point("memory.started");
}

CheckpointWritten write_live_state(Run& run) {
  return write_checkpoint_sharded(run.ranks.world, run.fs, run.options.out, run.info(),
                                  run.trainer->shard(), run.files(), /*with_hash=*/true);
}

CheckpointWritten save_now(Run& run) {
  report_save(run, /*wait=*/true);
  if (run.saved_step == run.step) {  // the background save wrote it, or the run was resumed from it
    const std::string directory = checkpoint_path(run.fs, run.options.out, run.step);
    const Checkpoint checkpoint = Checkpoint::open(run.fs, directory, /*verify=*/false);
    return {.directory = directory,
            .bytes = checkpoint.bytes(),
            .hash = checkpoint_hash_sharded(run.ranks.world, checkpoint)};
  }
  const CheckpointWritten written = write_live_state(run);
  run.saved_step = run.step;
  if (!run.first()) return written;
  if (is_regular_save(run.config, run.step)) mark_last_good(run.fs, run.options.out, run.step);
  log_event(Level::kInfo, "checkpoint.saved", "step={} bytes={} hash={}", run.step, written.bytes,
            hash_hex(written.hash));
  apply_retention(run.fs, run.options.out,
                  {.keep = run.config.checkpoint.keep,
                   .permanent_every = run.config.checkpoint.permanent_every_steps},
                  run.step);
  return written;
}

}  // namespace moraine
