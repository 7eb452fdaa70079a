// EmulatedFiber: a function that runs on a stack of its own and may stop in the middle: a thread of an emulated GPU.
//
//   A thread starts them and resumes them one at a time; a fiber runs on that thread until it suspends or its
//   function returns. One that is never resumed again costs nothing: its stack may be given to another one.
//   Nothing is unwound then, so what such a function holds must not need a destructor.
//
// Threads:  a fiber belongs to the thread that started it. No exception may leave its function.
// Cost:     a switch saves six registers on x86-64 (some 2 ns); elsewhere it is swapcontext, a system call.
#pragma once

#include <cstdint>

#include "kernels/gpu/fiber_sanitizer.h"

namespace moraine::gpu {

struct FiberStack {
  uint8_t* data = nullptr;  // lowest address
  int64_t bytes = 0;        // a multiple of 16
};

class EmulatedFiber {
 public:
  // Runs `body(argument)` on `stack` at the first resume.
  void start(const FiberStack& stack, void (*body)(void*), void* argument);
  // Until the fiber suspends or ends; false if it ended. REQUIRES: started, not ended.
  bool resume();
  // From inside the fiber: back to resume().
  void suspend();

 private:
  // In switch_stack_x86_64.cc or switch_stack_any.cc.
  void prepare();     // the next switch_in enters run()
  void switch_in();   // to the fiber's stack
  void switch_out();  // to the stack of resume()

  static void run(EmulatedFiber& fiber);

  FiberStack stack_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool ended_ = false;
  void *inside_ = nullptr, *outside_ = nullptr;  // where each side stands
  FiberSanitizer sanitizer_;
};

}  // namespace moraine::gpu
