// RailAddress: where a rail begins on this host: an address of one network interface.
//
// A rail is named by an interface ("eth1"), an address ("10.77.0.2", "fd77::2"), or a network ("10.77.0.0/24",
// "fd77::/64": the address that this host has in it, so that the same text serves every host). Of an interface with
// addresses of both kinds IPv4 is taken. Link-local addresses of IPv6 are none: they differ by what they leave by.
//
// Errors:  kInvalidArgument for a name that is none of the three, is not on this host, or fits several addresses; the
//          message lists what the host has.
#pragma once

#include <string>

#include "comm/rails/socket_address.h"

namespace moraine {

struct RailAddress {
  SocketAddress address;  // port: of the listener, once there is one
  int interface_index = 0;
  std::string interface_name;
};

RailAddress find_rail_address(const std::string& name);

// Listens there, on a free port, which is put into `rail`. Errors: kIo.
int listen_on(RailAddress* rail);

// "127.0.0.1:PORT" where nobody listens now, another at each call: a rendezvous of processes of this host.
std::string free_local_address();

}  // namespace moraine
