// The switch of stacks where there is no assembly of ours: ucontext.
#if !defined(__x86_64__)

#include <ucontext.h>

#include "kernels/gpu/emulated_fiber.h"

namespace moraine::gpu {
namespace {

// Both sides' registers, at the top of the fiber's stack.
struct StackContexts {
  ucontext_t inside, outside;
};

StackContexts& contexts(const FiberStack& stack) {
  constexpr int64_t kBytes = (int64_t{sizeof(StackContexts)} + 63) / 64 * 64;
  return *reinterpret_cast<StackContexts*>(stack.data + stack.bytes - kBytes);
}

// makecontext hands over ints only.
void begin(unsigned high, unsigned low, unsigned run_high, unsigned run_low) {
  const auto join = [](unsigned h, unsigned l) { return uintptr_t{h} << 32 | l; };
  auto* run = reinterpret_cast<void (*)(EmulatedFiber&)>(join(run_high, run_low));
  run(*reinterpret_cast<EmulatedFiber*>(join(high, low)));
}

}  // namespace

void EmulatedFiber::prepare() {
  StackContexts& c = contexts(stack_);
  getcontext(&c.inside);
  c.inside.uc_stack.ss_sp = stack_.data;
  c.inside.uc_stack.ss_size =
      static_cast<size_t>(reinterpret_cast<uint8_t*>(&c) - stack_.data) / 16 * 16;
  c.inside.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  const auto run = reinterpret_cast<uintptr_t>(&EmulatedFiber::run);
  makecontext(&c.inside, reinterpret_cast<void (*)()>(&begin), 4, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self), static_cast<unsigned>(run >> 32),
              static_cast<unsigned>(run));
}

void EmulatedFiber::switch_in() {
  swapcontext(&contexts(stack_).outside, &contexts(stack_).inside);
}

void EmulatedFiber::switch_out() {
  swapcontext(&contexts(stack_).inside, &contexts(stack_).outside);
}

}  // namespace moraine::gpu

#endif
