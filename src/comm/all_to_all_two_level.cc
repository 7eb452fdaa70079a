// All-to-all over hosts in two steps: within hosts, then between members of equal place.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "comm/collectives.h"
#include "comm/exchange.h"

namespace moraine {
namespace {

using Members = std::vector<int>;

// Members by host, ascending; empty if hosts have different numbers of them.
std::vector<Members> members_by_host(std::span<const int> hosts) {
  std::vector<int> names(hosts.begin(), hosts.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<Members> by_host(names.size());
  for (size_t m = 0; m < hosts.size(); ++m) {
    const auto at = std::lower_bound(names.begin(), names.end(), hosts[m]) - names.begin();
    by_host[static_cast<size_t>(at)].push_back(static_cast<int>(m));
  }
  for (const Members& members : by_host) {
    if (members.size() != by_host[0].size()) return {};
  }
  return by_host;
}

class TwoLevel {
 public:
  TwoLevel(Communicator& comm, std::vector<Members> by_host, std::span<const ConstBytes> send,
           std::span<const Bytes> receive)
      : comm_(comm), by_host_(std::move(by_host)), send_(send), receive_(receive) {
    for (size_t h = 0; h < by_host_.size(); ++h) {
      for (size_t p = 0; p < by_host_[h].size(); ++p) {
        if (by_host_[h][p] == comm_.rank()) host_ = h, place_ = p;
      }
    }
  }

  void run() {
    exchange_sizes();
    Exchange exchange(comm_, Operation::kAllToAll);
    within_host(exchange);
    between_hosts(exchange);
    exchange.wait_sent();
  }

 private:
  size_t size_of(int from, int to) const {
    return static_cast<size_t>(sizes_[static_cast<size_t>(from * comm_.size() + to)]);
  }
  const Members& neighbours() const { return by_host_[host_]; }

  void exchange_sizes() {
    std::vector<int64_t> mine;
    for (const ConstBytes& piece : send_) mine.push_back(static_cast<int64_t>(piece.size()));
    sizes_.resize(mine.size() * mine.size());
    all_gather_equal(comm_, std::as_bytes(std::span(mine)),
                     std::as_writable_bytes(std::span(sizes_)));
  }

  // What `from` has for the members at `place` of every host, in the order of hosts.
  size_t bundle_bytes(int from, size_t place) const {
    size_t bytes = 0;
    for (const Members& members : by_host_) bytes += size_of(from, members[place]);
    return bytes;
  }

  void within_host(Exchange& exchange) {
    for (size_t place = 0; place < neighbours().size(); ++place) {
      std::vector<std::byte>& bundle = out_.emplace_back();
      for (const Members& members : by_host_) {
        const ConstBytes piece = send_[static_cast<size_t>(members[place])];
        bundle.insert(bundle.end(), piece.begin(), piece.end());
      }
      if (place != place_) exchange.send(neighbours()[place], bundle);
    }
    for (size_t place = 0; place < neighbours().size(); ++place) {
      std::vector<std::byte>& bundle = in_.emplace_back();
      if (place == place_) {
        bundle = out_[place_];
        continue;
      }
      bundle.resize(bundle_bytes(neighbours()[place], place_));
      exchange.receive(neighbours()[place], bundle);
    }
  }

  // Bundle i holds what neighbour i has for this place of each host: regrouped by host.
  void between_hosts(Exchange& exchange) {
    std::vector<size_t> at(in_.size(), 0);
    forward_.resize(by_host_.size());
    for (size_t h = 0; h < by_host_.size(); ++h) {
      const int target = by_host_[h][place_];
      for (size_t i = 0; i < in_.size(); ++i) {
        const size_t bytes = size_of(neighbours()[i], target);
        const auto begin = in_[i].begin() + static_cast<std::ptrdiff_t>(at[i]);
        forward_[h].insert(forward_[h].end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
        at[i] += bytes;
      }
      if (h != host_) exchange.send(target, forward_[h]);
    }
    for (size_t h = 0; h < by_host_.size(); ++h) {
      size_t bytes = 0;
      for (const int from : by_host_[h]) bytes += size_of(from, comm_.rank());
      std::vector<std::byte> bundle(bytes);
      if (h == host_) {
        bundle = forward_[h];
      } else {
        exchange.receive(by_host_[h][place_], bundle);
      }
      deliver(h, bundle);
    }
  }

  void deliver(size_t host, const std::vector<std::byte>& bundle) {
    const std::byte* from = bundle.data();
    for (const int m : by_host_[host]) {
      const Bytes out = receive_[static_cast<size_t>(m)];
      MR_CHECK(out.size() == size_of(m, comm_.rank()), "%zu and %zu bytes from member %d",
               out.size(), size_of(m, comm_.rank()), m);
      if (!out.empty()) std::memcpy(out.data(), from, out.size());
      from += out.size();
    }
  }

  Communicator& comm_;
  const std::vector<Members> by_host_;
  const std::span<const ConstBytes> send_;
  const std::span<const Bytes> receive_;
  size_t host_ = 0, place_ = 0;
  std::vector<int64_t> sizes_;
  std::vector<std::vector<std::byte>> out_, in_, forward_;
};

}  // namespace

void all_to_all_two_level(Communicator& comm, std::span<const int> hosts,
                          std::span<const ConstBytes> send, std::span<const Bytes> receive) {
  MR_CHECK(static_cast<int>(hosts.size()) == comm.size() && send.size() == hosts.size() &&
               receive.size() == hosts.size(),
           "%zu hosts for %d members", hosts.size(), comm.size());
  std::vector<Members> by_host = members_by_host(hosts);
  if (by_host.size() < 2 || by_host[0].size() < 2) {
    all_to_all(comm, send, receive);
    return;
  }
  TwoLevel(comm, std::move(by_host), send, receive).run();
}

}  // namespace moraine
