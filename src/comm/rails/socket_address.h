// SocketAddress: an IPv4 or IPv6 address with a port, as the kernel takes it and as people write it.
//
// Written "10.77.0.2:4711" or "[fd77::2]:4711"; a host may also be a name, whose IPv4 address is taken if it has both
// kinds. IPv6 sockets take no IPv4.
//
// Errors:  kInvalidArgument for text that is none, or a name that nobody knows.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace moraine {

class SocketAddress {
 public:
  SocketAddress() = default;  // none
  SocketAddress(const sockaddr* address, uint16_t port);
  static SocketAddress ipv4(uint32_t address, uint16_t port);  // both in the order of this host
  static SocketAddress ipv6(const in6_addr& address);

  int family() const { return as_.any.ss_family; }  // AF_INET, AF_INET6, or 0: none
  bool is_link_local() const;  // fe80::/10, which says nothing without its interface
  uint16_t port() const;
  void set_port(uint16_t port);
  // The address alone, most significant byte first: 4 or 16.
  const uint8_t* bytes() const;
  int bits() const { return family() == AF_INET6 ? 128 : 32; }

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&as_.any); }
  sockaddr* data() { return reinterpret_cast<sockaddr*>(&as_.any); }
  socklen_t size() const { return family() == AF_INET6 ? sizeof as_.ipv6 : sizeof as_.ipv4; }
  static constexpr socklen_t kMostSize = sizeof(sockaddr_storage);

  friend bool operator==(const SocketAddress& a, const SocketAddress& b);

 private:
  union {
    sockaddr_storage any = {};
    sockaddr_in ipv4;
    sockaddr_in6 ipv6;
  } as_;
};

std::string host_text(const SocketAddress& address);     // "10.77.0.2", "fd77::2"
std::string address_text(const SocketAddress& address);  // "10.77.0.2:4711", "[fd77::2]:4711"
SocketAddress parse_address(const std::string& text);    // "HOST:PORT"
// An address by number, without a port; false: it is none.
bool parse_host(const std::string& text, SocketAddress* address);

}  // namespace moraine
