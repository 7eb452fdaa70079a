// CommStream: one thread that takes operations from one queue.
#include "comm/stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/heartbeat.h"
#include "base/thread.h"
#include "comm/patience.h"

namespace moraine {

struct CommHandle::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;

  void finish(std::exception_ptr e) {
    const std::lock_guard lock(mutex);
    done = true;
    error = std::move(e);
    changed.notify_all();
  }
};

bool CommHandle::done() const {
  if (state_ == nullptr) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

void CommHandle::wait() {
  if (state_ == nullptr) return;
  std::unique_lock lock(state_->mutex);
  if (!state_->done) {
    const WaitsFor waits(-1);  // the stream's thread waits for a rank
    state_->changed.wait(lock, [this] { return state_->done; });
  }
  if (state_->error != nullptr) std::rethrow_exception(state_->error);
}

struct CommStream::Shared {
  struct Job {
    std::function<void()> operation;
    std::shared_ptr<CommHandle::State> state;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  bool stopping = false;
  std::exception_ptr error;  // of the first operation that failed; the thread's own
  std::thread thread;

  bool take(Job& job) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return stopping || !jobs.empty(); });
    if (jobs.empty()) return false;
    job = std::move(jobs.front());
    jobs.pop_front();
    return true;
  }

  void loop() {
    set_background_thread();
    Job job;
    while (take(job)) {
      if (error == nullptr) {
        try {
          job.operation();
        } catch (...) {
          error = std::current_exception();
        }
      }
      job.operation = nullptr;  // what it holds ends before who waits goes on
      job.state->finish(error);
    }
  }
};

CommStream::CommStream() : shared_(std::make_unique<Shared>()) {
  shared_->thread = start_thread("collectives", [shared = shared_.get()] { shared->loop(); });
}

CommStream::~CommStream() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_one();
  shared_->thread.join();
}

CommHandle CommStream::submit(std::function<void()> operation) {
  CommHandle handle;
  handle.state_ = std::make_shared<CommHandle::State>();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->jobs.push_back({std::move(operation), handle.state_});
  }
  shared_->changed.notify_one();
  return handle;
}

}  // namespace moraine
