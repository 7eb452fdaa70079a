// TcpPath: what the kernel has measured of the way of one connection.
//
// Errors:  none; zeros if the kernel does not say.
#pragma once

namespace moraine {

struct TcpPath {
  double round_trip_seconds = 0;  // the shortest that was seen, so without what waits in queues
  double bytes_per_second = 0;    // that arrived at the other end, of late
};

TcpPath measure_tcp_path(int fd);

}  // namespace moraine
