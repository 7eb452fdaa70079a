// FreeTransport: a transport that leaves payloads where they are, to measure a step without them.
//
// While it is free, what the groups of a step send each other (gradients, weights, rows of tokens,
// keys, halos) is neither sent nor waited for: who receives keeps what the memory held, and a sum
// adds zeros. Counts, decisions and barriers go through as ever, so that all ranks do the same.
// Results are garbage. All ranks are free at the same time.
#pragma once

#include <string>
#include <vector>

#include "comm/transport.h"

namespace moraine {

class FreeTransport : public Transport {
 public:
  explicit FreeTransport(Transport& real) : real_(real) {}

  void set_free(bool free) { free_ = free; }

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  int host_of(int rank) const override { return real_.host_of(rank); }
  std::string name() const override { return real_.name(); }
  SendTicket send(int peer, int channel, uint64_t label, ConstBytes data, double seconds) override;
  void wait_sent(const SendTicket& ticket, double seconds) override;
  void receive(int peer, int channel, uint64_t label, Bytes out, double seconds) override;
  Incoming open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) override;
  ConstBytes next(Incoming& message, int64_t bytes, Bytes staging, double seconds) override;
  void close(Incoming& message) override;
  void drop(Incoming& message) override;
  void withdraw(const SendTicket& ticket, const std::string& reason) override;
  void fail(const std::string& reason) override { real_.fail(reason); }
  void name_channel(int channel, const std::string& name) override;
  HostTransport* host() override { return real_.host(); }
  FarMessages* far() override { return real_.far(); }

 private:
  bool is_free(int channel, uint64_t label, size_t bytes) const;

  Transport& real_;
  bool free_ = false;
  bool of_step_[kMaxChannels] = {};  // by channel: it is of a group whose payloads can be free
};

}  // namespace moraine
