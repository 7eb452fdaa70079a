// Thread: starting one, or an Error that says why it can not start.
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

}  // namespace moraine
