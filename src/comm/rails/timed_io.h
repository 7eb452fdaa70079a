// TimedIo: whole messages over a socket that does not block, until a deadline.
//
// Errors:  false: the other side is gone, or it took too long.
#pragma once

#include <netinet/in.h>

#include <cstddef>

namespace moraine {

// `end`: as now_seconds(); infinity: for as long as the other side is there.
bool send_all(int fd, const void* data, size_t bytes, double end);
bool receive_all(int fd, void* data, size_t bytes, double end);
// Whether there is something to read, or the end, within `seconds`.
bool is_readable(int fd, double seconds);
// Connected, or -1 if nobody answers until then. Errors: kIo if the system gives no socket.
int reach(const sockaddr_in& address, double end);
// From now on the system finds out, within half a minute of silence, that the host behind `fd` is gone.
void keep_alive(int fd);

}  // namespace moraine
