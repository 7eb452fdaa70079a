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

// A worker that comes late, as one whose core a neighbour has, is not waited for: it finds the loop closed, and its
// tasks done by others. So what a loop needs is read by those alone that are inside, for whom its end waits.
struct Pool::Shared {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable start, done;
  // Bits 32 to 63: the number of the loop; 31: whether workers may enter it; 0 to 30: how many are inside.
  static constexpr uint64_t kOpen = uint64_t{1} << 31, kInside = kOpen - 1;
  std::atomic<uint64_t> loop{0};
  std::atomic<bool> stop{false};
  SpinWait caller;

  int64_t tasks = 0;
  const void* function = nullptr;
  Call call = nullptr;
  alignas(64) std::atomic<int64_t> next{0};

  static uint64_t number(uint64_t loop) { return loop >> 32; }

  void open(int64_t its_tasks, const void* its_function, Call its_call) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      tasks = its_tasks;
      function = its_function;
      call = its_call;
      next.store(0, std::memory_order_relaxed);
      loop.store(((number(loop.load()) + 1) << 32) | kOpen, std::memory_order_release);
    }
    start.notify_all();
  }

  void close() {
    loop.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto is_left = [this] { return (loop.load(std::memory_order_acquire) & kInside) == 0; };
    caller.wait(kLooks, is_left, [this, &is_left] {
      std::unique_lock<std::mutex> lock(mutex);
      done.wait(lock, is_left);
    });
  }

  // Into the loop of now, if it is open; `seen` is its number.
  bool enter(uint64_t* seen) {
    uint64_t now = loop.load(std::memory_order_acquire);
    while ((now & kOpen) != 0 &&
           !loop.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) {
    }
    *seen = number(now);
    return (now & kOpen) != 0;
  }

  void leave() {
    const uint64_t before = loop.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & (kOpen | kInside)) != 1) return;
    { std::lock_guard<std::mutex> lock(mutex); }
    done.notify_one();
  }

  void take_tasks(int worker) {
    while (true) {
      const int64_t task = next.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks) return;
      call(function, task, worker);
      if (worker == 0) beat_if_heard();
    }
  }

  void work(int worker) {
    uint64_t seen = 0;
    SpinWait idle;
    while (true) {
      const auto changed = [&] {
        return number(loop.load(std::memory_order_acquire)) != seen || stop.load();
      };
      idle.wait(kLooks, changed, [this, &changed] {
        std::unique_lock<std::mutex> lock(mutex);
        start.wait(lock, changed);
      });
      if (stop.load()) return;
      if (!enter(&seen)) continue;
      take_tasks(worker);
      leave();
    }
  }

  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stop.store(true);
    }
    start.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

Pool::Pool(int threads) : threads_(threads), shared_(std::make_unique<Shared>()) {
  MR_CHECK(threads >= 1, "threads=%d", threads);
  try {
    for (int worker = 1; worker < threads; ++worker) {
      shared_->workers.push_back(
          start_thread("the pool", [this, worker] { shared_->work(worker); }));
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
  shared_->open(tasks, function, call);
  shared_->take_tasks(0);
  shared_->close();
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
