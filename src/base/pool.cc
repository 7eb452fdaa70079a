// Pool: workers wait for the next loop, then take task indices from one counter.
#include "base/pool.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/spin_wait.h"
#include "base/thread.h"

namespace moraine {
namespace {

constexpr int kLooks = 64;  // at a counter in memory, between two looks at the clock

}  // namespace

struct Pool::Shared {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable start, done;
  std::atomic<uint64_t> generation{0};  // one more for every loop
  std::atomic<int> finished{0};         // workers done with this generation
  std::atomic<bool> stop{false};
  SpinWait caller;

  int64_t tasks = 0;
  const void* function = nullptr;
  Call call = nullptr;
  alignas(64) std::atomic<int64_t> next{0};

  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stop.store(true);
    }
    start.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void take_tasks(int worker) {
    while (true) {
      const int64_t task = next.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks) return;
      call(function, task, worker);
      if (worker == 0) beat_if_heard();
    }
  }

  void work(int worker, int helpers) {
    uint64_t seen = 0;
    SpinWait idle;
    while (true) {
      const auto changed = [&] {
        return generation.load(std::memory_order_acquire) != seen || stop.load();
      };
      idle.wait(kLooks, changed, [this, &changed] {
        std::unique_lock<std::mutex> lock(mutex);
        start.wait(lock, changed);
      });
      if (stop.load()) return;
      seen = generation.load(std::memory_order_acquire);
      take_tasks(worker);
      if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == helpers) {
        { std::lock_guard<std::mutex> lock(mutex); }
        done.notify_one();
      }
    }
  }
};

Pool::Pool(int threads) : threads_(threads), shared_(std::make_unique<Shared>()) {
  MR_CHECK(threads >= 1, "threads=%d", threads);
  try {
    for (int worker = 1; worker < threads; ++worker) {
      shared_->workers.push_back(
          start_thread("the pool", [this, worker] { shared_->work(worker, threads_ - 1); }));
    }
  } catch (const Error&) {
    shared_->end();
    throw;
  }
}

Pool::~Pool() { shared_->end(); }

void Pool::run(int64_t tasks, const void* function, Call call) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    for (int64_t task = 0; task < tasks; ++task) {
      call(function, task, 0);
      beat_if_heard();
    }
    return;
  }
  Shared& s = *shared_;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    s.tasks = tasks;
    s.function = function;
    s.call = call;
    s.next.store(0, std::memory_order_relaxed);
    s.finished.store(0, std::memory_order_relaxed);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.start.notify_all();
  s.take_tasks(0);
  const auto all_done = [&] { return s.finished.load(std::memory_order_acquire) == threads_ - 1; };
  s.caller.wait(kLooks, all_done, [&s, &all_done] {
    std::unique_lock<std::mutex> lock(s.mutex);
    s.done.wait(lock, all_done);
  });
  beat_if_heard();
}

std::string core_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string text;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) text += std::to_string(core) + " ";
  }
  return text;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int cores = CPU_COUNT(&set);
  return cores > 0 ? cores : 1;
}

}  // namespace moraine
