// Fiber: two contexts that are swapped; each has a stack, its exceptions, and the names that sanitizers know it by.
#include "testing/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "testing/sanitized.h"

#ifdef MR_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef MR_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace moraine {
namespace {

constexpr size_t kStackBytes = 256 << 10, kGuardBytes = 4 << 10;

// Stacks are used again: there are many short fibers.
class Stacks {
 public:
  ~Stacks() {
    for (void* stack : free_) munmap(stack, kStackBytes);
  }
  void* take() {
    if (!free_.empty()) {
      void* stack = free_.back();
      free_.pop_back();
      return stack;
    }
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    MR_CHECK(stack != MAP_FAILED, "no memory for a fiber's stack");
    MR_CHECK(mprotect(stack, kGuardBytes, PROT_NONE) == 0);
    return stack;
  }
  void give_back(void* stack) { free_.push_back(stack); }

 private:
  std::vector<void*> free_;
};

Stacks& stacks() {
  static thread_local Stacks all;
  return all;
}

// Which exceptions are caught or on their way belongs to a stack, and the library keeps it by thread.
struct Exceptions {
  void* caught = nullptr;
  unsigned uncaught = 0;
  void swap() {
    Exceptions now;
    auto* of_thread = reinterpret_cast<unsigned char*>(abi::__cxa_get_globals());
    std::memcpy(&now.caught, of_thread, sizeof caught);
    std::memcpy(&now.uncaught, of_thread + sizeof caught, sizeof uncaught);
    std::memcpy(of_thread, &caught, sizeof caught);
    std::memcpy(of_thread + sizeof caught, &uncaught, sizeof uncaught);
    *this = now;
  }
};

}  // namespace

struct Fiber::Parts {
  std::function<void()> body;
  void* stack = nullptr;
  ucontext_t inside = {}, outside = {};
  Exceptions exceptions;
  bool has_begun = false, has_ended = false;
#ifdef MR_ADDRESS_SANITIZER
  void* fake_stack = nullptr;
  const void* outside_stack = nullptr;
  size_t outside_bytes = 0;
#endif
#ifdef MR_THREAD_SANITIZER
  void* fiber = nullptr;
  void* outside_fiber = nullptr;
#endif
};

Fiber::Fiber(std::function<void()> body) : parts_(std::make_unique<Parts>()) {
  parts_->body = std::move(body);
}

Fiber::~Fiber() {
  MR_CHECK(parts_->has_ended || !parts_->has_begun, "a fiber goes while it is in its middle");
#ifdef MR_THREAD_SANITIZER
  if (parts_->fiber != nullptr) __tsan_destroy_fiber(parts_->fiber);
#endif
  if (parts_->stack != nullptr) stacks().give_back(parts_->stack);
}

bool Fiber::has_ended() const { return parts_->has_ended; }

// makecontext passes ints.
void Fiber::enter(unsigned high, unsigned low) {
  auto* fiber = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);
  Parts& p = *fiber->parts_;
#ifdef MR_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &p.outside_stack, &p.outside_bytes);
#endif
  p.body();
  p.body = {};
  p.has_ended = true;
  fiber->switch_to(false);
}

void Fiber::switch_to(bool inside) {
  Parts& p = *parts_;
  p.exceptions.swap();
#ifdef MR_ADDRESS_SANITIZER
  void* here = nullptr;
  const bool goes_for_ever = !inside && p.has_ended;
  __sanitizer_start_switch_fiber(goes_for_ever ? nullptr : &here,
                                 inside ? p.stack : p.outside_stack,
                                 inside ? kStackBytes : p.outside_bytes);
#endif
#ifdef MR_THREAD_SANITIZER
  if (inside) p.outside_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(inside ? p.fiber : p.outside_fiber, 0);
#endif
  if (inside)
    swapcontext(&p.outside, &p.inside);
  else
    swapcontext(&p.inside, &p.outside);
#ifdef MR_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(here, inside ? nullptr : &p.outside_stack,
                                  inside ? nullptr : &p.outside_bytes);
#endif
}

void Fiber::resume() {
  Parts& p = *parts_;
  MR_CHECK(!p.has_ended, "a fiber that has ended is resumed");
  if (!p.has_begun) {
    p.has_begun = true;
    p.stack = stacks().take();
#ifdef MR_THREAD_SANITIZER
    p.fiber = __tsan_create_fiber(0);
#endif
    getcontext(&p.inside);
    p.inside.uc_stack = {.ss_sp = p.stack, .ss_flags = 0, .ss_size = kStackBytes};
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&p.inside, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  }
  switch_to(true);
}

void Fiber::pause() { switch_to(false); }

}  // namespace moraine
