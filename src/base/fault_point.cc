// FaultPoint: keeps the handlers of the process, and calls them at each place.
#include "base/fault_point.h"

#include <utility>

namespace moraine {

std::atomic<bool> fault_handler_is_set{false};
std::atomic<bool> fault_bytes_is_set{false};

namespace {
std::function<void(const char* name)> handler;
std::function<void(const char* name, std::span<std::byte> bytes)> bytes_handler;
}  // namespace

void call_fault_handler(const char* name) { handler(name); }

void call_fault_bytes(const char* name, std::span<std::byte> bytes) { bytes_handler(name, bytes); }

void set_fault_handler(std::function<void(const char* name)> given) {
  fault_handler_is_set = false;
  handler = std::move(given);
  fault_handler_is_set = handler != nullptr;
}

void set_fault_bytes(std::function<void(const char* name, std::span<std::byte> bytes)> given) {
  fault_bytes_is_set = false;
  bytes_handler = std::move(given);
  fault_bytes_is_set = bytes_handler != nullptr;
}

}  // namespace moraine
