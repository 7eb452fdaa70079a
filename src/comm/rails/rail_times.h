// RailTimes: when a rail counts as dead, and what is done, for how long, while all rails of a peer are.
#pragma once

namespace moraine {

struct RailTimes {
  double heartbeat_seconds = 0.02;  // a rail never says less often that it lives
  double dead_seconds = 0.1;
  double renew_seconds = 1;  // all are silent: connect anew; a connection is not proved: close it
  double connect_seconds = 0.5;  // from the first packet to the open connection
  // Before a lost rail is tried again: doubled each time, until one lived long enough to be settled.
  double first_retry_seconds = 0.05, last_retry_seconds = 2, settled_seconds = 10;
  // No rail carries: operations are held, then run again, so many times. Then the peer is lost.
  double hold_seconds = 15, interval_seconds = 5;
  int resends = 3;
  double patience_seconds() const { return resends * (hold_seconds + interval_seconds); }
};

}  // namespace moraine
