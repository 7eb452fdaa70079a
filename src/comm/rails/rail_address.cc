// RailAddress: compares names with what interfaces have.
#include "comm/rails/rail_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace moraine {
namespace {

struct Network {
  uint32_t address = 0, mask = 0xffffffff;  // in the order of the host
};

bool parse_network(const std::string& text, Network* network) {
  const size_t slash = text.find('/');
  in_addr address;
  if (inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1) return false;
  network->address = ntohl(address.s_addr);
  if (slash == std::string::npos) return true;
  char* end = nullptr;
  const long bits = std::strtol(text.c_str() + slash + 1, &end, 10);
  if (end == text.c_str() + slash + 1 || *end != '\0' || bits < 1 || bits > 32) return false;
  network->mask = bits == 32 ? 0xffffffff : ~(0xffffffff >> bits);
  return true;
}

std::vector<RailAddress> host_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    throw_error(Code::kIo, "find rails: list network interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<RailAddress> all;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    RailAddress rail;
    std::memcpy(&rail.address, i->ifa_addr, sizeof rail.address);
    rail.address.sin_port = 0;
    rail.interface_name = i->ifa_name;
    rail.interface_index = static_cast<int>(if_nametoindex(i->ifa_name));
    all.push_back(rail);
  }
  return all;
}

std::string host_text(const std::vector<RailAddress>& all) {
  std::string text;
  for (const RailAddress& rail : all) {
    char name[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &rail.address.sin_addr, name, sizeof name);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", rail.interface_name, name);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

RailAddress find_rail_address(const std::string& name) {
  const std::vector<RailAddress> all = host_addresses();
  Network network;
  const bool is_network = parse_network(name, &network);
  std::vector<RailAddress> found;
  for (const RailAddress& rail : all) {
    const uint32_t address = ntohl(rail.address.sin_addr.s_addr);
    const bool fits = is_network ? (address & network.mask) == (network.address & network.mask)
                                 : rail.interface_name == name;
    if (fits) found.push_back(rail);
  }
  // 127.0.0.0/8 is this host, whatever the interface says that it has.
  if (found.empty() && is_network && network.mask == 0xffffffff && network.address >> 24 == 127) {
    RailAddress rail;
    rail.address.sin_family = AF_INET;
    rail.address.sin_addr.s_addr = htonl(network.address);
    rail.interface_name = "lo";
    rail.interface_index = static_cast<int>(if_nametoindex("lo"));
    found.push_back(rail);
  }
  if (found.size() != 1)
    throw_error(Code::kInvalidArgument,
                "rail '{}': {} of this host; wanted an interface, an IPv4 address or a network "
                "with one address of "
                "this host in it; it has: {}",
                name, found.empty() ? "fits no address" : "fits several addresses", host_text(all));
  return found.front();
}

std::string address_text(const sockaddr_in& address) {
  char name[INET_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET, &address.sin_addr, name, sizeof name);
  return fmt::format("{}:{}", name, ntohs(address.sin_port));
}

sockaddr_in parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  char* end = nullptr;
  const long port =
      colon == std::string::npos ? -1 : std::strtol(text.c_str() + colon + 1, &end, 10);
  if (colon == std::string::npos || colon == 0 || end == text.c_str() + colon + 1 || *end != '\0' ||
      port < 1 || port > 65535)
    throw_error(Code::kInvalidArgument,
                "address '{}': wanted HOST:PORT, for example 10.77.0.1:7070", text);
  addrinfo wanted = {}, *list = nullptr;
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  const std::string host = text.substr(0, colon);
  const int problem = getaddrinfo(host.c_str(), nullptr, &wanted, &list);
  if (problem != 0)
    throw_error(Code::kInvalidArgument, "address '{}': look up '{}': {}", text, host,
                gai_strerror(problem));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  sockaddr_in address;
  std::memcpy(&address, list->ai_addr, sizeof address);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int listen_on(RailAddress* rail) {
  constexpr int kBacklog = 64;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t bytes = sizeof rail->address;
  const auto address = reinterpret_cast<sockaddr*>(&rail->address);
  if (fd >= 0 && bind(fd, address, bytes) == 0 && listen(fd, kBacklog) == 0 &&
      getsockname(fd, address, &bytes) == 0)
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
    place.address.sin_port =
        htons(static_cast<uint16_t>(kFirst + (getpid() * 17 + next++) % kCount));
    try {
      close(listen_on(&place));
      return address_text(place.address);
    } catch (const Error&) {
      if (tried == kCount) throw;
    }
  }
}

}  // namespace moraine
