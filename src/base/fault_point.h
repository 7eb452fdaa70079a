// FaultPoint: named places in the program where a test lets the process die, stop, fail, or go on with other bits.
//
// Nothing happens, and nearly nothing is spent (one load), unless a test has set a handler.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>

namespace moraine {

extern std::atomic<bool> fault_handler_is_set;
void call_fault_handler(const char* name);

// name: "<part>.<moment>", for example "step.reduced".
inline void fault_point(const char* name) {
  if (fault_handler_is_set.load(std::memory_order_relaxed)) call_fault_handler(name);
}

extern std::atomic<bool> fault_bytes_is_set;
void call_fault_bytes(const char* name, std::span<std::byte> bytes);

// The same with memory that the handler may change: what a fault of the hardware leaves there.
inline void fault_bytes(const char* name, std::span<std::byte> bytes) {
  if (fault_bytes_is_set.load(std::memory_order_relaxed)) call_fault_bytes(name, bytes);
}

// Called at every point from any thread; null: none. Not while points are being passed.
void set_fault_handler(std::function<void(const char* name)> handler);
void set_fault_bytes(std::function<void(const char* name, std::span<std::byte> bytes)> handler);

}  // namespace moraine
