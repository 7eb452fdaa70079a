// HostWire: what a supervisor and the agent of another host say to each other, one JSON object on a line.
//
//   to the agent:   begin, start, signal, pace
//   from it:        hello, then reports (host.h)
//
// Both sides read the lines of the other as a stranger's: what a shell or a launcher says between them is no line of
// ours, and neither is a rank that the run does not have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "supervisor/host.h"

namespace moraine {

constexpr int64_t kWireVersion = 1;
constexpr size_t kWireLineMax = 16 << 20;  // a flooded log comes in pieces of 1 MiB, escaped

struct BeginOrder {
  int64_t version = kWireVersion;
  std::string work_folder;  // where the supervisor was started
  int64_t ranks = 0;        // of the run
  int64_t host = 0;         // which one of the run's hosts this is
  std::vector<FollowedRank> there = {};
};
struct StartOrder {
  int rank = -1;
  int64_t start = 0;
  std::vector<std::string> words = {};
};
struct SignalOrder {
  int rank = -1;
  int signal = 0;
};
struct PaceOrder {
  int milliseconds = 200;
};
using HostOrder = std::variant<BeginOrder, StartOrder, SignalOrder, PaceOrder>;

std::string order_line(const HostOrder& order);  // ends with a line end
std::string report_line(const HostReport& report);

// Nothing, and `problem`, if the line is none of ours. `ranks`: how many there are at most.
std::optional<HostOrder> parse_order(std::string_view line, int64_t ranks, std::string* problem);
std::optional<HostReport> parse_report(std::string_view line, int64_t ranks, std::string* problem);

// Cuts what comes into lines. One that is longer than kWireLineMax is left out.
class WireLines {
 public:
  void add(std::string_view bytes) { buffer_ += bytes; }
  std::optional<std::string> take();

 private:
  std::string buffer_;
};

}  // namespace moraine
