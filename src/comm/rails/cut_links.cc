// CutLinks: namespaces by unshare, links by the commands ip and tc.
#include "comm/rails/cut_links.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/check.h"

namespace moraine {
namespace {

constexpr int kPacketBytes = 9000, kWaitingBytes = 3 * kPacketBytes;

std::string name_of(int link) { return fmt::format("rail{}", link); }
std::string address_of(int link, int side) { return fmt::format("10.77.{}.{}", link, side + 1); }

}  // namespace

const char* cut_name(Cut cut) {
  const char* names[] = {"down", "silent", "one-way", "large-only", "crowded"};
  return names[static_cast<int>(cut)];
}

CutLinks::CutLinks(int count) {
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

CutLinks::~CutLinks() {
  for (const int fd : {home_, sides_[0], sides_[1]}) {
    if (fd >= 0) close(fd);
  }
}

void CutLinks::enter(int side) const {
  MR_CHECK(setns(sides_[side], CLONE_NEWNET) == 0, "side %d", side);
}

std::string CutLinks::file_of(int side) const {
  return fmt::format("/proc/{}/fd/{}", getpid(), sides_[side]);
}

void CutLinks::cut(int link, Cut how, int side) {
  const int other = 1 - side;
  const std::string name = name_of(link);
  if (how == Cut::kDown) ip(side, fmt::format("link set {} down", name));
  if (how == Cut::kSilent || how == Cut::kOneWay) swallow(link, side);
  if (how == Cut::kSilent) swallow(link, other);
  if (how == Cut::kCrowded)
    run(fmt::format("tc qdisc replace dev {} root tbf rate 100mbit burst {} limit {}", name,
                    2 * kPacketBytes, kWaitingBytes),
        side);
  if (how != Cut::kLargeOnly) return;
  // The smaller end drops what is larger. It goes on to promise the old size to whoever connects.
  ip(other, fmt::format("route replace 10.77.{}.0/24 dev {} scope link src {} advmss {}", link,
                        name, address_of(link, other), kPacketBytes - 40));
  ip(other, fmt::format("link set {} mtu 1400", name));
}

void CutLinks::heal(int link, Cut how, int side) {
  const int other = 1 - side;
  const std::string name = name_of(link);
  if (how == Cut::kDown) ip(side, fmt::format("link set {} up", name));
  if (how == Cut::kSilent || how == Cut::kOneWay) reach(link, side);
  if (how == Cut::kSilent) reach(link, other);
  if (how == Cut::kLargeOnly) ip(other, fmt::format("link set {} mtu {}", name, kPacketBytes));
  if (how == Cut::kCrowded) run(fmt::format("tc qdisc del dev {} root", name), side);
}

void CutLinks::limit(int link, int64_t mbit) {
  for (int side = 0; side < 2; ++side)
    run(fmt::format("tc qdisc replace dev {} root tbf rate {}mbit burst 256kb latency 20ms",
                    name_of(link), mbit),
        side);
}

int64_t CutLinks::dropped(int link, int side) const {
  const std::string said =
      output_of(fmt::format("tc -s qdisc show dev {}", name_of(link)), side).value_or("");
  const size_t at = said.find("(dropped ");
  return at == std::string::npos ? 0 : std::atoll(said.c_str() + at + 9);
}

void CutLinks::add(int link) {
  const std::string name = name_of(link);
  ip(0, fmt::format("link add {} type veth peer name {} netns {}", name, name, file_of(1)));
  for (int side = 0; side < 2; ++side) {
    ip(side, fmt::format("addr add {}/24 dev {}", address_of(link, side), name));
    // Packets one by one, as on a wire: a virtual link takes bundles of them whatever their size.
    ip(side, fmt::format("link set {} mtu {} gso_max_segs 1 up", name, kPacketBytes));
  }
}

// To a hardware address that nobody has.
void CutLinks::swallow(int link, int side) {
  ip(side, fmt::format("neigh replace {} lladdr 02:00:00:00:00:99 nud permanent dev {}",
                       address_of(link, 1 - side), name_of(link)));
}

void CutLinks::reach(int link, int side) {
  ip(side, fmt::format("neigh del {} dev {}", address_of(link, 1 - side), name_of(link)));
}

void CutLinks::run(const std::string& command, int side) {
  if (problem_.empty() && !output_of(command, side))
    problem_ = fmt::format("'{}' (Debian: iproute2) fails in a namespace", command);
}

// Empty: it failed.
std::optional<std::string> CutLinks::output_of(const std::string& command, int side) const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t pid = fork();
  if (pid == 0) {
    enter(side);
    dup2(ends[1], STDOUT_FILENO);
    const std::string shell = "exec " + command;
    execl("/bin/sh", "sh", "-c", shell.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string said;
  char text[512];
  for (ssize_t n = 1; n > 0;) {
    n = read(ends[0], text, sizeof text);
    if (n > 0) said.append(text, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = -1;
  const bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
  return ended && status == 0 ? std::optional(said) : std::nullopt;
}

}  // namespace moraine
