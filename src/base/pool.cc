// Pool: workers wait for the next loop, then take task indices from one counter.
#include "base/pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

namespace moraine {
namespace {

constexpr double kSpinSeconds = 50e-6;  // longer than the gap between two kernels of a layer

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr double kSpinSecondsLeast = 1e-6;

// Waits of one thread: how long the next one spins before it parks. Half of the last after a wait that a spin would
// not have seen the end of, as in ranks that share their cores; all of kSpinSeconds after one that it would.
class Waiter {
 public:
  // Spins, then `park(ready)`, until `ready()`.
  template <class Ready, class Park>
  void wait(const Ready& ready, const Park& park) {
    if (ready()) return;
    const double begin = now_seconds();
    double now = begin;
    while (!ready()) {
      if (now - begin > spin_seconds_) {
        park(ready);
        now = now_seconds();
        break;
      }
      for (int i = 0; i < 64 && !ready(); ++i) cpu_relax();
      now = now_seconds();
    }
    spin_seconds_ =
        now - begin < kSpinSeconds ? kSpinSeconds : std::max(spin_seconds_ / 2, kSpinSecondsLeast);
  }

 private:
  double spin_seconds_ = kSpinSeconds;
};

}  // namespace

struct Pool::Shared {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable start, done;
  std::atomic<uint64_t> generation{0};  // one more for every loop
  std::atomic<int> finished{0};         // workers done with this generation
  std::atomic<bool> stop{false};
  Waiter caller;

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
    }
  }

  void work(int worker, int helpers) {
    uint64_t seen = 0;
    Waiter waiter;
    while (true) {
      const auto changed = [&] {
        return generation.load(std::memory_order_acquire) != seen || stop.load();
      };
      waiter.wait(changed, [this](const auto& ready) {
        std::unique_lock<std::mutex> lock(mutex);
        start.wait(lock, ready);
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
    for (int64_t task = 0; task < tasks; ++task) call(function, task, 0);
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
  s.caller.wait(all_done, [&s](const auto& ready) {
    std::unique_lock<std::mutex> lock(s.mutex);
    s.done.wait(lock, ready);
  });
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
