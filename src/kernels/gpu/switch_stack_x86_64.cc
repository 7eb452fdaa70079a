// The switch of stacks on x86-64: what a function must preserve goes to the old stack and comes from the new one.
#if defined(__x86_64__)

#include "kernels/gpu/emulated_fiber.h"

// moraine_switch_stack(void** from, void* to): *from = where this stack stands; goes on where `to` stands.
extern "C" void moraine_switch_stack(void** from, void* to);
// Where a new fiber begins: rbx holds it, r12 what to call with it.
extern "C" void moraine_begin_fiber();

asm(R"(
.text
.globl moraine_switch_stack
.type moraine_switch_stack, @function
moraine_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size moraine_switch_stack, .-moraine_switch_stack
.globl moraine_begin_fiber
.type moraine_begin_fiber, @function
moraine_begin_fiber:
  movq %rbx, %rdi
  call *%r12
  ud2
.size moraine_begin_fiber, .-moraine_begin_fiber
)");

namespace moraine::gpu {

void EmulatedFiber::prepare() {
  // What the first switch pops, from below: r15 r14 r13 r12 rbx rbp, the address to go on at; rsp % 16 is 0 then.
  void** frame = reinterpret_cast<void**>(stack_.data + stack_.bytes) - 9;
  frame[0] = frame[1] = frame[2] = nullptr;
  frame[3] = reinterpret_cast<void*>(&EmulatedFiber::run);
  frame[4] = this;
  frame[5] = nullptr;
  frame[6] = reinterpret_cast<void*>(&moraine_begin_fiber);
  inside_ = frame;
}

void EmulatedFiber::switch_in() { moraine_switch_stack(&outside_, inside_); }

void EmulatedFiber::switch_out() { moraine_switch_stack(&inside_, outside_); }

}  // namespace moraine::gpu

#endif
