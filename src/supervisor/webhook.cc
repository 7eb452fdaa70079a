// A queue and the thread that empties it.
#include "supervisor/webhook.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "supervisor/http_post.h"

namespace moraine {
namespace {

[[noreturn]] void refuse(const char* why) {
  throw_error(Code::kInvalidArgument,
              "supervise.webhook: {}; wanted http://HOST[:PORT]/PATH or https://...", why);
}

int parse_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535)
    refuse("its port is no number from 1 to 65535");
  return port;
}

// Signals are for the loop, and a connection that is gone is an error of the call.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

WebhookAddress parse_webhook(const std::string& url) {
  WebhookAddress a;
  std::string_view rest = url;
  for (const char c : rest)
    if (c <= ' ' || c > '~') refuse("it has a character that must be written as %XX");
  if (rest.starts_with("https://"))
    a.secure = true;
  else if (!rest.starts_with("http://"))
    refuse("it begins with neither http:// nor https://");
  rest.remove_prefix(a.secure ? 8 : 7);
  std::string_view host = rest.substr(0, rest.find_first_of("/?#"));
  rest.remove_prefix(host.size());
  const std::string_view path = rest.substr(0, rest.find('#'));
  a.path = path.starts_with('/') ? std::string(path) : fmt::format("/{}", path);
  if (host.find('@') != std::string_view::npos) refuse("it has a user before its host");
  a.port = a.secure ? 443 : 80;
  const size_t bracket = host.starts_with('[') ? host.find(']') : 0;
  if (bracket == std::string_view::npos) refuse("its host has no closing bracket");
  const size_t colon = host.find(':', bracket);
  if (colon != std::string_view::npos) {
    a.port = parse_port(host.substr(colon + 1));
    host = host.substr(0, colon);
  }
  a.host = bracket > 0 ? host.substr(1, bracket - 1) : host;
  if (a.host.empty() || (bracket > 0 && host.size() != bracket + 1)) refuse("it has no host");
  return a;
}

struct Webhook::Shared {
  WebhookAddress address;
  double seconds = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> queue;  // the front is being sent
  bool ending = false;
  int64_t failures = 0, dropped = 0;  // not told yet
  double told_at = -1;

  void work();
  void tell(const std::string& reason);
};

void Webhook::Shared::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return ending || !queue.empty(); });
    if (queue.empty()) return;
    const std::string json = queue.front();
    lock.unlock();
    std::string reason;
    try {
      post_json(address, json, seconds);
    } catch (const std::exception& e) {
      reason = e.what();
    }
    lock.lock();
    queue.pop_front();
    if (!reason.empty()) ++failures;
    if (failures + dropped > 0) tell(reason);
    changed.notify_all();
  }
}

// Under the lock.
void Webhook::Shared::tell(const std::string& reason) {
  const double now = now_seconds();
  if (told_at >= 0 && now - told_at < kTellSeconds) return;
  log_event(Level::kWarning, "supervise.webhook_failed", "failures={} dropped={} reason=\"{}\"",
            failures, dropped, reason);
  told_at = now;
  failures = dropped = 0;
}

Webhook::Webhook(const WebhookAddress& address, double seconds)
    : shared_(std::make_shared<Shared>()) {
  shared_->address = address;
  shared_->seconds = seconds;
  const SignalsBlocked blocked;  // the thread has it from here
  // Nobody joins it: looking up a name may take longer than the end of a run should.
  start_thread("webhook", [shared = shared_] { shared->work(); }).detach();
}

Webhook::~Webhook() {
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
  const double patience = std::min(kEndSeconds, 5 * shared_->seconds);
  shared_->changed.wait_for(lock, std::chrono::duration<double>(patience),
                            [&] { return shared_->queue.empty(); });
}

void Webhook::post(std::string json) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->queue.size() >= kQueueMost) {
    ++shared_->dropped;
    return;
  }
  shared_->queue.push_back(std::move(json));
  shared_->changed.notify_all();
}

}  // namespace moraine
