// Opening a run: config, data, machine, memory, and that all ranks have the same.
#include "train/run.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "base/resident.h"
#include "kernels/isa.h"
#include "model/model_directory.h"
#include "train/config_difference.h"
#include "train/resume.h"

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

int ranks_on_this_host(const Transport& transport) {
  int ranks = 0;
  for (int r = 0; r < transport.size(); ++r)
    ranks += transport.host_of(r) == transport.host_of(transport.rank());
  return ranks;
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
    barrier(run.ranks.world);  // everybody has seen it, and ends with this error
    throw_error(Code::kInvalidArgument,
                "start: rank 0 has `{}`, rank {} has `{}`; all ranks of a run must run the same "
                "program with the same config and data",
                first, r, other);
  }
}

// A count from 0 to `most`: the values of a checkpoint are text that may say anything.
int64_t read_integer(const std::string& text, int64_t most, const std::string& where) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && rest == end && number >= 0 && number <= most) return number;
  throw_error(Code::kCorrupt, "{} is \"{}\", wanted an integer from 0 to {}", where, text, most);
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

// `auto` becomes the type of the run that goes on, or the faster one of rank 0's machine. Collective.
void settle_dtype(Run& run) {
  if (run.config.train.dtype != "auto") return;
  std::string settled, reason;
  if (run.first()) {
    const std::string& resume = run.options.resume;
    const std::string saved = join_path(resume == "auto" ? run.options.out : resume, "config.toml");
    if (resume != "never" && run.fs.exists(saved)) {
      settled = read_run_config(SettingsTable::parse(run.fs.read(saved), saved)).train.dtype;
      reason = "the run has it";
    }
    if (settled.empty() || settled == "auto") {
      settled = faster_dtype(run.machine);
      reason = fmt::format("products: bf16 {:.1f}, f32 {:.1f} GFLOP/s", run.machine.bf16_gflops,
                           run.machine.f32_gflops);
    }
    log_event(Level::kInfo, "run.dtype", "dtype={} reason=\"{}\"", settled, reason);
  }
  run.config.train.dtype = all_gather_text(run.ranks.disk, settled)[0];  // measured: takes its time
}

// Before anything is made for it: weights alone that no machine holds.
void check_weights(const RunConfig& c) {
  const double bytes = 4.0 * static_cast<double>(count_parameters(c.model).total) /
                       static_cast<double>(c.parallel.expert);
  const int64_t available = available_memory_bytes();
  if (bytes <= static_cast<double>(available)) return;
  throw_error(
      Code::kInvalidArgument,
      "take memory: the weights of the model alone are {:.1f} MiB or more on each rank, and "
      "{:.1f} MiB are available; `moraine plan memory` prints by name what a run takes; "
      "wanted a smaller model, or more ranks over which its experts are divided",
      bytes / (1 << 20), static_cast<double>(available) / (1 << 20));
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
      pool(rank_threads(c.train.threads, ranks)),
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
                 {"ranks", std::to_string(ranks.mesh.ranks)},
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
  const auto integer = [&](const char* key, int64_t most) {
    return read_integer(value(key), most, fmt::format("checkpoint step {}: {}", info.step, key));
  };
  if (info.step > timeline.steps()) {
    throw_error(Code::kCorrupt, "checkpoint step {}: the run has {} steps", info.step,
                timeline.steps());
  }
  step = info.step;
  saved_step = -1;
  spike.restore(value("spike"));
  rollbacks = integer("rollbacks", config.spike.rollbacks_max);
  skip_phase = integer("skip_phase", static_cast<int64_t>(config.phases.size()) - 1);
  // A rollback leaves out no more than its phase has.
  int64_t most = 0;
  if (__builtin_mul_overflow(rollbacks, timeline.phase_sequences(skip_phase), &most))
    most = INT64_MAX / 2;
  skip_sequences = integer("skip_sequences", most);
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

void measure_dtype(RunConfig& config) {
  if (config.train.dtype != "auto") return;
  Pool pool(usable_cores());
  config.train.dtype = faster_dtype(measure_machine_quick(pool));
}

int rank_threads(int64_t wanted, Ranks& ranks) {
  const Transport& transport = ranks.world.transport();
  const std::string mine =
      fmt::format("host {} cores {}", transport.host_of(transport.rank()), core_mask());
  const std::vector<std::string> all = all_gather_text(ranks.world, mine);
  const int sharing = static_cast<int>(std::count(all.begin(), all.end(), mine));
  return wanted > 0 ? static_cast<int>(wanted) : std::max(1, usable_cores() / sharing);
}

std::string from_first(Run& run, const std::string& text) {
  return all_gather_text(run.ranks.world, run.first() ? text : "")[0];
}

namespace {

// Rank 0 has the machine file, or has measured: on a busy machine that takes its time.
TrainerOptions agreed_options(Run& run) {
  TrainerOptions options = trainer_options(run.config, run.timeline, run.machine);
  const std::string text = all_gather_text(
      run.ranks.disk,
      fmt::format("{} {}", options.bucket_bytes, static_cast<int>(options.variant)))[0];
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
  check_weights(config);
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
  settle_dtype(*run);
  config = run->config;
  check_memory(*run, transport);
  run->trainer = std::make_unique<Trainer>(run->arena, run->pool, config, timeline, run->ranks,
                                           agreed_options(*run));
  if (run->first()) {
    fs.make_directories(options.out);
    run->lock = FileLock::take(options.out, "train into " + options.out);
  }
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
  Pool pool(config.train.threads > 0 ? static_cast<int>(config.train.threads)
                                     : std::max(1, usable_cores() / ranks));
  Trainer trainer(arena, pool, config, timeline, planned.ranks(),
                  trainer_options(config, timeline, Machine()));
  if (!config.data.tokenizer.empty() || !config.train.init.empty())
    make_sample_cache(arena, config, trainer);
}

}  // namespace moraine
