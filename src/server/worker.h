// Worker: a thread that reads requests and writes long answers, so that the io thread does not wait.
//
// Order:   first in, first out.
// Threads: post from any thread; false, and nothing happens, if `most` wait already.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace moraine {

class Worker {
 public:
  explicit Worker(int64_t most);
  ~Worker();  // drops what waits, after the one under way
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool post(std::function<void()> task);
  // Not counted against `most`: what finishes a request that is let in.
  void post_always(std::function<void()> task);
  int64_t waiting() const;
  double processor_seconds();  // since the start

 private:
  void run();

  const int64_t most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace moraine
