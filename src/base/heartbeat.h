// Heartbeat: a page of memory in which a process says what it is doing, for whoever watches it.
//
// The watcher makes the file and names it in the environment (MORAINE_HEARTBEAT); the process maps it and stores a
// few numbers as it goes; the watcher reads the file when it likes, also after the process has died. No message, no
// system call of the process, no thread: a beat is one store. Without the variable the page is private.
//
// A hang is not a slow step: `beats` grows with every operation that ends, every task of a parallel loop and every
// piece of a file that was read, `step` with every step, and `activity` and
// `waits_for` tell the one who hangs from those who wait for it.
//
// A pid is reused, so the page also has the process' start (base/process_stat.h): both together are one process.
//
// Errors:  kIo if the file that is named cannot be mapped.
// Threads: all calls from any thread; numbers of different fields may be of different moments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace moraine {

enum class Activity : int32_t {
  kStarting = 0,  // reading config, data, tokenizer
  kMeeting,       // waiting for the other ranks to come
  kLoading,       // taking up a checkpoint or a copy in memory
  kComputing,     // a step
  kWaiting,       // in a step, for another rank
  kStoring,       // training stands still for a checkpoint
  kObserving,     // validation, samples, reports
  kEnding,
};
const char* activity_name(Activity activity);

// All valid when zero, but `magic` and `waits_for`, which the process sets first.
struct HeartbeatPage {
  static constexpr uint64_t kMagic = 0x31746165426e724d;  // "MrnBeat1"
  std::atomic<uint64_t> magic;
  std::atomic<int64_t> pid, process_start;  // the latter in clock ticks since boot
  std::atomic<int64_t> rank, ranks;         // in the group of now
  std::atomic<int64_t> generation;          // of the group: grows when ranks are replaced
  std::atomic<Activity> activity;
  std::atomic<int32_t> waits_for;  // rank; -1: none
  std::atomic<uint64_t> beats;
  std::atomic<int64_t> step, steps_total;     // done; of the run (0: not known yet)
  std::atomic<int64_t> bad_steps, rollbacks;  // of this process
  std::atomic<double> step_seconds;           // of the last step
  std::atomic<double> compute_seconds;        // of those, not spent waiting for other ranks
  std::atomic<double> loss, gradient_norm;    // of the last step
  std::atomic<double> tokens_per_second;      // of the last step, all ranks
  std::atomic<int64_t> checkpoint_step;       // newest on disk that this process knows of
  std::atomic<int64_t> memory_step;           // newest in memory
  std::atomic<int32_t> ended;                 // 1 + exit code; 0: not ended in order
  // Ranks that this process waits for over links that are cut: that is no hang, and ends by itself.
  std::atomic<int32_t> held;
  std::atomic<uint64_t> asked_flip;  // written by who tests this process (asked_flip.h); 0: nothing
  // When it first met others, took up what was stored (to open the run behind a meeting is part of it), was in a step:
  // now_seconds(), 0: not yet. A watcher that looks now and then would miss what is short.
  std::atomic<double> met_at, loaded_at, computed_at;
  std::atomic<int64_t>
      strangers;  // that this process sent away where ranks meet (comm/rails/strangers.h)
};
static_assert(sizeof(HeartbeatPage) <= 4096);

constexpr const char* kHeartbeatVariable = "MORAINE_HEARTBEAT";
bool is_watched();  // the variable names a file: a supervisor has started this process

// This process' own page; a child that forks has one of its own.
HeartbeatPage& heartbeat();
inline void beat() { heartbeat().beats.fetch_add(1, std::memory_order_relaxed); }
// The same from where anything may run: nothing in a process that has not said yet what it does. Never an Error.
void beat_if_heard();
// What this process does from now on; counts as a beat. The thread that says it speaks for the process.
void set_activity(Activity activity, int32_t waits_for = -1);

// So many more ranks than before, or fewer, keep operations of this process up (HeartbeatPage::held).
inline void say_held(int32_t more) { heartbeat().held.fetch_add(more, std::memory_order_relaxed); }

// The last word of a process that ends in order; nothing if its page could not be mapped.
void say_ended(int exit_code);

// A process that waits, for as long as the object lives; then what it did before. Other threads than the one that
// speaks for it may wait in the background: that is nothing to tell.
class WaitsFor {
 public:
  explicit WaitsFor(int32_t rank);
  ~WaitsFor();
  WaitsFor(const WaitsFor&) = delete;
  WaitsFor& operator=(const WaitsFor&) = delete;

 private:
  const bool speaks_;
  const Activity before_;
};

// For the watcher, one thread of it. Makes the file, new and empty, or opens the one that is there.
class HeartbeatFile {
 public:
  static std::unique_ptr<HeartbeatFile> make(const std::string& path);
  static std::unique_ptr<HeartbeatFile> open(const std::string& path);  // null: there is none
  ~HeartbeatFile();
  HeartbeatFile(const HeartbeatFile&) = delete;
  HeartbeatFile& operator=(const HeartbeatFile&) = delete;

  // As it is now, until the next call; all zero if somebody has cut the file. Read and not mapped, which would end the
  // watcher by a bus error then.
  const HeartbeatPage& page() const;
  void ask_flip(uint64_t asked) { exchange_flip(asked); }
  // Nothing is asked any more. False: it was done.
  bool take_back_flip() { return exchange_flip(0) != 0; }
  // Whether the process that wrote the page is there still, as itself.
  bool is_alive() const;

 private:
  explicit HeartbeatFile(int fd) : fd_(fd) {}
  uint64_t exchange_flip(uint64_t asked);  // what was asked before

  const int fd_;
  alignas(HeartbeatPage) mutable std::byte seen_[4096];
};

}  // namespace moraine
