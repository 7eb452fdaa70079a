// TcpPath: asks by TCP_INFO, of the kernel's own header: that of the C library is shorter. No file of this folder
// includes that one: the two do not go together in a batch.
#include "comm/rails/tcp_path.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace moraine {

TcpPath measure_tcp_path(int fd) {
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  constexpr size_t kNeeded =
      offsetof(tcp_info, tcpi_delivery_rate) + sizeof info.tcpi_delivery_rate;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || bytes < kNeeded) return {};
  return {.round_trip_seconds = 1e-6 * static_cast<double>(info.tcpi_min_rtt),
          .bytes_per_second = static_cast<double>(info.tcpi_delivery_rate)};
}

}  // namespace moraine
