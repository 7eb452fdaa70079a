// LinkEvents: what the kernel says about network interfaces: a carrier that is gone or back.
//
// News come before any timer can notice; where they do not come (a switch that swallows packets), timers do.
//
// Errors:  none; without permission there are no news.
#pragma once

#include <vector>

namespace moraine {

struct LinkNews {
  int interface_index = 0;
  bool is_running = false;
};

class LinkEvents {
 public:
  LinkEvents();
  ~LinkEvents();
  LinkEvents(const LinkEvents&) = delete;
  LinkEvents& operator=(const LinkEvents&) = delete;

  int fd() const { return fd_; }  // readable when there are news; -1: there never are
  std::vector<LinkNews> read();

 private:
  int fd_;
};

}  // namespace moraine
