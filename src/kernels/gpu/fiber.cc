// What fibers do on every processor; the switch itself is in switch_stack_*.cc.
#include "kernels/gpu/fiber.h"

namespace moraine::gpu {

void Fiber::start(const FiberStack& stack, void (*body)(void*), void* argument) {
  stack_ = stack;
  body_ = body;
  argument_ = argument;
  ended_ = false;
  sanitizer_.take_stack(stack_.data, stack_.bytes);
  prepare();
}

void Fiber::run(Fiber& fiber) {
  fiber.sanitizer_.entered();
  fiber.body_(fiber.argument_);
  fiber.ended_ = true;
  fiber.sanitizer_.leaves_for_good();
  fiber.switch_out();
}

bool Fiber::resume() {
  sanitizer_.enters();
  switch_in();
  sanitizer_.left();
  return !ended_;
}

void Fiber::suspend() {
  sanitizer_.leaves();
  switch_out();
  sanitizer_.entered();
}

}  // namespace moraine::gpu
