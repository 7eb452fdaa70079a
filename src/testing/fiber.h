// Fiber: a body that stops in its middle and goes on later, so that a test decides who runs when.
//
// What runs in a fiber may throw and catch, but an exception that leaves it ends the program. Sanitizers are told of
// every change of stacks.
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
  static void enter(unsigned high, unsigned low);
  void switch_to(bool inside);
  std::unique_ptr<Parts> parts_;
};

}  // namespace moraine
