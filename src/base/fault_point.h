// FaultPoint: named places in the program where a test lets the process die, stop or fail.
//
// Nothing happens, and nearly nothing is spent (one load), unless a test has set a handler.
#pragma once

#include <atomic>
#include <functional>

namespace moraine {

extern std::atomic<bool> fault_handler_is_set;
void call_fault_handler(const char* name);

// name: "<part>.<moment>", for example "step.reduced".
inline void fault_point(const char* name) {
  if (fault_handler_is_set.load(std::memory_order_relaxed)) call_fault_handler(name);
}

// Called at every point from any thread; null: none. Not while points are being passed.
void set_fault_handler(std::function<void(const char* name)> handler);

}  // namespace moraine
