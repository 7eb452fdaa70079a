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
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/file_lock.h"
#include "checkpoint/distributed.h"
#include "checkpoint/history.h"
#include "checkpoint/memory/copy.h"
#include "kernels/gpu/gpu_arena_memory.h"
#include "machine/machine.h"
#include "tokenizer/tokenizer.h"
#include "train/metrics.h"
#include "train/run_data.h"
#include "train/run_state.h"
#include "train/tensorboard.h"
#include "train/trainer.h"

namespace moraine {

struct RunKept;

// Of a checkpoint that a GPU has computed: its generation.
inline constexpr const char kGenerationValue[] = "device.generation";

struct RunOptions {
  std::string out;                                // run directory
  std::string resume = "auto";                    // auto | never | a checkpoint directory
  std::string machine_file;                       // limits for the percentage; "": measured quickly
  const std::atomic<int>* stop_signal = nullptr;  // not 0: save and stop
  // Report where the time of so many went (step_watch.h); 0: no report. Rank 0's counts.
  int64_t profile_steps = 0;
  // Of a run whose ranks are replaced (groups.h): what this process has kept of the group before, and whether a larger
  // group could be met.
  RunKept* kept = nullptr;
  std::function<bool()> has_newcomers = {};
  bool is_watched = false;  // by a supervisor, which starts ranks anew that failed
};

struct RunResult {
  bool is_done = true;  // false: stored, so that a larger group, or another mesh, can go on
  bool moves = false;   // to another mesh of the same ranks
  int64_t step = 0, tokens = 0;
  double loss = 0;
  std::string hash, checkpoint;
};

// What writes checkpoints, and what is known of the last ones.
struct RunSaves {
  std::unique_ptr<DistributedSaver> disk;
  std::unique_ptr<MemoryCopy> memory;  // null: no copies in memory
  int64_t memory_step = -1;            // newest copy in memory of this process' time
  int64_t saved_step = -1;   // newest checkpoint in options.out that holds this state's past, whole
  double stall_seconds = 0;  // training stood still for the last save or copy in the background
};

// Rank 0; else null.
struct RunLogs {
  std::unique_ptr<MetricsWriter> metrics;
  std::unique_ptr<EventWriter> events;
};

// Everything a run has open. Built by open_run; moved along by train/loop.cc.
struct Run {
  Run(FileSystem& files, const RunConfig& c, const RunOptions& o, const Timeline& t,
      std::unique_ptr<RunData> d, Transport& transport);
  ~Run();  // gives back to options.kept what it has from there

  // Resources: stay as they are from open_run to the end.
  FileSystem& fs;
  std::unique_ptr<FileLock> lock;  // on options.out; rank 0
  RunConfig config;
  RunOptions options;
  Timeline timeline;
  std::unique_ptr<RunData> data;
  std::unique_ptr<Tokenizer> tokenizer;  // null: none
  std::string chat_template;             // carried along for who asks the model; empty: none
  Machine machine;                       // rank 0's
  Ranks ranks;
  Pool pool;
  std::unique_ptr<gpu::Gpu> gpu;             // of train.device; null: the CPU, as the next
  std::string generation;                    // whose bits it has; "cpu"
  std::unique_ptr<DeviceCollectives> links;  // of its ranks; null: over the host
  std::unique_ptr<gpu::GpuArenaMemory> gpu_memory;
  Arena arena;
  std::unique_ptr<Trainer> trainer;
  RunSaves saves;
  RunLogs logs;

  RunState state;  // with the trainer's tensors: the whole of what goes on

  bool first() const { return ranks.first(); }
  CheckpointInfo info() const;                // of the state
  std::vector<CheckpointFile> files() const;  // that a checkpoint carries
  void open_logs();                           // from state.step on
};

}  // namespace moraine
