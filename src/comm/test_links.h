// TestLinks: two network namespaces of this machine, joined by virtual links that a test can cut.
//
// Link i is "rail<i>" on both sides, with the address 10.77.<i>.1 on side 0 and 10.77.<i>.2 on side 1. The namespaces
// have no names: they are gone with the last process that is in them, however that ends.
//
// Errors:  problem() says why this machine has none (no root, no namespaces, no command ip).
// Threads: made and used by a process that has one thread.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace moraine {

enum class Cut : uint8_t {
  kDown,       // the cable is out: both hosts see it at once
  kSilent,     // both ways swallow everything, and no host is told
  kOneWay,     // what `side` sends is swallowed
  kLargeOnly,  // what `side` sends in large packets is swallowed
};
constexpr Cut kAllCuts[] = {Cut::kDown, Cut::kSilent, Cut::kOneWay, Cut::kLargeOnly};

inline const char* cut_name(Cut cut) {
  const char* names[] = {"down", "silent", "one-way", "large-only"};
  return names[static_cast<int>(cut)];
}

class TestLinks {
 public:
  explicit TestLinks(int count) {
    home_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (int& side : sides_) {
      if (home_ < 0 || unshare(CLONE_NEWNET) != 0) {
        problem_ = "this process may not make network namespaces (root may)";
        break;
      }
      side = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    }
    if (home_ >= 0) setns(home_, CLONE_NEWNET);
    for (int side = 0; side < 2; ++side) ip(side, "link set lo up");
    for (int link = 0; link < count; ++link) add(link);
  }
  ~TestLinks() {
    for (const int fd : {home_, sides_[0], sides_[1]}) {
      if (fd >= 0) close(fd);
    }
  }
  TestLinks(const TestLinks&) = delete;
  TestLinks& operator=(const TestLinks&) = delete;

  const std::string& problem() const { return problem_; }
  // This process moves to a side.
  void enter(int side) const { MR_CHECK(setns(sides_[side], CLONE_NEWNET) == 0, "side %d", side); }

  void cut(int link, Cut how, int side) {
    const int other = 1 - side;
    const std::string name = name_of(link);
    if (how == Cut::kDown) ip(side, "link set {} down", name);
    if (how == Cut::kSilent || how == Cut::kOneWay) swallow(link, side);
    if (how == Cut::kSilent) swallow(link, other);
    if (how != Cut::kLargeOnly) return;
    // The smaller end drops what is larger. It goes on to promise the old size to whoever connects.
    ip(other, "route replace 10.77.{}.0/24 dev {} scope link src {} advmss {}", link, name,
       address_of(link, other), kPacketBytes - 40);
    ip(other, "link set {} mtu 1400", name);
  }

  void heal(int link, Cut how, int side) {
    const int other = 1 - side;
    const std::string name = name_of(link);
    if (how == Cut::kDown) ip(side, "link set {} up", name);
    if (how == Cut::kSilent || how == Cut::kOneWay) reach(link, side);
    if (how == Cut::kSilent) reach(link, other);
    if (how == Cut::kLargeOnly) ip(other, "link set {} mtu {}", name, kPacketBytes);
  }

 private:
  static constexpr int kPacketBytes = 9000;
  static std::string name_of(int link) { return fmt::format("rail{}", link); }
  static std::string address_of(int link, int side) {
    return fmt::format("10.77.{}.{}", link, side + 1);
  }

  void add(int link) {
    const std::string name = name_of(link);
    ip(0, "link add {} type veth peer name {} netns /proc/{}/fd/{}", name, name, getpid(),
       sides_[1]);
    for (int side = 0; side < 2; ++side) {
      ip(side, "addr add {}/24 dev {}", address_of(link, side), name);
      // Packets one by one, as on a wire: a virtual link takes bundles of them whatever their size.
      ip(side, "link set {} mtu {} gso_max_segs 1 up", name, kPacketBytes);
    }
  }

  // To a hardware address that nobody has.
  void swallow(int link, int side) {
    ip(side, "neigh replace {} lladdr 02:00:00:00:00:99 nud permanent dev {}",
       address_of(link, 1 - side), name_of(link));
  }
  void reach(int link, int side) {
    ip(side, "neigh del {} dev {}", address_of(link, 1 - side), name_of(link));
  }

  template <class... Args>
  void ip(int side, fmt::format_string<Args...> format, Args&&... args) {
    if (!problem_.empty()) return;
    const std::string line = fmt::format(format, std::forward<Args>(args)...);
    if (!run_ip(side, line))
      problem_ = fmt::format("'ip {}' (Debian: iproute2) fails in a namespace", line);
  }

  bool run_ip(int side, const std::string& line) const {
    const pid_t pid = fork();
    if (pid == 0) {
      enter(side);
      const std::string shell = fmt::format("exec ip {}", line);
      execl("/bin/sh", "sh", "-c", shell.c_str(), nullptr);
      _exit(127);
    }
    int status = -1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
  }

  int home_ = -1, sides_[2] = {-1, -1};
  std::string problem_;
};

}  // namespace moraine
