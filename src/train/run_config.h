// RunConfig: everything that decides a run's answer, and what is around it.
//
// Declared once (fields), read from TOML, printed as the effective config, documented in
// docs/configuration.md. A phase overrides what it names.
//
// Errors: kInvalidArgument with file, line, key and what is allowed.
#pragma once

#include <string>
#include <vector>

#include "base/settings.h"
#include "comm/collectives.h"
#include "model/config.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "parallel/device_collectives.h"
#include "parallel/expert_placer.h"

namespace moraine {

struct DataSource {
  std::string path;
  double weight = 1;
};

struct DataConfig {
  std::vector<DataSource> train;  // directories made by `moraine data build`
  std::string valid;              // likewise, or ""
  std::string tokenizer;          // directory with tokenizer.json
  bool pack = true;
};

// Names in the config: those of the fields, in this order.
enum class Precision : uint8_t { kBF16, kF32, kAuto };
enum class MatrixRule : uint8_t { kMuon, kAdamW };
enum class SpikePolicy : uint8_t { kSkip, kRollback, kStop };
const char* spike_policy_name(SpikePolicy policy);
enum class AttentionExchange : uint8_t { kAuto, kRing, kGather };
enum class PlanChoice : uint8_t { kGiven, kAuto, kShuffled };

struct TrainConfig {
  int64_t seed = 1;
  int64_t slots = 8;              // parallel/mesh.h
  int64_t sequence = 512;         // positions
  int64_t batch_tokens = 16384;   // per optimizer step, all slots together
  int64_t tokens = 0, steps = 0;  // one of the two (without phases)
  Precision dtype = Precision::kBF16;
  Recompute recompute = Recompute::kNone;
  std::string init = {};  // a model directory to start from, or ""
  int64_t micro_sequences = 0;
  double clip_norm = 1;
  std::vector<int64_t> ramp_tokens, ramp_batch_tokens;
  int64_t threads = 0;
  double time_limit_seconds = 0;
  std::string device = "cpu";
  int64_t verify_every_steps = 100;
};

struct OptimizerConfig {
  double learning_rate = MuonOptions().lr;  // of the matrices
  double adamw_learning_rate = 0;           // 0: learning_rate
  double embedding_lr_scale = 1;
  double balance_learning_rate = BalanceOptions().lr;
  int64_t balance_warmup_steps = 100;
  double weight_decay = MuonOptions().weight_decay, momentum = MuonOptions().momentum;
  double beta1 = AdamWOptions().beta1, beta2 = AdamWOptions().beta2, eps = AdamWOptions().eps;
  double balance_beta1 = BalanceOptions().beta1, balance_beta2 = BalanceOptions().beta2;
  bool nesterov = MuonOptions().nesterov;
  MatrixRule matrices = MatrixRule::kMuon;
  NewtonSchulzKind coefficients = MuonOptions().coefficients;
  Precision newton_schulz_dtype = Precision::kBF16, momentum_dtype = Precision::kF32;
  int64_t newton_schulz_steps = MuonOptions().ns_steps;
  Schedule::Shape schedule = Schedule::Shape::kWsd;
  Schedule::Decay decay = Schedule::Decay::kOneMinusSqrt;
  int64_t warmup_tokens = 0;  // 0: warmup_fraction
  double warmup_fraction = 0.02, decay_fraction = 0.3, floor = 0;
};

struct SpikeConfig {
  double sigma = 0;  // z-score of the loss that counts as a spike; 0: only NaN and infinity do
  SpikePolicy policy = SpikePolicy::kSkip;
  int64_t patience = 5;  // bad steps in a row before a skip becomes a rollback
  int64_t rollbacks_max = 3;
};

struct CheckpointConfig {
  int64_t every_steps = 100;
  int64_t keep = 3;
  int64_t permanent_every_steps = 0;
  int64_t memory_every_steps = 0;
  std::string memory_folder = "/dev/shm";
};

struct ParallelConfig {
  PlanChoice plan =
      PlanChoice::kGiven;            // else train/auto_plan.h chooses `expert`, and replan.h again
  int64_t replan_every_steps = 100;  // 0: never
  double replan_gate = 0.1;
  PlacementMode placement = PlacementMode::kStatic;  // of experts (parallel/expert_placer.h)
  int64_t expert_slots = 2;                          // unless it is static
  int64_t placement_every_steps = 10;
  double placement_gate = 0.05;
  bool placement_across_hosts = true;
  int64_t expert = 1, context = 1;               // ranks; data parallel is what is left
  ReduceDType reduce_dtype = ReduceDType::kF32;  // what gradients are sent as, to be summed
  DeviceLinks device_links = DeviceLinks::kAuto;
  AttentionExchange attention = AttentionExchange::kAuto;  // of ranks that share a sequence
  int64_t bucket_bytes = 0;                                // 0: from the measured curve
  double deadline_seconds = 300;                           // of every wait for another rank
  std::vector<std::string> rails = {};  // comm/rails_transport.h; empty: the way to the rendezvous
  // While another rank is silent on all rails (comm/rails/rail_times.h).
  int64_t retry_attempts = 3;
  double hold_seconds = 15, retry_interval_seconds = 5;
  double replace_seconds = 0;  // how long survivors wait for who replaces a lost rank
};

struct ReportConfig {
  int64_t valid_every_steps = 100;
  int64_t valid_tokens = 65536;
  int64_t sample_every_steps = 200;
  int64_t sample_tokens = 80;
  std::string sample_prompt;
  int64_t log_every_steps = 1;
  bool probe_storage = true;
};

enum class PhaseRecompute : uint8_t { kAsTrain, kNone, kLayer };

struct PhaseConfig {
  int64_t tokens = 0;
  int64_t steps = 0;  // instead of tokens; only the single phase that [train] with steps stands for
  std::vector<DataSource> train = {};
  int64_t sequence = 0, batch_tokens = 0;  // 0: as [train]
  double rope_theta = 0, learning_rate = 0;
  int64_t context = 0, expert = 0;
  PhaseRecompute recompute = PhaseRecompute::kAsTrain;
};

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  SpikeConfig spike;
  CheckpointConfig checkpoint;
  ReportConfig report;
  ParallelConfig parallel;
  std::vector<PhaseConfig> phases;  // at least one after read_run_config
};

