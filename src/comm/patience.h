// Patience: how long waits of this thread look for an answer before they sleep.
//
// A thread that has nothing else to do may keep its core for a millisecond, which is cheaper than
// to be woken. A background thread (CommStream's) leaves the core to those who compute.
#pragma once

namespace moraine {

void set_background_thread();
bool is_background_thread();

}  // namespace moraine
