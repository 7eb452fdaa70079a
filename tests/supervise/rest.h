// Rest: a moment between two looks at a program that works.
#pragma once

#include <chrono>
#include <thread>

namespace moraine::testing {

inline void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

}  // namespace moraine::testing
