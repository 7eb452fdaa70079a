// LinkEvents: reads the kernel's route messages.
#include "comm/rails/link_events.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace moraine {

LinkEvents::LinkEvents()
    : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE)) {
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (fd_ < 0 || bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return;
  close(fd_);
  fd_ = -1;
}

LinkEvents::~LinkEvents() {
  if (fd_ >= 0) close(fd_);
}

std::vector<LinkNews> LinkEvents::read() {
  std::vector<LinkNews> news;
  alignas(nlmsghdr) std::array<char, 16384> buffer;
  for (ssize_t n; (n = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0;) {
    size_t left = static_cast<size_t>(n);
    for (auto* h = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(h, left);
         h = NLMSG_NEXT(h, left)) {
      if (h->nlmsg_type != RTM_NEWLINK && h->nlmsg_type != RTM_DELLINK) continue;
      const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(h));
      const bool up = h->nlmsg_type == RTM_NEWLINK && (link->ifi_flags & IFF_RUNNING) != 0 &&
                      (link->ifi_flags & IFF_UP) != 0;
      news.push_back({link->ifi_index, up});
    }
  }
  return news;
}

}  // namespace moraine
