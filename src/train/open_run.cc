// Each thing that a run has, in the order in which one needs the other.
#include "train/open_run.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault_point.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/resident.h"
#include "checkpoint/history.h"
#include "comm/agree.h"
#include "data/dataset.h"
#include "kernels/isa.h"
#include "model/model_directory.h"
#include "model/parameters.h"
#include "train/auto_dtype.h"
#include "train/auto_plan.h"
#include "train/check_device_config.h"
#include "train/check_memory.h"
#include "train/complete_config.h"
#include "train/config_difference.h"
#include "train/resume.h"
#include "train/run_kept.h"
#include "train/run_memory.h"

namespace moraine {
namespace {

// What the run carries along for who uses the model.
struct CarriedTexts {
  std::string tokenizer, chat_template;  // empty: none
};

// The tokenizer that the config names. The chat template of the conversations in the last phase's data: the model will
// be asked in that form. Else those of the model that the run begins with.
CarriedTexts carried_texts(FileSystem& fs, const RunConfig& c) {
  CarriedTexts texts;
  if (!c.data.tokenizer.empty()) {
    const bool folder = fs.is_directory(c.data.tokenizer);
    texts.tokenizer =
        fs.read(folder ? join_path(c.data.tokenizer, "tokenizer.json") : c.data.tokenizer);
  }
  for (const DataSource& source : c.phases.back().train)
    if (texts.chat_template.empty()) texts.chat_template = read_chat_template(fs, source.path);
  if (!c.train.init.empty() && (texts.tokenizer.empty() || texts.chat_template.empty())) {
    const ModelDirectory init = ModelDirectory::open(fs, c.train.init);
    if (texts.tokenizer.empty()) texts.tokenizer = init.tokenizer_json();
    const std::string path = join_path(init.path(), "chat_template.jinja");
    if (texts.chat_template.empty() && fs.exists(path)) texts.chat_template = fs.read(path);
  }
  return texts;
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

// Threads move to other cores at will, processes too: a rank is a program, an instruction set and a
// config.
std::string identity(const Run& run) {
  const std::string program = posix_file_system().read("/proc/self/exe");
  return fmt::format(
      "program = {}\ninstructions = {}\ngeneration = {}\nout = {}\nresume = {}\ndata = {}\n{}",
      hash_hex(hash_bytes(program.data(), static_cast<int64_t>(program.size()))), isa_name(isa()),
      run.generation, run.options.out, run.options.resume, hash_hex(run.data->hash()),
      print_run_config(run.config));
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

void take_up_texts(Run& run) {
  if (run.options.kept != nullptr && run.options.kept->tokenizer != nullptr) {
    run.tokenizer = std::move(run.options.kept->tokenizer);
    run.chat_template = run.options.kept->chat_template;
    return;
  }
  const CarriedTexts carried = carried_texts(run.fs, run.config);
  if (carried.tokenizer.empty()) return;
  run.tokenizer = Tokenizer::parse(carried.tokenizer, "tokenizer.json");
  check_tokenizer(run.config, *run.data, *run.tokenizer);
  run.chat_template = carried.chat_template;
}

// What an earlier rank 0 of this run has measured, if that can be read and is of this machine.
std::optional<Machine> measured_before(Run& run, const std::string& path) {
  if (!run.fs.exists(path)) return std::nullopt;
  try {
    Machine machine = load_machine(run.fs, path);
    if (machine.isa == isa_name(isa())) return machine;
  } catch (const Error&) {
    return std::nullopt;  // it is a convenience: then it is measured
  }
  return std::nullopt;
}

// Shares of a peak, and dtype = "auto", are as good as the file.
void warn_of_other_machine(const Run& run) {
  const char* here = isa_name(isa());
  const Machine& m = run.machine;
  // Ranks of one host share its threads; no share of a device's peak is told.
  if (run.gpu != nullptr || (m.isa == here && m.threads >= run.pool.threads())) return;
  log_event(Level::kWarning, "machine.other",
            "file={} isa={} threads={} this_isa={} this_threads={} "
            "effect=\"shares of the peak, and dtype auto, are as good as it is\" "
            "remedy=\"leave --machine out, or measure again: moraine bench memory\"",
            run.options.machine_file, m.isa, m.threads, here, run.pool.threads());
}

// Where ranks are replaced the others wait for this: it is measured once, by the first process that is rank 0.
void take_up_machine(Run& run) {
  const RunOptions& o = run.options;
  if (!o.machine_file.empty()) {
    run.machine = load_machine(run.fs, o.machine_file);
    return warn_of_other_machine(run);
  }
  const std::string own = join_path(o.out, "machine.json");
  const std::optional<Machine> before =
      o.kept != nullptr ? measured_before(run, own) : std::nullopt;
  run.machine = before ? *before : measure_machine_quick(run.pool);
  if (o.kept == nullptr || before) return;
  try {
    run.fs.make_durable_directories(o.out);
    save_machine(run.fs, own, run.machine);
  } catch (const Error&) {
    return;  // the next rank 0 measures again; what else does not fit on the disk is said elsewhere
  }
}

MemoryCopyOptions memory_options(const RunConfig& c) {
  MemoryCopyOptions options;
  options.base = c.checkpoint.memory_folder;
  return options;
}

// Before anything is made for it: weights alone that no machine holds.
void check_weights(const RunConfig& c) {
  const double bytes = 4.0 * static_cast<double>(count_parameters(c.model).total) /
                       static_cast<double>(phase_expert(c, 0));
  const int64_t available = available_memory_bytes();
  if (bytes <= static_cast<double>(available)) return;
  throw_error(
      Code::kInvalidArgument,
      "take memory: the weights of the model alone are {:.1f} MiB or more on each rank, and "
      "{:.1f} MiB are available; `moraine plan memory` prints by name what a run takes; "
      "wanted a smaller model, or more ranks over which its experts are divided",
      bytes / (1 << 20), static_cast<double>(available) / (1 << 20));
}

// How the devices of ranks reach each other.
void open_links(Run& run) {
  const ParallelConfig& p = run.config.parallel;
  if (run.gpu == nullptr || run.ranks.mesh.ranks == 1) return;
  std::string reason = host_alone(run.config, run.ranks.mesh.expert);
  if (reason.empty())
    run.links = open_device_links(p.device_links, *run.gpu, run.ranks.shared, &reason);
  if (!run.first()) return;
  log_event(Level::kInfo, "device.links", "ranks={} by={}{}", run.ranks.mesh.ranks,
            run.links != nullptr ? "library" : "host",
            reason.empty() ? "" : fmt::format(" reason=\"{}\"", reason));
}

int64_t layout_phase(const Run& run) {
  return run.options.kept != nullptr ? run.options.kept->phase : 0;
}

// Rank 0 has the machine file, or has measured: on a busy machine that takes its time.
TrainerOptions agreed_options(Run& run) {
  TrainerOptions options = trainer_options(run.config, run.timeline, run.machine);
  options.phase = layout_phase(run);
  options = value_of_first(run.ranks.disk, options);
  options.gpu = run.gpu.get();
  options.links = run.links.get();
  return options;
}

// A run that goes on by itself may find the lock of a rank whose host is gone: over a network it lasts until its lease
// ends. The other ranks wait meanwhile.
std::unique_ptr<FileLock> take_folder(const Run& run) {
  constexpr double kLeaseSeconds = 120, kAgainSeconds = 0.25;
  const bool goes_on = run.options.has_newcomers || run.options.is_watched;
  const double patience =
      goes_on ? std::min(kLeaseSeconds, run.config.parallel.deadline_seconds / 2) : 0;
  const double until = now_seconds() + patience;
  for (;;) {
    try {
      return FileLock::take(run.options.out, "train into " + run.options.out);
    } catch (const Error& e) {
      if (e.code() != Code::kInvalidArgument || patience == 0) throw;
      if (now_seconds() > until) throw_error(Code::kTimeout, "{}", e.what());
    }
    beat();  // it waits, and does not hang
    std::this_thread::sleep_for(std::chrono::duration<double>(kAgainSeconds));
  }
}

}  // namespace

std::unique_ptr<Run> open_run(FileSystem& fs, const RunConfig& given, const RunOptions& options,
                              Transport& transport) {
  RunKept* const kept = options.kept;
  RunConfig config = given;
  const bool has_own_model = !given.train.init.empty() && options.resume != "never" &&
                             adopt_own_model(fs, options.out, config);
  config = complete_config(fs, config, has_own_model);
  // A run that began before there was this rule goes on.
  if (list_checkpoints(fs, options.out).empty()) check_positions(config);
  check_device_config(config, transport.size());
  settle_plan(fs, config, options, transport);
  check_weights(config);
  const Timeline timeline(config);
  std::unique_ptr<RunData> data = kept ? std::move(kept->data) : nullptr;
  if (data == nullptr) data = std::make_unique<RunData>(fs, config, timeline);
  auto run = std::make_unique<Run>(fs, config, options, timeline, std::move(data), transport);
  check_same_everywhere(*run);
  run->options.profile_steps = value_of_first(run->ranks.world, run->options.profile_steps);
  fault_point("group.same");
  take_up_texts(*run);
  if (run->first()) take_up_machine(*run);
  settle_dtype(*run);
  config = run->config;
  open_links(*run);
  check_memory(*run, transport);
  run->trainer = std::make_unique<Trainer>(run->arena, run->pool, config, timeline, run->ranks,
                                           agreed_options(*run));
  if (run->first()) {
    fs.make_durable_directories(options.out);
    run->lock = take_folder(*run);
  }
  if (config.checkpoint.memory_every_steps > 0 || moves(config) ||
      (replans(config) && transport.size() > 1)) {
    run->saves.memory =
        std::make_unique<MemoryCopy>(run->ranks.memory, fs, options.out, memory_options(config));
  }
  if (!resume(*run)) start_new(*run);
  run->data->skip(run->state.skips);
  fault_point("resume.opened");
  const SaverOptions saver{
      .retention = {.keep = config.checkpoint.keep,
                    .permanent_every = config.checkpoint.permanent_every_steps},
      .checkpoint = {}};
  run->saves.disk = std::make_unique<DistributedSaver>(run->ranks.saver, fs, options.out, saver);
  if (!run->first()) return run;
  fs.write_atomic(join_path(options.out, "config.toml"), print_run_config(config));
  if (run->tokenizer != nullptr)
    fs.write_atomic(join_path(options.out, "tokenizer.json"), run->tokenizer->json());
  run->open_logs();
  return run;
}

}  // namespace moraine
