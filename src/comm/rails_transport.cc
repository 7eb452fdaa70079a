// RailsTransport: joins the job, opens its rails, and ends in order.
#include "comm/rails_transport.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <limits>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/fault_point.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/printable.h"
#include "comm/host_share.h"
#include "comm/rails/rail_address.h"
#include "comm/rails/rails_messages.h"
#include "comm/rails/rendezvous.h"
#include "comm/routed_transport.h"

namespace moraine {
namespace {

constexpr double kRailsEndSeconds = 60;
// Of ranks that end together by a signal or an Error of all: what they agreed on is under way already, and who lives
// says at once that it has come.
constexpr double kTogetherEndSeconds = 5;
constexpr size_t kMostRails = 32;
constexpr int kMostMeetings = 16;      // ranks may die while they meet
constexpr int kMostMeetingsApart = 3;  // in a row: a host that dies in one looks the same, once

class RailsTransport : public RoutedTransport {
 public:
  RailsTransport(int rank, std::vector<int> hosts)
      : RoutedTransport(rank, std::move(hosts), "rails") {}
  ~RailsTransport() override;
  HostCalls calls() {
    return {.idle = {}, .on_fault = [this](const std::string& reason) {
              if (far_ != nullptr) far_->announce_fault(reason);
            }};
  }
};

RailsTransport::~RailsTransport() {
  if (host_ == nullptr) return;
  if (ends_alone()) host_->fail(fmt::format("rank {} ended with an Error of its own", rank_));
  if (!finish(ends_together() ? kTogetherEndSeconds : kRailsEndSeconds) && host_->fault_rank() < 0)
    log_event(Level::kWarning, "rails.unfinished",
              "rank={} reason=\"not all that was sent has arrived\"", rank_);
}

std::vector<RailAddress> named_rails(const std::vector<std::string>& names) {
  if (names.size() > kMostRails)
    throw_error(Code::kInvalidArgument, "start rails: {} are named; wanted at most {}",
                names.size(), kMostRails);
  std::vector<RailAddress> rails;
  for (const std::string& name : names) rails.push_back(find_rail_address(name));
  return rails;
}

// The way to the rendezvous.
RailAddress default_rail(const Rendezvous& rendezvous) {
  return find_rail_address(host_text(rendezvous.own_address()));
}

struct Plan {  // what every rank knows of every rank
  uint64_t run = 0;
  int meetings_apart = 0;
  std::vector<std::vector<SocketAddress>> addresses;  // of each rank, of each rail
};

// Without a secret a peer may say anything.
template <class Number>
Number read_number(const std::string& word, const std::string& peer, const char* what) {
  Number number = 0;
  const char* const end = word.data() + word.size();
  const auto [behind, problem] = std::from_chars(word.data(), end, number);
  if (problem != std::errc() || behind != end)
    throw_error(Code::kInvalidArgument, "start rails: {} says '{}' for {}; wanted digits up to {}",
                peer, printable(word, 64), what, std::numeric_limits<Number>::max());
  return number;
}

SocketAddress read_address(const std::string& word, const std::string& peer) {
  try {
    return parse_address(word);
  } catch (const Error& e) {
    throw_error(Code::kInvalidArgument, "start rails: where {} says that it is: {}", peer,
                printable(e.what(), 256));
  }
}

// "run meetings_apart address address ...". Of the meetings the largest number counts: who has reached all others heard
// of it as of any fault.
Plan make_plan(const TextExchange& exchange, int meetings_apart,
               const std::vector<RailAddress>& own, const std::string& rendezvous) {
  const RailNonce nonce = make_nonce();
  uint64_t run = 0;
  std::memcpy(&run, nonce.data(), sizeof run);
  std::string mine = fmt::format("{} {}", run, meetings_apart);
  for (const RailAddress& rail : own) mine += fmt::format(" {}", address_text(rail.address));
  Plan plan;
  for (const std::string& text : exchange(mine)) {
    std::istringstream words(text);
    std::string word;
    words >> word;
    const std::string peer =
        fmt::format("rank {} (rendezvous at {})", plan.addresses.size(), rendezvous);
    if (plan.addresses.empty())
      plan.run = read_number<uint64_t>(word, peer, "the number of this run");
    words >> word;
    plan.meetings_apart =
        std::max(plan.meetings_apart, read_number<int>(word, peer, "how often it met in vain"));
    std::vector<SocketAddress>& rails = plan.addresses.emplace_back();
    while (words >> word) rails.push_back(read_address(word, peer));
    if (rails.size() != own.size())
      throw_error(Code::kInvalidArgument,
                  "start rails: this rank has {} rails and rank {} has {}; wanted the same number "
                  "everywhere, in the "
                  "same order",
                  own.size(), plan.addresses.size() - 1, rails.size());
    for (size_t i = 0; i < rails.size(); ++i) {
      if (rails[i].family() != own[i].address.family())
        throw_error(
            Code::kInvalidArgument,
            "start rails: rail {} is {} here and {} on rank {}; wanted IPv4 or IPv6 for both", i,
            host_text(own[i].address), host_text(rails[i]), plan.addresses.size() - 1);
    }
  }
  return plan;
}

// Closed unless somebody takes them over: a meeting may end early, and there may be another one.
class Listeners {
 public:
  explicit Listeners(std::vector<RailAddress>& rails) {
    for (RailAddress& rail : rails) fds_.push_back(listen_on(&rail));
  }
  ~Listeners() {
    for (const int fd : fds_) close(fd);
  }
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;
  std::vector<int> take() { return std::exchange(fds_, {}); }

