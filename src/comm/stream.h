// CommStream: runs collectives on a thread of its own, in the order they were submitted.
//
// The thread sleeps while there is nothing to do. An Error ends the stream: every later handle has
// it as well.
#pragma once

#include <functional>
#include <memory>

namespace moraine {

class CommHandle {
 public:
  bool done() const;
  void wait();  // throws the Error of the operation

 private:
  friend class CommStream;
  struct State;
  std::shared_ptr<State> state_;  // null: nothing to wait for
};

class CommStream {
 public:
  CommStream();
  ~CommStream();  // finishes what was submitted
  CommStream(const CommStream&) = delete;
  CommStream& operator=(const CommStream&) = delete;

  CommHandle submit(std::function<void()> operation);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace moraine
