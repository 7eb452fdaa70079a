// Pool: a fixed set of threads that run the tasks of one parallel loop at a time.
//
// parallel_for(n, f) calls f(task, worker) once for each task in [0, n), from `threads()` threads, the
// caller among them, then returns. Which worker runs a task depends on timing (a busy neighbour on one
// core must not hold up the loop); so a task may write only what its index owns, and `worker` may choose
// scratch memory and nothing else. Then no result depends on the thread count.
//
// A loop ends when its tasks have: a worker that came to none of them, as its core was busy, is not waited for.
//
// Each task that the caller has run, and each loop, is a beat for who watches the process (base/heartbeat.h).
//
// Threads: parallel_for is called from one thread at a time and not from inside a task.
// Errors:  a task must not throw.
// Cost:    workers spin for about 50 microseconds, then park: a loop costs 1 to 3 microseconds when warm. Who spun in
//          vain spins half as long the next time, down to a microsecond, until a wait is short again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace moraine {

class Pool {
 public:
  explicit Pool(int threads);  // >= 1; 1 runs everything on the caller
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  template <class F>
  void parallel_for(int64_t tasks, const F& f) {
    run(tasks, &f, [](const void* function, int64_t task, int worker) {
      (*static_cast<const F*>(function))(task, worker);
    });
  }

 private:
  using Call = void (*)(const void* function, int64_t task, int worker);
  void run(int64_t tasks, const void* function, Call call);

  struct Shared;
  const int threads_;
  std::unique_ptr<Shared> shared_;
};

// Cores this process may run on (its affinity mask), at least 1.
int usable_cores();
// The mask itself, as text: equal on processes that share their cores.
std::string core_mask();

}  // namespace moraine
