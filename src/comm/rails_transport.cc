// RailsTransport: joins the job, opens its rails, and ends in order.
#include "comm/rails_transport.h"

#include <cstring>
#include <exception>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "comm/host_share.h"
#include "comm/rails/rail_address.h"
#include "comm/rails/rails_messages.h"
#include "comm/rails/rendezvous.h"
#include "comm/routed_transport.h"

namespace moraine {
namespace {

constexpr double kEndSeconds = 60;

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

 private:
  const int exceptions_ = std::uncaught_exceptions();
};

RailsTransport::~RailsTransport() {
  if (host_ == nullptr) return;
  if (std::uncaught_exceptions() > exceptions_)
    host_->fail(fmt::format("rank {} ended with an Error of its own", rank_));
  if (!finish(kEndSeconds) && host_->fault_rank() < 0)
    log_event(Level::kWarning, "rails.unfinished",
              "rank={} reason=\"not all that was sent has arrived\"", rank_);
}

std::vector<RailAddress> own_rails(const RailsOptions& options, const Rendezvous& rendezvous) {
  std::vector<RailAddress> rails;
  for (const std::string& name : options.rails) rails.push_back(find_rail_address(name));
  if (!rails.empty()) return rails;
  const std::string text = address_text(rendezvous.own_address());
  return {find_rail_address(text.substr(0, text.find(':')))};
}

struct Plan {  // what every rank knows of every rank
  uint64_t run = 0;
  std::vector<std::vector<sockaddr_in>> addresses;  // of each rank, of each rail
};

// "run address address ..."
Plan make_plan(const TextExchange& exchange, const std::vector<RailAddress>& own) {
  const RailNonce nonce = make_nonce();
  uint64_t run = 0;
  std::memcpy(&run, nonce.data(), sizeof run);
  std::string mine = fmt::format("{}", run);
  for (const RailAddress& rail : own) mine += fmt::format(" {}", address_text(rail.address));
  Plan plan;
  for (const std::string& text : exchange(mine)) {
    std::istringstream words(text);
    std::string word;
    words >> word;
    if (plan.addresses.empty()) plan.run = std::stoull(word);
    std::vector<sockaddr_in>& rails = plan.addresses.emplace_back();
    while (words >> word) rails.push_back(parse_address(word));
    if (rails.size() != own.size())
      throw_error(Code::kInvalidArgument,
                  "start rails: this rank has {} rails and rank {} has {}; wanted the same number "
                  "everywhere, in the "
                  "same order",
                  own.size(), plan.addresses.size() - 1, rails.size());
  }
  return plan;
}

}  // namespace

std::unique_ptr<Transport> open_rails_transport(const RailsOptions& options) {
  Rendezvous rendezvous({.rank = options.rank,
                         .ranks = options.ranks,
                         .address = parse_address(options.rendezvous),
                         .secret = options.secret,
                         .seconds = options.start_seconds});
  const TextExchange exchange = [&rendezvous](const std::string& mine) {
    return rendezvous.exchange(mine);
  };
  RailSockets::Options sockets;
  sockets.secret = options.secret;
  sockets.local = own_rails(options, rendezvous);
  for (RailAddress& rail : sockets.local) sockets.listeners.push_back(listen_on(&rail));
  const Plan plan = make_plan(exchange, sockets.local);
  sockets.place = {.run = plan.run,
                   .generation = 1,
                   .rank = options.rank,
                   .ranks = options.ranks,
                   .rails = static_cast<int>(sockets.local.size())};
  auto transport = std::make_unique<RailsTransport>(options.rank, find_hosts(exchange));
  std::vector<int> hosts;
  for (int r = 0; r < options.ranks; ++r) hosts.push_back(transport->host_of(r));
  std::unique_ptr<HostTransport> host =
      join_host(exchange, options.rank, hosts, transport->calls());
  for (int r = 0; r < options.ranks; ++r) {
    if (!host->reaches(r)) sockets.peers[r] = plan.addresses[static_cast<size_t>(r)];
  }
  HostTransport& near = *host;
  auto messages = std::make_unique<RailsMessages>(near, std::move(sockets), options.hold_seconds);
  RailsMessages& rails = *messages;
  transport->set_routes(std::move(host), std::move(messages));
  rails.meet(options.start_seconds);
  exchange("met");
  return transport;
}

}  // namespace moraine
