// What fibers do on every processor; the switch itself is in switch_stack_*.cc.
#include "kernels/gpu/emulated_fiber.h"

namespace moraine::gpu {

void EmulatedFiber::start(const FiberStack& stack, void (*body)(void*), void* argument) {
  stack_ = stack;
  body_ = body;
  argument_ = argument;
  ended_ = false;
  sanitizer_.take_stack(stack_.data, stack_.bytes);
  prepare();
}

void EmulatedFiber::run(EmulatedFiber& fiber) {
  fiber.sanitizer_.entered();
  fiber.body_(fiber.argument_);
  fiber.ended_ = true;
  fiber.sanitizer_.leaves_for_good();
  fiber.switch_out();
}

bool EmulatedFiber::resume() {
  sanitizer_.enters();
  switch_in();
  sanitizer_.left();
  return !ended_;
}

void EmulatedFiber::suspend() {
  sanitizer_.leaves();
  switch_out();
  sanitizer_.entered();
}

}  // namespace moraine::gpu
