// SocketAddress: what differs between both kinds, in one place.
#include "comm/rails/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace moraine {
namespace {

// "HOST:PORT" or "[ADDRESS]:PORT" in two; false: it is neither.
bool split_address(const std::string& text, std::string* host, uint16_t* port) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  *host = text.substr(0, colon);
  const bool has_brackets = host->size() > 2 && host->front() == '[' && host->back() == ']';
  if (has_brackets) *host = host->substr(1, host->size() - 2);
  if (!has_brackets && host->find_first_of("[]:") != std::string::npos) return false;
  char* end = nullptr;
  const long number = std::strtol(text.c_str() + colon + 1, &end, 10);
  *port = static_cast<uint16_t>(number);
  return end != text.c_str() + colon + 1 && *end == '\0' && number >= 1 && number <= 65535;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, uint16_t port) {
  if (address->sa_family == AF_INET)
    std::memcpy(&as_.ipv4, address, sizeof as_.ipv4);
  else
    std::memcpy(&as_.ipv6, address, sizeof as_.ipv6);
  set_port(port);
}

SocketAddress SocketAddress::ipv4(uint32_t address, uint16_t port) {
  SocketAddress made;
  made.as_.ipv4.sin_family = AF_INET;
  made.as_.ipv4.sin_addr.s_addr = htonl(address);
  made.set_port(port);
  return made;
}

SocketAddress SocketAddress::ipv6(const in6_addr& address) {
  SocketAddress made;
  made.as_.ipv6.sin6_family = AF_INET6;
  made.as_.ipv6.sin6_addr = address;
  return made;
}

bool SocketAddress::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&as_.ipv6.sin6_addr);
}

uint16_t SocketAddress::port() const {
  return ntohs(family() == AF_INET6 ? as_.ipv6.sin6_port : as_.ipv4.sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  (family() == AF_INET6 ? as_.ipv6.sin6_port : as_.ipv4.sin_port) = htons(port);
}

const uint8_t* SocketAddress::bytes() const {
  return family() == AF_INET6 ? as_.ipv6.sin6_addr.s6_addr
                              : reinterpret_cast<const uint8_t*>(&as_.ipv4.sin_addr);
}

bool operator==(const SocketAddress& a, const SocketAddress& b) {
  return a.family() == b.family() && a.port() == b.port() &&
         std::memcmp(a.bytes(), b.bytes(), static_cast<size_t>(a.bits() / 8)) == 0;
}

std::string host_text(const SocketAddress& address) {
  char name[INET6_ADDRSTRLEN] = "?";
  if (address.family() != 0) inet_ntop(address.family(), address.bytes(), name, sizeof name);
  return name;
}

std::string address_text(const SocketAddress& address) {
  const bool is_ipv6 = address.family() == AF_INET6;
  return fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", host_text(address), is_ipv6 ? "]" : "",
                     address.port());
}

bool parse_host(const std::string& text, SocketAddress* address) {
  in_addr ipv4;
  in6_addr ipv6;
  if (inet_pton(AF_INET, text.c_str(), &ipv4) == 1)
    *address = SocketAddress::ipv4(ntohl(ipv4.s_addr), 0);
  else if (inet_pton(AF_INET6, text.c_str(), &ipv6) == 1)
    *address = SocketAddress::ipv6(ipv6);
  else
    return false;
  return true;
}

SocketAddress parse_address(const std::string& text) {
  std::string host;
  uint16_t port = 0;
  if (!split_address(text, &host, &port))
    throw_error(Code::kInvalidArgument,
                "address '{}': wanted HOST:PORT, for example 10.77.0.1:7070 or [fd77::1]:7070",
                text);
  addrinfo wanted = {}, *list = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  const int problem = getaddrinfo(host.c_str(), nullptr, &wanted, &list);
  if (problem != 0)
    throw_error(Code::kInvalidArgument, "address '{}': look up '{}': {}", text, host,
                gai_strerror(problem));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  // IPv4 if there is one; of IPv6 the first that is not link-local.
  const addrinfo* chosen = nullptr;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    const bool better = chosen == nullptr || each->ai_family == AF_INET ||
                        SocketAddress(chosen->ai_addr, port).is_link_local();
    if (better) chosen = each;
    if (each->ai_family == AF_INET) break;
  }
  if (chosen == nullptr)
    throw_error(Code::kInvalidArgument, "address '{}': '{}' has no IPv4 or IPv6 address", text,
                host);
  const SocketAddress address(chosen->ai_addr, port);
  if (address.is_link_local())
    throw_error(Code::kInvalidArgument,
                "address '{}': {} is link-local, which other hosts cannot use; wanted an address "
                "of a network",
                text, host_text(address));
  return address;
}

}  // namespace moraine
