// Worker: a queue and its thread.
#include "server/worker.h"

#include "base/thread.h"

namespace moraine {

Worker::Worker(int64_t most) : most_(most) {
  thread_ = start_thread("read requests", [this] { run(); });
}

Worker::~Worker() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Worker::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (ending_ || static_cast<int64_t>(tasks_.size()) >= most_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void Worker::post_always(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

int64_t Worker::waiting() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(tasks_.size());
}

double Worker::processor_seconds() { return thread_seconds(thread_); }

void Worker::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (ending_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace moraine
