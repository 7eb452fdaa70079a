// Thread: a thread that starts, or an Error that says why not.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

namespace moraine {

[[noreturn]] void thread_not_started(const char* what, const std::system_error& reason);

// `what` the thread is for, for the message. Errors: kInvalidArgument (a limit on threads).
template <class F>
std::thread start_thread(const char* what, F&& body) {
  try {
    return std::thread(std::forward<F>(body));
  } catch (const std::system_error& e) {
    thread_not_started(what, e);
  }
}

// Processor time since its start; of the caller's own thread without one.
double thread_seconds(std::thread& thread);
double thread_seconds();

}  // namespace moraine
