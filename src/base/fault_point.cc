// FaultPoint: keeps the one handler of the process, and calls it at each place.
#include "base/fault_point.h"

#include <utility>

namespace moraine {

std::atomic<bool> fault_handler_is_set{false};

namespace {
std::function<void(const char* name)> handler;
}  // namespace

void call_fault_handler(const char* name) { handler(name); }

void set_fault_handler(std::function<void(const char* name)> given) {
  fault_handler_is_set = false;
  handler = std::move(given);
  fault_handler_is_set = handler != nullptr;
}

}  // namespace moraine
