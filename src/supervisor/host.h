// Host: a place where ranks of a run are, this machine or another one; the loop does not know which.
//
// What a host is told is done there, sooner or later; what happens there comes as reports, in order. A host first says
// that it is there (HostBack), and again each time that it was out of reach. It is to be told then which processes it
// should have (begin), before anything else.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "supervisor/run_event.h"

namespace moraine {

// A rank whose process has been started there, and how far its files were read.
struct FollowedRank {
  int rank = -1;
  int64_t start = 0;  // how many were started before
  int64_t log_offset = 0, out_offset = 0;
};

// What a rank has written, in whole lines if it is its log.
struct RankText {
  int rank = -1;
  bool is_out = false;  // stdout; only rank 0's is told
  std::string text;
  int64_t offset = 0;  // behind it
};

using HostReport = std::variant<RankStarted, RankStartFailed, RankEnded, RankBeat, RankText,
                                HostLost, HostBack, HostRead>;

class Host {
 public:
  virtual ~Host() = default;
  // Kills what is there of this run, but `there`: each of those is told as started, or as ended.
  virtual void begin(const std::vector<FollowedRank>& there) = 0;
  // Told as started or as failed to.
  virtual void start(int rank, int64_t start, const std::vector<std::string>& words) = 0;
  virtual void signal(int rank, int signal) = 0;
  virtual void set_pace(int milliseconds) = 0;  // between two looks at its ranks
  // Readable, or writable, when take() has something to do.
  virtual void add_descriptors(std::vector<pollfd>* polled) const = 0;
  virtual std::vector<HostReport> take() = 0;
};

template <class Visitor>
void each_field(Visitor& visit, FollowedRank& r) {
  visit("rank", r.rank);
  visit("start", r.start);
  visit("log_offset", r.log_offset);
  visit("out_offset", r.out_offset);
}

template <class Visitor>
void each_field(Visitor& visit, RankText& r) {
  visit("rank", r.rank);
  visit("is_out", r.is_out);
  visit("text", r.text);
  visit("offset", r.offset);
}

}  // namespace moraine
