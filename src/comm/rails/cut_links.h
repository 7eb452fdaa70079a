// CutLinks: two network namespaces of this machine, joined by virtual links that can be cut: what rails are tried by.
//
// Link i is "rail<i>" on both sides, with the address 10.77.<i>.1 on side 0 and 10.77.<i>.2 on side 1. The namespaces
// have no names: they are gone with the last process that is in them, however that ends.
//
// Errors:  problem() says why this machine has none (no root, no namespaces, no command ip or tc).
// Threads: made and used by a process that has one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moraine {

enum class Cut : uint8_t {
  kDown,       // the cable is out: both hosts see it at once
  kSilent,     // both ways swallow everything, and no host is told
  kOneWay,     // what `side` sends is swallowed
  kLargeOnly,  // what `side` sends in large packets is swallowed
  kCrowded,  // what `side` sends leaves at 100 Mb/s, and is dropped, packet by packet, where some wait already
};
// Those that swallow.
constexpr Cut kAllCuts[] = {Cut::kDown, Cut::kSilent, Cut::kOneWay, Cut::kLargeOnly};
const char* cut_name(Cut cut);

class CutLinks {
 public:
  explicit CutLinks(int count);
  ~CutLinks();
  CutLinks(const CutLinks&) = delete;
  CutLinks& operator=(const CutLinks&) = delete;

  const std::string& problem() const { return problem_; }
  // This process moves to a side.
  void enter(int side) const;
  // The side as a file, for nsenter --net=, as long as this process lives.
  std::string file_of(int side) const;

  void cut(int link, Cut how, int side);
  void heal(int link, Cut how, int side);
  // Both sides send at this rate at most; packets wait up to 20 ms. Lasts until the link is crowded and healed.
  void limit(int link, int64_t mbit);
  // Packets that a crowded link has dropped on this side so far.
  int64_t dropped(int link, int side) const;

 private:
  void add(int link);
  void swallow(int link, int side);
  void reach(int link, int side);
  void ip(int side, const std::string& line) { run("ip " + line, side); }
  void run(const std::string& command, int side);
  std::optional<std::string> output_of(const std::string& command, int side) const;

  int home_ = -1, sides_[2] = {-1, -1};
  std::string problem_;
};

}  // namespace moraine
