// FaultPoint: named places in the program where a test lets the process die, stop, fail, or go on with other bits.
//
// Nothing happens, and nearly nothing is spent (one load), unless a test has set a handler. Each place is in the list
// of fault_points.h, which is the list of states of the run's protocols: a name that is not there does not compile.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>

#include "base/fault_points.h"

namespace moraine {

class FaultPoint {
 public:
  consteval FaultPoint(const char* name) : name_(name) {
    if (!is_fault_point(name))
      throw "not in base/fault_points.h";  // which is no constant expression
  }
  constexpr const char* name() const { return name_; }

 private:
  const char* name_;
};

extern std::atomic<bool> fault_handler_is_set;
void call_fault_handler(const char* name);

inline void fault_point(FaultPoint point) {
  if (fault_handler_is_set.load(std::memory_order_relaxed)) call_fault_handler(point.name());
}

extern std::atomic<bool> fault_bytes_is_set;
void call_fault_bytes(const char* name, std::span<std::byte> bytes);

// With memory that the handler may change: what a fault of the hardware leaves there.
inline void fault_bytes(const char* name, std::span<std::byte> bytes) {
  if (fault_bytes_is_set.load(std::memory_order_relaxed)) call_fault_bytes(name, bytes);
}

// Called at every point from any thread; null: none. Not while points are being passed.
void set_fault_handler(std::function<void(const char* name)> handler);
void set_fault_bytes(std::function<void(const char* name, std::span<std::byte> bytes)> handler);

}  // namespace moraine
