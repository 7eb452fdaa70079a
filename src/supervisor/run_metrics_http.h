// RunMetricsHttp: one text for whoever asks on 127.0.0.1, without ever making the caller wait.
//
// No thread: the caller polls the descriptors and calls serve(), which reads and writes what is there and returns. A
// client has kClientSeconds and kRequestBytes; there are kClientsMost of them, and the oldest goes for a newer one.
// GET /metrics is answered, anything else is 404, 405 or the end of the connection; one answer for each connection.
//
// Errors:  kIo: the port is not free.
// Threads: one.
#pragma once

#include <poll.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace moraine {

class RunMetricsHttp {
 public:
  static constexpr size_t kClientsMost = 8;
  static constexpr size_t kRequestBytes = 8192;
  static constexpr double kClientSeconds = 2;

  explicit RunMetricsHttp(int port);  // 0: a free one
  ~RunMetricsHttp();
  RunMetricsHttp(const RunMetricsHttp&) = delete;
  RunMetricsHttp& operator=(const RunMetricsHttp&) = delete;

  int port() const { return port_; }
  void add_descriptors(std::vector<pollfd>* polled) const;
  // `text` is asked for only if somebody wants it.
  void serve(double now, const std::function<std::string()>& text);

 private:
  struct Client {
    int fd = -1;
    double since = 0;
    std::string request, answer;
    size_t sent = 0;
  };
  void accept_clients(double now);
  bool move(Client* client, const std::function<std::string()>& text);  // false: it is over

  int listener_ = -1;
  int port_ = 0;
  std::deque<Client> clients_;  // the oldest first
};

}  // namespace moraine