 private:
  std::vector<int> fds_;
};

Rendezvous::Options rendezvous_options(const RailsOptions& o) {
  return {.member = o.rank,
          .members = o.ranks,
          .address = parse_address(o.rendezvous),
          .find_address = [name = o.rendezvous] { return parse_address(name); },
          .secret = o.secret,
          .seconds = o.start_seconds,
          .replace_seconds = o.replace_seconds,
          .stop_signal = o.stop_signal,
          .most_ranks = o.most_ranks};
}

}  // namespace

RailsJob::RailsJob(RailsOptions options)
    : options_(std::move(options)),
      named_(named_rails(options_.rails)),  // before anybody is waited for
      rendezvous_(std::make_unique<Rendezvous>(rendezvous_options(options_))) {}

RailsJob::~RailsJob() = default;

uint64_t RailsJob::generation() const { return generation_; }

void RailsJob::end() { rendezvous_->end_job(); }

bool RailsJob::has_newcomers() const { return rendezvous_->has_newcomers(); }

std::unique_ptr<Transport> RailsJob::meet() {
  set_activity(Activity::kMeeting);
  meetings_apart_ = 0;
  for (int meeting = 1;; ++meeting) {
    fault_point("group.meet");
    const Rendezvous::Group& group = rendezvous_->meet();
    if (group.members.empty()) return nullptr;
    fault_point("group.met");
    try {
      std::unique_ptr<Transport> transport = join_group();
      rendezvous_->part();
      generation_ = group.generation;
      heartbeat().generation = static_cast<int64_t>(group.generation);
      heartbeat().rank = group.rank;
      heartbeat().ranks = transport->size();
      return transport;
    } catch (const Error& e) {
      if (e.code() != Code::kPeerLost || options_.replace_seconds == 0 ||
          meeting == kMostMeetings || is_apart_for_good_)
        throw;
      log_event(Level::kWarning, "group.lost", "generation={} step={} reason=\"{}\"",
                group.generation, heartbeat().step.load(), e.what());
    }
  }
}

std::unique_ptr<Transport> RailsJob::join_group() {
  const Rendezvous::Group& group = rendezvous_->group();
  const int ranks = static_cast<int>(group.members.size());
  const TextExchange exchange = [this](const std::string& mine) {
    return rendezvous_->exchange(mine);
  };
  RailSockets::Options sockets;
  sockets.secret = options_.secret;
  sockets.times = options_.times;
  sockets.local = named_.empty() ? std::vector{default_rail(*rendezvous_)} : named_;
  Listeners listeners(sockets.local);
  const Plan plan =
      make_plan(exchange, std::exchange(meetings_apart_, 0), sockets.local, options_.rendezvous);
  is_apart_for_good_ = plan.meetings_apart >= kMostMeetingsApart;
  if (is_apart_for_good_)
    throw_error(Code::kPeerLost,
                "start rails: ranks met {} times in a row, and some found no rail to each other; "
                "wanted a path that carries between all of them",
                plan.meetings_apart);
  fault_point("group.planned");
  sockets.place = {.run = plan.run,
                   .generation = static_cast<uint32_t>(group.generation),
                   .rank = group.rank,
                   .ranks = ranks,
                   .rails = static_cast<int>(sockets.local.size())};
  auto transport = std::make_unique<RailsTransport>(group.rank, find_hosts(exchange));
  std::vector<int> hosts;
  for (int r = 0; r < ranks; ++r) hosts.push_back(transport->host_of(r));
  std::unique_ptr<HostTransport> host = join_host(exchange, group.rank, hosts, transport->calls());
  fault_point("group.near");
  for (int r = 0; r < ranks; ++r) {
    if (!host->reaches(r)) sockets.peers[r] = plan.addresses[static_cast<size_t>(r)];
  }
  HostTransport& near = *host;
  sockets.listeners = listeners.take();
  auto messages = std::make_unique<RailsMessages>(near, std::move(sockets));
  RailsMessages& rails = *messages;
  transport->set_routes(std::move(host), std::move(messages));
  try {
    rails.meet(options_.start_seconds);
  } catch (const Error&) {
    if (rails.is_apart()) meetings_apart_ = plan.meetings_apart + 1;
    throw;
  }
  fault_point("group.joined");
  exchange("met");
  return transport;
}

std::unique_ptr<Transport> open_rails_transport(const RailsOptions& options) {
  return RailsJob(options).meet();
}

}  // namespace moraine
