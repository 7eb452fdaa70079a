// RailAddress: compares names with what interfaces have.
#include "comm/rails/rail_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"

namespace moraine {
namespace {

struct Network {
  SocketAddress address;
  int bits = 0;  // that are the same in the whole network

  bool has(const SocketAddress& other) const {
    if (other.family() != address.family()) return false;
    const int whole = bits / 8, rest = bits % 8;
    if (std::memcmp(other.bytes(), address.bytes(), static_cast<size_t>(whole)) != 0) return false;
    return rest == 0 || (other.bytes()[whole] ^ address.bytes()[whole]) >> (8 - rest) == 0;
  }
};

bool parse_network(const std::string& text, Network* network) {
  const size_t slash = text.find('/');
  if (!parse_host(text.substr(0, slash), &network->address)) return false;
  network->bits = network->address.bits();
  if (slash == std::string::npos) return true;
  char* end = nullptr;
  const long bits = std::strtol(text.c_str() + slash + 1, &end, 10);
  if (end == text.c_str() + slash + 1 || *end != '\0' || bits < 1 || bits > network->bits)
    return false;
  network->bits = static_cast<int>(bits);
  return true;
}

std::vector<RailAddress> host_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    throw_error(Code::kIo, "find rails: list network interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<RailAddress> all;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const int family = i->ifa_addr == nullptr ? 0 : i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    RailAddress rail;
    rail.address = SocketAddress(i->ifa_addr, 0);
    if (rail.address.is_link_local()) continue;
    rail.interface_name = i->ifa_name;
    rail.interface_index = static_cast<int>(if_nametoindex(i->ifa_name));
    all.push_back(rail);
  }
  return all;
}

std::string list_text(const std::vector<RailAddress>& all) {
  std::string text;
  for (const RailAddress& rail : all)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", rail.interface_name,
                        host_text(rail.address));
  return text.empty() ? "none" : text;
}

std::vector<RailAddress> addresses_of(const std::string& interface_name,
                                      const std::vector<RailAddress>& all) {
  std::vector<RailAddress> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const RailAddress& rail : all) {
      if (rail.interface_name == interface_name && rail.address.family() == family)
        found.push_back(rail);
    }
    if (!found.empty()) break;
  }
  return found;
}

}  // namespace

RailAddress find_rail_address(const std::string& name) {
  const std::vector<RailAddress> all = host_addresses();
  Network network;
  std::vector<RailAddress> found;
  const bool is_network = parse_network(name, &network);
  if (!is_network) found = addresses_of(name, all);
  for (const RailAddress& rail : all) {
    if (is_network && network.has(rail.address)) found.push_back(rail);
  }
  // 127.0.0.0/8 is this host, whatever the interface says that it has.
  if (found.empty() && is_network && network.bits == 32 && network.address.bytes()[0] == 127) {
    RailAddress rail;
    rail.address = network.address;
    rail.interface_name = "lo";
    rail.interface_index = static_cast<int>(if_nametoindex("lo"));
    found.push_back(rail);
  }
  if (found.size() != 1)
    throw_error(Code::kInvalidArgument,
                "rail '{}': {} of this host; wanted an interface, an IPv4 or IPv6 address or a "
                "network with one address of "
                "this host in it; it has: {}",
                name, found.empty() ? "fits no address" : "fits several addresses", list_text(all));
  return found.front();
}

int listen_on(RailAddress* rail) {
  constexpr int kBacklog = 64;
  SocketAddress& address = rail->address;
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd >= 0 && address.family() == AF_INET6)
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  socklen_t bytes = SocketAddress::kMostSize;
  if (fd >= 0 && bind(fd, address.data(), address.size()) == 0 && listen(fd, kBacklog) == 0 &&
      getsockname(fd, address.data(), &bytes) == 0)
    return fd;
  const int error = errno;
  if (fd >= 0) close(fd);
  throw_error(Code::kIo, "listen on {} ({}): {}", address_text(rail->address), rail->interface_name,
              std::strerror(error));
}

// Below the ports that the system gives to connections (from 32768 on): one of those may be taken before it is used,
// or be given to whoever connects to it too early, who then talks to itself.
std::string free_local_address() {
  constexpr int kFirst = 20000, kCount = 12000;
  static std::atomic<int> next{0};
  RailAddress place = find_rail_address("127.0.0.1");
  for (int tried = 1;; ++tried) {
    place.address.set_port(static_cast<uint16_t>(kFirst + (getpid() * 17 + next++) % kCount));
    try {
      close(listen_on(&place));
      return address_text(place.address);
    } catch (const Error&) {
      if (tried == kCount) throw;
    }
  }
}

}  // namespace moraine
