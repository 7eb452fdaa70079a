// Run: what is around the optimizer step: resume, checkpoints, metrics, validation, samples and
// spikes.
//
// Every rank has one, and all do the same in the same order. Rank 0 alone prints, writes metrics
// and decides what depends on the disk or a clock, and tells the others; a signal to any rank
// counts.
//
//   open   resume (newest good checkpoint, or newer copy in memory) or start (random, or a model)
//   step   train/loop.cc, again and again
//   done   last checkpoint, report
//
// After a crash at any instant, opening again and going on gives the bits of the undisturbed run
// (docs/distributed.md says which changes of ranks keep them).
// Errors: kInvalidArgument (config differs from the run's, or a rank's from rank 0's), kDiverged
//         (spike policy), kInterrupted (signal or time limit; state is saved), kPeerLost (a rank is
//         gone, or does something else), and those of files.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/file_lock.h"
#include "checkpoint/history.h"
#include "checkpoint/memory_copy.h"
#include "checkpoint/sharded.h"
#include "machine/machine.h"
#include "tokenizer/tokenizer.h"
#include "train/metrics.h"
#include "train/run_data.h"
#include "train/spike.h"
#include "train/tensorboard.h"
#include "train/trainer.h"

namespace moraine {

struct RunOptions {
  std::string out;                                // run directory
  std::string resume = "auto";                    // auto | never | a checkpoint directory
  std::string machine_file;                       // limits for the percentage; "": measured quickly
  const std::atomic<int>* stop_signal = nullptr;  // not 0: save and stop
};

struct RunResult {
  int64_t step = 0, tokens = 0;
  double loss = 0;
  std::string hash, checkpoint;
};

// Everything a run has open. Built by open_run; moved along by train/loop.cc.
struct Run {
  Run(FileSystem& files, const RunConfig& c, const RunOptions& o, const Timeline& t,
      std::unique_ptr<RunData> d, Transport& transport);

  FileSystem& fs;
  std::unique_ptr<FileLock> lock;  // on options.out; rank 0
  RunConfig config;
  RunOptions options;
  Timeline timeline;
  std::unique_ptr<RunData> data;
  std::unique_ptr<Tokenizer> tokenizer;  // null: none
  Machine machine;                       // rank 0's
  Ranks ranks;
  Pool pool;
  Arena arena;
  std::unique_ptr<Trainer> trainer;
  SpikeDetector spike;
  std::unique_ptr<ShardedSaver> saver;
  std::unique_ptr<MemoryCopy> memory;      // null: no copies in memory
  std::unique_ptr<MetricsWriter> metrics;  // rank 0; else null
  std::unique_ptr<EventWriter> events;     // rank 0; else null

  // State beside the tensors; in every checkpoint.
  int64_t step = 0;            // completed
  int64_t skip_sequences = 0;  // left out by rollbacks, of phase skip_phase
  int64_t skip_phase = 0;
  int64_t rollbacks = 0;
  double loss = 0;           // of the last step
  double stall_seconds = 0;  // training stood still for the last save or copy in the background
  int64_t saved_step = -1;   // newest checkpoint in options.out that holds this state's past, whole

  bool first() const { return ranks.first(); }
  int64_t skip(const StepPlan& plan) const { return plan.phase == skip_phase ? skip_sequences : 0; }
  CheckpointInfo info() const;
  void read_info(const CheckpointInfo& info);
  std::vector<CheckpointFile> files() const;
  void open_logs();  // metrics and events from `step` on; rank 0
};

// Collective, as everything below that takes a Run.
std::unique_ptr<Run> open_run(FileSystem& fs, const RunConfig& config, const RunOptions& options,
                              Transport& transport);
// Threads of this rank: `wanted`, or (0) the cores it is bound to, divided by the ranks that are
// bound to the same. Collective.
int rank_threads(int64_t wanted, Ranks& ranks);
// What rank 0 says, on every rank.
std::string from_first(Run& run, const std::string& text);

// What open_run would do to `config` before it is used: vocabulary from the data, model from
// train.init.
RunConfig complete_config(FileSystem& fs, RunConfig config);

// A train.dtype of `auto` becomes the faster type of this machine; for what is not a run (open_run asks
// the run that goes on first).
void measure_dtype(RunConfig& config);

// One sequence as long as the longest training sequence, for samples.
Cache make_sample_cache(Arena& arena, const RunConfig& config, Trainer& trainer);

// Takes what rank `rank` of `ranks` takes in a run of this config, from a (dry) arena.
void plan_run_memory(Arena& arena, const RunConfig& config, int ranks = 1, int rank = 0);

}  // namespace moraine
