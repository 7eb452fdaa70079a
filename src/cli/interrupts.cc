// A number that the handler leaves, and looks at it.
#include "cli/interrupts.h"

#include <atomic>
#include <csignal>

#include "base/error.h"

namespace moraine {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> noted_signal{0};
std::string interrupted_doing;

extern "C" void note_interrupt(int signal) {
  noted_signal.store(signal);
  std::signal(signal, SIG_DFL);
}

const char* name_of(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
}

}  // namespace

Interrupts::Interrupts(std::string doing) {
  interrupted_doing = std::move(doing);
  noted_signal.store(0);
  for (const int signal : kSignals) {
    if (std::signal(signal, note_interrupt) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

Interrupts::~Interrupts() {
  noted_signal.store(0);
  for (const int signal : kSignals) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

void throw_if_interrupted() {
  const int signal = noted_signal.load(std::memory_order_relaxed);
  if (signal == 0) return;
  throw_error(Code::kInterrupted,
              "{}: interrupted by {}; what it had written is removed: run it again to make it",
              interrupted_doing, name_of(signal));
}

}  // namespace moraine
