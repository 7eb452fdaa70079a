// Fiber: a fiber of the emulated GPU, with a stack of its own and the exceptions that belong to it.
#include "testing/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/gpu/emulated_fiber.h"

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
  gpu::EmulatedFiber fiber = {};
  Exceptions exceptions;
  bool has_ended = false;
};

Fiber::Fiber(std::function<void()> body) : parts_(std::make_unique<Parts>()) {
  parts_->body = std::move(body);
}

Fiber::~Fiber() {
  MR_CHECK(parts_->has_ended || parts_->stack == nullptr, "a fiber goes while it is in its middle");
  if (parts_->stack != nullptr) stacks().give_back(parts_->stack);
}

bool Fiber::has_ended() const { return parts_->has_ended; }

void Fiber::resume() {
  Parts& p = *parts_;
  MR_CHECK(!p.has_ended, "a fiber that has ended is resumed");
  if (p.stack == nullptr) {
    p.stack = stacks().take();
    const gpu::FiberStack usable{static_cast<uint8_t*>(p.stack) + kGuardBytes,
                                 int64_t{kStackBytes - kGuardBytes}};
    p.fiber.start(
        usable, [](void* parts) { std::exchange(static_cast<Parts*>(parts)->body, {})(); }, &p);
  }
  p.exceptions.swap();
  p.has_ended = !p.fiber.resume();
  p.exceptions.swap();
}

void Fiber::pause() { parts_->fiber.suspend(); }

}  // namespace moraine
