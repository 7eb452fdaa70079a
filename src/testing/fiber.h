// Fiber: a body that stops in its middle and goes on later, so that a test decides who runs when.
//
// What runs in a fiber may throw and catch, but an exception that leaves it ends the program. The address sanitizer is
// told of every change of stacks; the thread sanitizer is not, and gets slow.
//
// Threads: one, for all fibers of a group that resume each other.
#pragma once

#include <functional>
#include <memory>

namespace moraine {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();  // only of one that has ended, or never ran
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // From outside of it: until it pauses or ends.
  void resume();
  // From within: until it is resumed.
  void pause();
  bool has_ended() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moraine
