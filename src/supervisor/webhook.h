// Webhook: alerts as JSON by POST, http or https, that never keep the supervisor waiting.
//
//   {"text":"...","fault":"killed","run":"runs/a","host":"node1","time":"2026-01-02T03:04:05Z"}
//
// A thread of its own takes them from a queue of kQueueMost, one after the other, each with kSeconds from the name of
// the host to the first line of the answer; 2xx is success, anything else (a redirect too) is a failure and the alert
// is gone. https is verified against the system's certificates (or SSL_CERT_FILE) and the host's name.
//
// Failures are told once, then at most every kTellSeconds with how many there were. The address is never logged beyond
// the host: the rest of it is usually a secret.
//
// Errors:  kInvalidArgument: no such address. Of sending: none, an event.
// Threads: one caller. The destructor waits for what is queued, kEndSeconds at most.
#pragma once

#include <memory>
#include <string>

namespace moraine {

struct WebhookAddress {
  bool secure = false;
  std::string host;  // a name or a number; without brackets
  int port = 0;
  std::string path;  // with the query
};
WebhookAddress parse_webhook(const std::string& url);

class Webhook {
 public:
  static constexpr size_t kQueueMost = 64;
  static constexpr double kSeconds = 5, kEndSeconds = 3, kTellSeconds = 60;

  explicit Webhook(const WebhookAddress& address, double seconds = kSeconds);
  ~Webhook();
  Webhook(const Webhook&) = delete;
  Webhook& operator=(const Webhook&) = delete;

  void post(std::string json);  // returns at once

 private:
  struct Shared;  // with the thread, which a destructor may leave behind
  std::shared_ptr<Shared> shared_;
};

}  // namespace moraine
