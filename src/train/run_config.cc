// The tables of a run's TOML, their fields, and the rules across them.
#include "train/run_config.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/gpu/open_device.h"

namespace moraine {

const char* spike_policy_name(SpikePolicy policy) {
  constexpr const char* kNames[] = {"skip", "rollback", "stop"};
  return kNames[static_cast<size_t>(policy)];
}

namespace {

constexpr double kMany = 1e18;

Fields train_fields(TrainConfig& c) {
  return {
      {"seed", &c.seed, "", "Of every random draw: weights, data order, samples.", 0, kMany},
      {"slots", &c.slots, "",
       "Parts of a batch that are summed in a fixed tree. Ranks that have 1, 2, 4, 8 ... of them "
       "each, or one that has all, give the same bits.",
       1, 65536},
      {"sequence", &c.sequence, "positions", "Length of a packed sequence.", 2, 1 << 24},
      {"batch_tokens", &c.batch_tokens, "tokens",
       "Per optimizer step, all slots together: a multiple of slots * sequence.", 1, kMany},
      {"tokens", &c.tokens, "tokens", "Length of the run; or give steps, or phases.", 0, kMany},
      {"steps", &c.steps, "steps", "Length of the run in optimizer steps.", 0, kMany},
      choice_field("dtype", &c.dtype,
                   "Of weights and activations in the products; sums, residual stream and master "
                   "weights are f32. auto: the one that is faster on rank 0's machine when the "
                   "run begins; it stays the run's.",
                   {"bf16", "f32", "auto"}),
      choice_field(
          "recompute", &c.recompute,
          "What backward computes again instead of keeping: nothing, or each layer from its input.",
          {"none", "layer"}),
      {"init", &c.init, "",
       "Model directory or public checkpoint whose weights the run starts from; [model] is then "
       "taken from it."},
      {"micro_sequences", &c.micro_sequences, "sequences",
       "Sequences of a slot computed at a time; 0: all.", 0, kMany},
      {"clip_norm", &c.clip_norm, "", "Largest global gradient norm; 0: no limit.", 0, 1e9},
      {"ramp_tokens", &c.ramp_tokens, "tokens",
       "Batch ramp: until so many tokens are seen, the batch is the entry of ramp_batch_tokens.", 1,
       kMany},
      {"ramp_batch_tokens", &c.ramp_batch_tokens, "tokens",
       "Batch sizes of the ramp, one for each entry of ramp_tokens.", 1, kMany},
      {"threads", &c.threads, "",
       "Threads of a rank; 0: its share of the host's cores. No bit depends on it.", 0, 1024},
      {"time_limit_seconds", &c.time_limit_seconds, "seconds",
       "Save and exit (code 18) after this time; 0: no limit.", 0, 1e9},
      {"device", &c.device, "",
       "What computes, as the flag --device, which wins: cpu; gpu, or gpu:1 for the second: "
       "run on an H100; for other devices compiled and emulated; or emulated:RULE, a CPU that "
       "plays a GPU of a generation (plain, cdna2, cdna3, sm_80, sm_90), slowly. Each generation "
       "has its own bits. Ranks of a host take its devices in turn."},
      {"verify_every_steps", &c.verify_every_steps, "steps",
       "Between steps in which ranks check each other's weights and gradients for wrong bits, as "
       "they do before each save to disk; every rank checks its own memory in each step. 0: "
       "nothing is checked.",
       0, kMany},
  };
}

Fields optimizer_fields(OptimizerConfig& c) {
  return {
      choice_field("matrices", &c.matrices, "Rule of the weight matrices.", {"muon", "adamw"}),
      {"learning_rate", &c.learning_rate, "",
       "Peak rate of the matrices (Moonlight scaling: one rate fits Muon and AdamW).", 0, 10},
      {"adamw_learning_rate", &c.adamw_learning_rate, "",
       "Peak rate of everything else; 0: learning_rate.", 0, 10},
      {"embedding_lr_scale", &c.embedding_lr_scale, "", "Factor on the embedding's rate.", 0, 100},
      {"weight_decay", &c.weight_decay, "", "Decoupled, on matrices and the embedding.", 0, 10},
      {"momentum", &c.momentum, "", "Of Muon.", 0, 0.9999},
      {"nesterov", &c.nesterov, "", "Nesterov form of Muon's momentum."},
      choice_field("coefficients", &c.coefficients, "Newton-Schulz polynomial.",
                   {"classic", "polar_express"}),
      {"newton_schulz_steps", &c.newton_schulz_steps, "", "Iterations.", 1, 20},
      choice_field("newton_schulz_dtype", &c.newton_schulz_dtype, "Operands of its products.",
                   {"bf16", "f32"}),
      choice_field("momentum_dtype", &c.momentum_dtype, "Storage of Muon's momentum.",
                   {"bf16", "f32"}),
      {"beta1", &c.beta1, "", "AdamW.", 0, 0.9999},
      {"beta2", &c.beta2, "", "AdamW.", 0, 0.999999},
      {"eps", &c.eps, "", "AdamW.", 0, 1},
      {"balance_learning_rate", &c.balance_learning_rate, "",
       "Of the balancing biases; does not follow the schedule.", 0, 10},
      {"balance_warmup_steps", &c.balance_warmup_steps, "steps",
       "Linear warm-up of balance_learning_rate; 0: the whole rate from the first step on.", 0,
       kMany},
      {"balance_beta1", &c.balance_beta1, "", "AdamW of the balancing biases.", 0, 0.9999},
      {"balance_beta2", &c.balance_beta2, "", "AdamW of the balancing biases.", 0, 0.999999},
      choice_field("schedule", &c.schedule, "Shape of the learning rate over the run.",
                   {"constant", "linear", "cosine", "wsd"}),
      {"warmup_fraction", &c.warmup_fraction, "of the run", "Linear warm-up.", 0, 1},
      {"warmup_tokens", &c.warmup_tokens, "tokens",
       "Linear warm-up, whatever the length of the run: one that may be made longer wants it; 0: "
       "warmup_fraction.",
       0, kMany},
      {"decay_fraction", &c.decay_fraction, "of the run", "Last part, in which wsd decays.", 0, 1},
      choice_field("decay", &c.decay, "Form of wsd's decay.", {"linear", "1-sqrt"}),
      {"floor", &c.floor, "of the peak", "Where the schedule ends.", 0, 1},
  };
}

Fields spike_fields(SpikeConfig& c) {
  return {
      {"sigma", &c.sigma, "",
       "Deviations of the loss above its running mean that count as a spike; 0: only a loss or "
       "norm that is not finite does.",
       0, 1e6},
      choice_field(
          "policy", &c.policy,
          "A bad step: is skipped, rolls back to the last good checkpoint and skips the data, or "
          "stops the run.",
          {spike_policy_name(SpikePolicy::kSkip), spike_policy_name(SpikePolicy::kRollback),
           spike_policy_name(SpikePolicy::kStop)}),
      {"patience", &c.patience, "steps",
       "Bad steps in a row after which a skip becomes a rollback.", 1, 1e6},
      {"rollbacks_max", &c.rollbacks_max, "", "Rollbacks in all before the run stops as diverged.",
       0, 1e6},
  };
}

Fields checkpoint_fields(CheckpointConfig& c) {
  return {
      {"every_steps", &c.every_steps, "steps", "Between checkpoints; the last step always has one.",
       1, kMany},
      {"keep", &c.keep, "", "Newest checkpoints that stay.", 1, 1e6},
      {"permanent_every_steps", &c.permanent_every_steps, "steps",
       "Checkpoints at its multiples stay for good; 0: none.", 0, kMany},
      {"memory_every_steps", &c.memory_every_steps, "steps",
       "Between copies of the state in a peer's memory, used on restart where they survive and are "
       "newer than the disk; 0: none.",
       0, kMany},
      {"memory_folder", &c.memory_folder, "",
       "Where they are kept: a folder of a memory file system, on every host."},
  };
}

Fields report_fields(ReportConfig& c) {
  return {
      {"log_every_steps", &c.log_every_steps, "steps",
       "Between lines on the terminal (metrics.jsonl has every step).", 1, kMany},
      {"valid_every_steps", &c.valid_every_steps, "steps", "Between validations; 0: never.", 0,
       kMany},
      {"valid_tokens", &c.valid_tokens, "tokens", "Of the validation data that a validation reads.",
       1, kMany},
      {"sample_every_steps", &c.sample_every_steps, "steps", "Between samples; 0: never.", 0,
       kMany},
      {"sample_tokens", &c.sample_tokens, "tokens", "Length of a sample.", 1, 4096},
      {"sample_prompt", &c.sample_prompt, "", "Start of a sample; empty: a document's start."},
      {"probe_storage", &c.probe_storage, "",
       "Measure the disk of the data once, after the eighth step, with 0.2 s of random reads, and "
       "print what the run asks of it."},
  };
}

struct DataText {  // the scalar keys of [data]
  std::string train, valid, tokenizer;
  bool pack = true;
};

Fields data_fields(DataText& c) {
  return {
      {"train", &c.train, "",
       "Directory made by `moraine data build`; or a list of {path, weight}."},
      {"valid", &c.valid, "", "Likewise, for validation; empty: none."},
      {"tokenizer", &c.tokenizer, "",
       "Directory with tokenizer.json; empty: none (no samples, vocab_size must be given)."},
      {"pack", &c.pack, "", "Pack documents best-fit into sequences, cutting to fill holes."},
  };
}

Fields source_fields(DataSource& c) {
  return {{"path", &c.path, "", "Directory made by `moraine data build`."},
          {"weight", &c.weight, "", "Share of the sequences, relative to the other sources.", 1e-9,
           1e9}};
}

struct PhaseText {
  std::string train;
};

Fields phase_fields(PhaseConfig& c, PhaseText& text) {
  return {
      {"tokens", &c.tokens, "tokens", "Length of the phase.", 1, kMany},
      {"train", &text.train, "", "Data of the phase, as in [data]; absent: as [data]."},
      {"sequence", &c.sequence, "positions", "0: as [train].", 0, 1 << 24},
      {"batch_tokens", &c.batch_tokens, "tokens", "0: as [train], with its ramp.", 0, kMany},
      {"rope_theta", &c.rope_theta, "", "Rotary base of full-attention layers; 0: as [model].", 0,
       1e12},
      {"learning_rate", &c.learning_rate, "", "Peak rate; 0: as [optimizer].", 0, 10},
      {"context", &c.context, "ranks", "Ranks that share a sequence; 0: as [parallel].", 0, 65536},
      {"expert", &c.expert, "ranks",
       "Ranks over which the experts are divided; 0: as [parallel]. The run moves to another mesh, "
       "through memory, where a phase has another.",
       0, 65536},
      choice_field("recompute", &c.recompute, "Activations, as train.recompute.",
                   {"train", "none", "layer"}),
  };
}

// Ranks that are lost, and ways to other hosts.
Fields group_fields(ParallelConfig& c) {
  return {
      {"deadline_seconds", &c.deadline_seconds, "seconds",
       "Of every wait for another rank; then the run ends with code 15 and says who was silent. "
       "With --rendezvous no less than retry_attempts * (hold_seconds + retry_interval_seconds).",
       0.1, 1e6},
      {"rails", &c.rails, "",
       "With --rendezvous: the network paths to other hosts, each an interface, an address or a "
       "network (10.77.0.0/24: this host's address in it); empty: the one to the rendezvous. "
       "--rails wins, for hosts that differ."},
      {"retry_attempts", &c.retry_attempts, "",
       "With --rendezvous: how often an operation is held and run again while a rank is silent on "
       "all rails, before that counts as lost.",
       1, 1000},
      {"hold_seconds", &c.hold_seconds, "seconds",
       "How long it is held each time: whatever rail comes back, it goes on at once.", 0.5, 1e6},
      {"retry_interval_seconds", &c.retry_interval_seconds, "seconds",
       "How long new connections have then, over which all that has not arrived is sent again, "
       "before it is held again.",
       0, 1e6},
      {"replace_seconds", &c.replace_seconds, "seconds",
       "With --rendezvous: how long the ranks that are left wait for a process that takes the "
       "place "
       "of a lost one, before they go on with fewer; 0: a lost rank ends the run with code 15.",
       0, 1e6},
  };
}

Fields parallel_fields(ParallelConfig& c) {
  Fields fields = {
      choice_field(
          "plan", &c.plan,
          "Who chooses the mesh: this config, or the planner when the run begins. auto sets "
          "`expert`, and train.recompute if nothing fits in memory without; `context`, which "
          "changes bits, stays as given. shuffled: at random, to show that no bit depends on it.",
          {"given", "auto", "shuffled"}),
      {"replan_every_steps", &c.replan_every_steps, "steps",
       "How often the planner is asked again, unless the plan is given. 0: never.", 0, kMany},
      {"replan_gate", &c.replan_gate, "",
       "The run moves to another plan if that saves more than this share of a step. 0: if it saves "
       "anything, whatever moves take.",
       0, 1},
      {"expert", &c.expert, "ranks",
       "Ranks over which the experts of a layer are divided; a power of two. No bit depends on it.",
       1, 65536},
      {"context", &c.context, "ranks",
       "Ranks that share the tokens of one sequence; a power of two. Data parallel is what is left "
       "of the ranks.",
       1, 65536},
      choice_field(
          "placement", &c.placement,
          "Which ranks serve which experts: always those that hold them; with busy experts "
          "on further ranks as well; or, to show that no bit depends on it, at random.",
          {"static", "balanced", "shuffled"}),
      {"expert_slots", &c.expert_slots, "experts",
       "Of each layer, that a rank can serve for other ranks; takes memory unless placement is "
       "static.",
       1, 65536},
      {"placement_every_steps", &c.placement_every_steps, "steps",
       "How often a balanced placement is planned.", 1, kMany},
      {"placement_gate", &c.placement_gate, "",
       "A layer's placement changes if that saves more than this share of the busiest rank's time "
       "in its experts, after what it costs to send their weights and gradients.",
       0, 1},
      {"placement_across_hosts", &c.placement_across_hosts, "",
       "Experts may be served on another host than the one of the rank that holds them."},
      choice_field(
          "attention", &c.attention,
          "How ranks of a sequence attend to each other's keys: blocks that go round, all keys "
          "gathered, or what the cost model prefers.",
          {"auto", "ring", "gather"}),
      choice_field(
          "reduce_dtype", &c.reduce_dtype,
          "Gradients are sent to be summed as f32, or rounded to bf16: half the bytes, and another "
          "answer.",
          {"f32", "bf16"}, "wire"),
      choice_field(
          "device_links", &c.device_links,
          "How devices of ranks exchange gradients and weights: through the host's memory; by NCCL "
          "or RCCL, which is loaded; or so where each rank has one, a device of its own, and all "
          "experts. No bit depends on it.",
          {"auto", "host", "library"}),
      {"bucket_bytes", &c.bucket_bytes, "bytes",
       "Of gradients that leave together while backward goes on; 0: from the measured curve of the "
       "machine file.",
       0, kMany},
  };
  for (Field& field : group_fields(c)) fields.push_back(std::move(field));
  return fields;
}

// `train = "dir"` or `train = [{path = "dir", weight = 2}, ...]`.
std::vector<DataSource> read_sources(const SettingsTable& table) {
  std::vector<DataSource> sources;
  if (!table.has("train")) return sources;
  if (table.is_text("train")) {
    DataText text;
    table.read({data_fields(text)[0]}, table.keys());
    sources.push_back({text.train, 1});
    return sources;
  }
  for (const SettingsTable& entry : table.tables("train")) {
    DataSource source;
    entry.read(source_fields(source));
    if (source.path.empty())
      throw_error(Code::kInvalidArgument, "{}: path is missing", entry.where("path"));
    sources.push_back(source);
  }
  return sources;
}

Fields without_train(Fields fields) {
  std::erase_if(fields, [](const Field& f) { return f.name == "train"; });
  return fields;
}

constexpr int64_t kMostPositions = int64_t{1} << 32;  // of a slot: what a buffer has is countable

void check_batch(const std::string& where, int64_t batch, int64_t slots, int64_t sequence) {
  if (batch / slots > kMostPositions)
    throw_error(Code::kInvalidArgument, "{} = {}: a slot of {} would have {} positions; at most {}",
                where, batch, slots, batch / slots, kMostPositions);
  if (batch % (slots * sequence) == 0 && batch > 0) return;
  const int64_t unit = slots * sequence,
                nearest = std::max<int64_t>(1, (batch + unit / 2) / unit) * unit;
  throw_error(Code::kInvalidArgument,
              "{} = {}: it must be a multiple of slots * sequence = {} * {} = {}; nearest: {}",
              where, batch, slots, sequence, unit, nearest);
}

void check_train(const SettingsTable& settings, const RunConfig& c) {
  const SettingsTable table = settings.table("train");
  const TrainConfig& t = c.train;
  if (!gpu::is_device(t.device)) {
    throw_error(
        Code::kInvalidArgument,
        "{} = {}: allowed are cpu, gpu, gpu:N, or emulated:RULE with plain, cdna2, cdna3, sm_80 or "
        "sm_90",
        table.where("device"), t.device);
  }
  check_batch(table.where("batch_tokens"), t.batch_tokens, t.slots, t.sequence);
  if (t.ramp_tokens.size() != t.ramp_batch_tokens.size()) {
    throw_error(Code::kInvalidArgument, "{}: {} entries, but ramp_batch_tokens has {}",
                table.where("ramp_tokens"), t.ramp_tokens.size(), t.ramp_batch_tokens.size());
  }
  for (size_t i = 0; i < t.ramp_tokens.size(); ++i) {
    check_batch(table.where("ramp_batch_tokens"), t.ramp_batch_tokens[i], t.slots, t.sequence);
    if (i > 0 && t.ramp_tokens[i] <= t.ramp_tokens[i - 1])
      throw_error(Code::kInvalidArgument, "{}: entries must ascend", table.where("ramp_tokens"));
  }
  const int64_t per_slot = t.batch_tokens / (t.slots * t.sequence);
  if (t.micro_sequences > 0 && per_slot % t.micro_sequences != 0) {
    throw_error(Code::kInvalidArgument, "{} = {}: a slot has {} sequences; it must divide them",
                table.where("micro_sequences"), t.micro_sequences, per_slot);
  }
}

// Tokens of the whole run must be countable, with room for a batch more in each phase.
void check_length(const RunConfig& c) {
  double batch = static_cast<double>(c.train.batch_tokens), tokens = 0;
  for (const int64_t b : c.train.ramp_batch_tokens) batch = std::max(batch, static_cast<double>(b));
  for (const PhaseConfig& phase : c.phases) {
    const double most = std::max(batch, static_cast<double>(phase.batch_tokens));
    tokens +=
        std::max(static_cast<double>(phase.tokens), static_cast<double>(phase.steps) * most) + most;
  }
  if (tokens > 2 * kMany)
    throw_error(Code::kInvalidArgument, "the run would have {:.1e} tokens; the limit is {:.0e}",
                tokens, kMany);
}

// One phase that is the whole run, if none are given.
void complete_phases(const SettingsTable& settings, RunConfig& c) {
  const SettingsTable table = settings.table("train");
  if (c.phases.empty()) {
    PhaseConfig phase;
    phase.tokens = c.train.tokens;
    if (c.train.steps > 0 && c.train.tokens > 0)
      throw_error(Code::kInvalidArgument, "{}: tokens is given as well; wanted one of the two",
                  table.where("steps"));
    phase.steps = c.train.steps;
    if (phase.tokens == 0 && phase.steps == 0)
      throw_error(Code::kInvalidArgument,
                  "{}: wanted train.tokens, train.steps or [[phase]]: how long is the run?",
                  table.where("tokens"));
    c.phases.push_back(phase);
  } else if (c.train.tokens > 0 || c.train.steps > 0) {
    throw_error(Code::kInvalidArgument,
                "{}: [[phase]] is given as well; each phase has its own tokens",
                table.where(c.train.tokens > 0 ? "tokens" : "steps"));
  }
  for (size_t i = 0; i < c.phases.size(); ++i) {
    PhaseConfig& phase = c.phases[i];
    const std::string where = fmt::format("phase[{}]", i);
    if (phase.learning_rate > 0 && c.optimizer.learning_rate <= 0)
      throw_error(Code::kInvalidArgument,
                  "{}.learning_rate = {}: it is taken in units of optimizer.learning_rate, which "
                  "is 0; give that one",
                  where, phase.learning_rate);
    if (phase.tokens == 0 && phase.steps == 0)
      throw_error(Code::kInvalidArgument, "{}.tokens is missing", where);
    const int64_t sequence = phase.sequence > 0 ? phase.sequence : c.train.sequence;
    if (phase.batch_tokens > 0)
      check_batch(where + ".batch_tokens", phase.batch_tokens, c.train.slots, sequence);
    if (phase.sequence > 0 && phase.batch_tokens == 0) {
      check_batch(where + ".sequence: train.batch_tokens", c.train.batch_tokens, c.train.slots,
                  sequence);
      for (const int64_t batch : c.train.ramp_batch_tokens)
        check_batch(where + ".sequence: train.ramp_batch_tokens", batch, c.train.slots, sequence);
    }
  }
  check_length(c);
}

// Every key, each by itself.
RunConfig read_keys(const SettingsTable& settings) {
  RunConfig c;
  settings.read({}, {"model", "data", "train", "optimizer", "spike", "checkpoint", "report",
                     "parallel", "phase", "supervise"});
  c.model = read_model_config(settings.table("model"));
  DataText data;
  const SettingsTable data_table = settings.table("data");
  data_table.read(without_train(data_fields(data)), {"train"});
  c.data = {.train = read_sources(data_table),
            .valid = data.valid,
            .tokenizer = data.tokenizer,
            .pack = data.pack};
  settings.table("train").read(train_fields(c.train));
  settings.table("optimizer").read(optimizer_fields(c.optimizer));
  settings.table("spike").read(spike_fields(c.spike));
  settings.table("checkpoint").read(checkpoint_fields(c.checkpoint));
  settings.table("report").read(report_fields(c.report));
  settings.table("parallel").read(parallel_fields(c.parallel));
  for (const SettingsTable& table : settings.tables("phase")) {
    PhaseConfig phase;
    PhaseText text;
    table.read(without_train(phase_fields(phase, text)), {"train"});
    phase.train = read_sources(table);
    c.phases.push_back(phase);
  }
  return c;
}

}  // namespace

void check_run_keys(const SettingsTable& settings) { (void)read_keys(settings); }

RunConfig read_run_config(const SettingsTable& settings) {
  RunConfig c = read_keys(settings);
  check_train(settings, c);
  complete_phases(settings, c);
  check_options(optimizer_options(c));
  for (PhaseConfig& phase : c.phases) {
    if (phase.train.empty()) phase.train = c.data.train;
    if (phase.train.empty())
      throw_error(Code::kInvalidArgument, "{}: wanted a dataset directory",
                  settings.table("data").where("train"));
  }
  return c;
}

RunConfig read_saved_config(const std::string& text, const std::string& name) {
  SettingsTable settings = SettingsTable::parse(text, name, FormerKeys::kRead);
  // Runs that began before there was a warm-up had none.
  if (!settings.table("optimizer").has("balance_warmup_steps"))
    settings.set("optimizer.balance_warmup_steps=0");
  return read_run_config(settings);
}

namespace {

std::string print_sources(const std::vector<DataSource>& sources) {
  if (sources.empty()) return "";
  std::string text = "train = [";
  for (DataSource source : sources) {
    const auto field = [&](size_t i) {
      const std::string line = print_fields({source_fields(source)[i]});
      return line.substr(0, line.size() - 1);
    };
    text += fmt::format("{}{{{}, {}}}", text.back() == '[' ? "" : ", ", field(0), field(1));
  }
  return text + "]\n";
}

}  // namespace

std::string print_run_config(const RunConfig& config) {
  RunConfig c = config;
  DataText data{"", c.data.valid, c.data.tokenizer, c.data.pack};
  const bool whole = c.train.tokens > 0 || c.train.steps > 0;
  std::string text = "[model]\n" + print_fields(model_fields(c.model)) + "\n[data]\n" +
                     print_sources(c.data.train) + print_fields(without_train(data_fields(data))) +
                     "\n[train]\n" + print_fields(train_fields(c.train)) + "\n[optimizer]\n" +
                     print_fields(optimizer_fields(c.optimizer)) + "\n[spike]\n" +
                     print_fields(spike_fields(c.spike)) + "\n[checkpoint]\n" +
                     print_fields(checkpoint_fields(c.checkpoint)) + "\n[report]\n" +
                     print_fields(report_fields(c.report)) + "\n[parallel]\n" +
                     print_fields(parallel_fields(c.parallel));
  for (PhaseConfig& phase : c.phases) {
    if (whole) break;  // [train] says it
    PhaseText unused;
    text += "\n[[phase]]\n" + print_sources(phase.train) +
            print_fields(without_train(phase_fields(phase, unused)));
  }
  return text;
}

std::string document_run_config() {
  RunConfig c;
  DataText data;
  DataSource source;
  PhaseConfig phase;
  PhaseText text;
  return "# Configuration\n\nA run is one TOML file. Generated by `moraine train --document`; a "
         "test compares it with this "
         "page.\nAn unknown key is an error that names a known one that is near, or all. `--set "
         "table.key=value` wins over the file.\n\n" +
         document_fields("model", model_fields(c.model)) +
         document_fields("data", data_fields(data)) +
         document_fields("data.train[]", source_fields(source)) +
         document_fields("train", train_fields(c.train)) +
         document_fields("optimizer", optimizer_fields(c.optimizer)) +
         document_fields("spike", spike_fields(c.spike)) +
         document_fields("checkpoint", checkpoint_fields(c.checkpoint)) +
         document_fields("report", report_fields(c.report)) +
         document_fields("parallel", parallel_fields(c.parallel)) +
         document_fields("[phase]", phase_fields(phase, text));
}

std::string answer_text(const RunConfig& config) {
  RunConfig c = config;
  c.report = ReportConfig();
  c.checkpoint = CheckpointConfig();
  c.parallel = ParallelConfig();
  c.parallel.reduce_dtype = config.parallel.reduce_dtype;
  c.train.threads = 0;
  c.train.device = gpu::device_kind(c.train.device);  // wherever it is
  c.train.time_limit_seconds = 0;
  c.train.verify_every_steps = 0;
  c.train.recompute = Recompute::kNone;
  c.data.valid = "";
  c.data.tokenizer = "";
  for (DataSource& s : c.data.train) s.path = "";
  for (PhaseConfig& phase : c.phases) {
    phase.context = phase.expert = 0;
    phase.recompute = PhaseRecompute::kAsTrain;
    for (DataSource& s : phase.train) s.path = "";  // compared by content, not by place
  }
  return print_run_config(c);
}

}  // namespace moraine
