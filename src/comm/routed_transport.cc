// RoutedTransport: asks of each call which way its peer is.
#include "comm/routed_transport.h"

#include <algorithm>
#include <exception>

#include "base/error.h"

namespace moraine {

RoutedTransport::RoutedTransport(int rank, std::vector<int> hosts, std::string name)
    : rank_(rank), hosts_(std::move(hosts)), name_(std::move(name)) {}

void RoutedTransport::set_routes(std::unique_ptr<HostTransport> host,
                                 std::unique_ptr<FarMessages> far) {
  host_ = std::move(host);
  far_ = std::move(far);
}

// The same on every rank: a rank that is alone on its host speaks of a job in which others share memory.
std::string RoutedTransport::name() const {
  bool have_neighbours = false;  // ranks of any host
  for (int r = 1; r < size(); ++r) have_neighbours = have_neighbours || host_of(r) != r;
  const int64_t own = std::count(hosts_.begin(), hosts_.end(), host_of(rank_));
  return have_neighbours && host_->region().ranks() == own
             ? fmt::format("{} (shared memory)", name_)
             : name_;
}

SendTicket RoutedTransport::send(int peer, int channel, uint64_t label, ConstBytes data,
                                 double seconds) {
  return host_->reaches(peer) ? host_->send(peer, channel, label, data, seconds)
                              : far_->send(peer, channel, label, data, seconds);
}

void RoutedTransport::wait_sent(const SendTicket& ticket, double seconds) {
  host_->reaches(ticket.peer) ? host_->wait_sent(ticket, seconds)
                              : far_->wait_sent(ticket, seconds);
}

void RoutedTransport::receive(int peer, int channel, uint64_t label, Bytes out, double seconds) {
  host_->reaches(peer) ? host_->receive(peer, channel, label, out, seconds)
                       : far_->receive(peer, channel, label, out, seconds);
}

Incoming RoutedTransport::open(int peer, int channel, uint64_t label, int64_t bytes,
                               double seconds) {
  return host_->reaches(peer) ? host_->open(peer, channel, label, bytes, seconds)
                              : far_->open(peer, channel, label, bytes, seconds);
}

ConstBytes RoutedTransport::next(Incoming& in, int64_t bytes, Bytes staging, double seconds) {
  return host_->reaches(in.peer) ? host_->next(in, bytes, staging, seconds)
                                 : far_->next(in, bytes, staging, seconds);
}

void RoutedTransport::close(Incoming& in) {
  host_->reaches(in.peer) ? host_->close(in) : far_->close(in);
}

void RoutedTransport::drop(Incoming& in) {
  host_->reaches(in.peer) ? host_->drop(in) : far_->drop(in);
}

void RoutedTransport::withdraw(const SendTicket& ticket, const std::string& reason) {
  host_->reaches(ticket.peer) ? host_->withdraw(ticket, reason) : far_->withdraw(ticket);
}

void RoutedTransport::name_channel(int channel, const std::string& name) {
  host_->name_channel(channel, name);
}

bool RoutedTransport::finish(double seconds) {
  if (host_->fault_rank() >= 0) return false;
  try {
    return far_->finish(seconds);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace moraine