RunConfig read_run_config(const SettingsTable& settings);
// The names and values of all keys alone: for those that need a part of a run's config.
void check_run_keys(const SettingsTable& settings);
// What print_run_config wrote in this or an earlier version. `name` is for messages.
RunConfig read_saved_config(const std::string& text, const std::string& name);
std::string print_run_config(const RunConfig& config);  // TOML that reads back the same
std::string document_run_config();                      // docs/configuration.md

// The part of the printed config that decides the answer; a resumed run must have the same.
std::string answer_text(const RunConfig& config);

DType compute_dtype(const RunConfig& config);
int64_t phase_context(const RunConfig& config, int64_t phase);  // ranks that share a sequence
int64_t phase_expert(const RunConfig& config, int64_t phase);   // ranks that divide the experts
Recompute phase_recompute(const RunConfig& config, int64_t phase);
// Whether one opened run can take the steps of both: else it moves between them (train/loop.h).
bool same_layout(const RunConfig& config, int64_t phase, int64_t other);
bool moves(const RunConfig& config);  // whether phases have several layouts
bool replans(
    const RunConfig& config);  // whether the planner may choose another one while the run goes on
OptimizerOptions optimizer_options(const RunConfig& config);
Schedule learning_rate_schedule(const RunConfig& config);  // in tokens
std::vector<ParameterSpec> optimizer_specs(const RunConfig& config, const ParameterTable& table);

}  // namespace moraine
