// RoutedTransport: shared memory to the ranks of this host, messages to all others.
//
// Ending: when the rank ended well, it waits until everything that it sent has arrived (finish), so that no rank ends
// under another's feet. `has_finished` tells the owner whether that was so.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/far_messages.h"
#include "comm/host_transport.h"

namespace moraine {

class RoutedTransport : public Transport {
 public:
  // `host` reaches at least this rank; `far` all that it does not. name: "mpi", "rails".
  RoutedTransport(int rank, std::vector<int> hosts, std::string name);
  ~RoutedTransport() override = default;
  void set_routes(std::unique_ptr<HostTransport> host, std::unique_ptr<FarMessages> far);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  int host_of(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
  std::string name() const override;

  SendTicket send(int peer, int channel, uint64_t label, ConstBytes data, double seconds) override;
  void wait_sent(const SendTicket& ticket, double seconds) override;
  void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) override;
  Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) override;
  ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double seconds) override;
  void close(Incoming& message) override;
  void drop(Incoming& message) override;
  void withdraw(const SendTicket& ticket, const std::string& reason) override;
  void fail(const std::string& reason) override { host_->fail(reason); }
  void end_together() override { ends_together_ = true; }
  HostTransport* host() override { return host_.get(); }
  FarMessages* far() override { return far_.get(); }
  void name_channel(int channel, const std::string& name) override;

 protected:
  // Destroyed by an exception of which the others may not know.
  bool ends_alone() const { return !ends_together_ && std::uncaught_exceptions() > exceptions_; }
  bool ends_together() const { return ends_together_; }
  // True if all that was sent has arrived; false after a fault, or after `seconds`.
  bool finish(double seconds);

  const int rank_;
  const std::vector<int> hosts_;
  const std::string name_;
  std::unique_ptr<HostTransport> host_;
  std::unique_ptr<FarMessages> far_;

 private:
  const int exceptions_ = std::uncaught_exceptions();
  bool ends_together_ = false;
};

}  // namespace moraine
