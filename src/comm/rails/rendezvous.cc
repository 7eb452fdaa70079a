// Rendezvous: a star of short messages around member 0.
#include "comm/rails/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/rails/rail_address.h"

namespace moraine {
namespace {

constexpr uint32_t kMostText = 64 << 10, kMostDigits = 16;  // of a text, of its length
constexpr double kMeetingNewsSeconds = 10, kWaitTurnSeconds = 0.05;

// Each behind its length and a space.
std::vector<std::string> split_texts(const std::string& all, size_t ranks) {
  std::vector<std::string> texts;
  const char* const end = all.data() + all.size();
  for (const char* at = all.data(); at != end;) {
    size_t bytes = 0;
    const auto [behind, problem] = std::from_chars(at, end, bytes);
    const bool fits = problem == std::errc() && behind != end && *behind == ' ' &&
                      bytes <= static_cast<size_t>(end - behind - 1);
    if (!fits) break;
    texts.emplace_back(behind + 1, bytes);
    at = behind + 1 + bytes;
  }
  if (texts.size() != ranks)
    throw_error(Code::kCorrupt, "rendezvous: rank 0 hands out {} texts; wanted those of {} ranks",
                texts.size(), ranks);
  return texts;
}

// "generation member member ..."
std::string group_text(const Rendezvous::Group& group) {
  std::string text = fmt::format("{}", group.generation);
  for (const int member : group.members) text += fmt::format(" {}", member);
  return text;
}

Rendezvous::Group parse_group(const std::string& text) {
  std::istringstream words(text);
  Rendezvous::Group group;
  words >> group.generation;
  for (int member = 0; words >> member;) group.members.push_back(member);
  return group;
}

}  // namespace

Rendezvous::Rendezvous(Options options)
    : options_(std::move(options)), wire_(*options_.wire), own_(options_.address) {
  if (options_.member != 0) return;
  door_ = std::make_unique<Door>(Door::Options{.members = options_.members,
                                               .address = options_.address,
                                               .secret = options_.secret,
                                               .wire = options_.wire});
}

Rendezvous::~Rendezvous() {
  stop_porter();
  hang_up();
}

const Rendezvous::Group& Rendezvous::meet() {
  stop_porter();
  hang_up();
  if (options_.member != 0) {
    join();
    return group_;
  }
  for (int lost = -1;;) {
    receive_guests();
    lost = form_group();
    if (lost < 0) return group_;
    if (!may_meet_again()) throw_left(lost);
    hang_up();  // those who had heard of this group come again
  }
}

void Rendezvous::part() {
  hang_up();
  if (!may_meet_again()) door_.reset();
  if (door_ != nullptr) door_->know_group(group_.generation, group_.members);
  if (door_ != nullptr) porter_ = wire_.start("the rendezvous", [this] { keep_door(); });
}

void Rendezvous::hang_up() {
  for (const auto& [rank, link] : links_) {
    if (link.fd >= 0) wire_.close(link.fd);
  }
  links_.clear();
}

void Rendezvous::check_stop() const {
  if (options_.stop_signal == nullptr || options_.stop_signal->load() == 0) return;
  throw_error(
      Code::kInterrupted,
      "rendezvous at {}: signal while waiting for the other ranks; the same command goes on "
      "from what is stored",
      address_text(options_.address));
}

void Rendezvous::throw_left(int rank) const {
  throw_error(Code::kPeerLost, "rendezvous: rank {} left while the ranks were joining", rank);
}

// Member 0 ----------------------------------------------------------------------------------------

int Rendezvous::most_ranks(int present) const {
  return options_.most_ranks ? options_.most_ranks(present) : present;
}

std::string Rendezvous::missing() const {
  std::string text;
  int count = 0;
  for (int m = 1; m < options_.members; ++m) {
    if (door_->links().contains(m)) continue;
    if (++count <= 16) text += fmt::format("{}{}", text.empty() ? "" : ", ", m);
  }
  return count > 16 ? fmt::format("{}, ... ({} ranks)", text, count) : text;
}

// Until all are there, or it is time to go on with fewer.
void Rendezvous::receive_guests() {
  const double begin = wire_.now();
  double news = begin + kMeetingNewsSeconds;
  std::map<int, MemberLink>& links = door_->links();
  const auto was_in_a_group = [](const auto& link) { return link.second.generation > 0; };
  while (static_cast<int>(links.size()) < options_.members - 1) {
    check_stop();
    door_->work(kWaitTurnSeconds);
    const bool again =
        group_.generation > 0 || std::any_of(links.begin(), links.end(), was_in_a_group);
    const double seconds = wire_.now() - begin;
    if (seconds > (again && may_meet_again() ? options_.replace_seconds : options_.seconds)) break;
    if (wire_.now() < news) continue;
    log_event(Level::kInfo, "rails.waiting", "address={} missing=\"{}\" seconds={:.0f}",
              address_text(options_.address), missing(), seconds);
    news += kMeetingNewsSeconds;
  }
}

// -1, or the rank that has left before it heard of the group.
int Rendezvous::form_group() {
  std::map<int, MemberLink>& links = door_->links();
  const int present = static_cast<int>(links.size()) + 1;
  uint64_t generation = group_.generation;
  for (const auto& [member, link] : links) generation = std::max(generation, link.generation);
  const bool is_later = generation > 0 && may_meet_again();
  const int ranks = present == options_.members ? present : is_later ? most_ranks(present) : 0;
  if (ranks < 1)
    throw_error(Code::kPeerLost,
                "rendezvous at {}: after {:.0f} seconds {} of {} ranks are here; missing: {}; "
                "wanted each started with "
                "its own --rank, the same --ranks, --rendezvous and secret",
                address_text(options_.address),
                is_later ? options_.replace_seconds : options_.seconds, present, options_.members,
                missing());
  group_ = {.generation = generation + 1, .members = {0}, .rank = 0};
  for (const auto& [member, link] : links) {
    if (static_cast<int>(group_.members.size()) < ranks) group_.members.push_back(member);
  }
  for (size_t r = 1; r < group_.members.size(); ++r)
    links_[static_cast<int>(r)] = links.extract(group_.members[r]).mapped();
  const std::string text = group_text(group_);
  for (auto& [member, link] : links) send_text(link, 'H', text);  // they wait for the next group
  for (auto& [rank, link] : links_) {
    if (!send_text(link, 'H', text)) return rank;
  }
  return -1;
}

void Rendezvous::end_job() {
  stop_porter();
  if (door_ == nullptr) return;
  for (auto& [member, link] : door_->links()) send_text(link, 'H', group_text({}));
}

void Rendezvous::keep_door() {
  const int ranks = static_cast<int>(group_.members.size());
  while (!stop_) {
    door_->work(kWaitTurnSeconds);
    int others = 0;  // who is of this group has left it, and will be missed
    for (const auto& [member, link] : door_->links())
      others += !std::binary_search(group_.members.begin(), group_.members.end(), member);
    newcomers_ = others > 0 && most_ranks(ranks + others) > ranks;
  }
}

void Rendezvous::stop_porter() {
  if (porter_ == nullptr) return;
  stop_ = true;
  porter_->join();
  porter_.reset();
  stop_ = newcomers_ = false;
}

// The others --------------------------------------------------------------------------------------

// False: member 0 is gone again, or this member's predecessor is not, which it may be until `waits_until`.
bool Rendezvous::introduce(MemberLink& link, double end, double waits_until) {
  const Join mine = {.member = options_.member,
                     .members = options_.members,
                     .generation = group_.generation,
                     .nonce = link.nonce_guest};
  Welcome welcome;
  if (!send_all(wire_, link.fd, &mine, sizeof mine, end) ||
      !receive_all(wire_, link.fd, &welcome, sizeof welcome, end))
    return false;
  link.nonce_host = welcome.nonce;
  JoinAnswer answer = welcome.answer;
  const auto proof_of = [&](char part, const std::string& text) {
    return prove_text(options_.secret, link, part, text);
  };
  bool is_known = same_proof(welcome.proof, proof_of('H', answer_text(options_.member, answer)));
  if (is_known && answer == JoinAnswer::kWelcome) {
    const RailProof proof = proof_of('J', join_text(mine));
    Verdict verdict;
    if (!send_all(wire_, link.fd, &proof, sizeof proof, end) ||
        !receive_all(wire_, link.fd, &verdict, sizeof verdict, end))
      return false;
    answer = verdict.answer;
    is_known = same_proof(verdict.proof, proof_of('V', answer_text(options_.member, answer)));
  }
  if (!is_known)
    throw_error(Code::kInvalidArgument,
                "rendezvous at {}: who answers is not rank 0 of this job, or does not know the "
                "secret of this job",
                address_text(options_.address));
  if (answer == JoinAnswer::kTaken && waits_for_predecessor(waits_until)) return false;
  if (answer == JoinAnswer::kTaken)
    throw_error(Code::kInvalidArgument,
                "rendezvous at {}: another process is rank {} already; wanted each rank once",
                address_text(options_.address), options_.member);
  if (answer == JoinAnswer::kOtherNumber)
    throw_error(Code::kInvalidArgument,
                "rendezvous at {}: the job has another number of ranks than {}",
                address_text(options_.address), options_.members);
  return true;
}

// The host of a lost member may have fallen silent while that waited behind the door, where it counts until the system
// has noticed. Who was in a group itself has been replaced, and never waits.
bool Rendezvous::waits_for_predecessor(double until) {
  if (!may_meet_again() || group_.generation > 0 || wire_.now() >= until) return false;
  if (!std::exchange(has_told_, true))
    log_event(Level::kWarning, "rails.taken", "address={} rank={} seconds={:.0f}",
              address_text(options_.address), options_.member, until - wire_.now());
  return true;
}

// A name that is not known at the moment may be known again.
SocketAddress Rendezvous::address_of_host() const {
  try {
    return options_.find_address ? options_.find_address() : options_.address;
  } catch (const Error&) {
    return options_.address;
  }
}

bool Rendezvous::try_to_join(double end) {
  const double soon = std::min(end, wire_.now() + kGuestSeconds);
  hang_up();
  MemberLink& link = links_[0];  // closed with this
  link.nonce_guest = make_nonce();
  link.fd = wire_.reach(address_of_host(), soon);
  if (link.fd < 0 || !introduce(link, soon, end - kGuestSeconds)) return false;
  if (may_meet_again()) wire_.keep_alive(link.fd);
  own_ = wire_.own_address(link.fd);
  own_.set_port(0);
  return true;
}

// Who is not chosen waits for the next group, for as long as member 0 is there. False: it is gone.
bool Rendezvous::hear_of_group() {
  constexpr double kForEver = std::numeric_limits<double>::infinity();
  const double end = may_meet_again() ? kForEver : wire_.now() + options_.seconds;
  for (;;) {
    const int host[] = {links_.at(0).fd};
    while (wire_.now() < end && !wire_.wait_to_read(host, kWaitTurnSeconds)) check_stop();
    Group group;
    try {
      group = parse_group(receive_text(links_.at(0), 'H', 0, end));
    } catch (const Error& e) {
      if (e.code() != Code::kPeerLost || !may_meet_again()) throw;
      return false;
    }
    const auto mine = std::find(group.members.begin(), group.members.end(), options_.member);
    if (mine == group.members.end() && !group.members.empty()) continue;
    group.rank = static_cast<int>(mine - group.members.begin());
    group_ = std::move(group);
    return true;
  }
}

void Rendezvous::join() {
  const bool again = may_meet_again() && group_.generation > 0;
  const double seconds = again ? options_.replace_seconds : options_.seconds;
  double end = wire_.now() + seconds;
  for (;;) {
    check_stop();
    if (try_to_join(end)) {
      if (hear_of_group()) return;
      end = wire_.now() + seconds;  // member 0 was there until now
    }
    if (wire_.now() > end)
      throw_error(Code::kPeerLost,
                  "rendezvous at {}: nobody answers since {:.0f} seconds; wanted rank 0 there",
                  address_text(options_.address), seconds);
    wire_.pause(kWaitTurnSeconds);
  }
}

// Exchange ----------------------------------------------------------------------------------------

bool Rendezvous::send_text(MemberLink& link, char part, const std::string& text) {
  ++link.round;
  const uint32_t bytes = static_cast<uint32_t>(text.size());
  const RailProof proof = prove_text(options_.secret, link, part, text);
  std::string all(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  all += text;
  all.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  return send_all(wire_, link.fd, all.data(), all.size(), wire_.now() + options_.seconds);
}

std::string Rendezvous::receive_text(MemberLink& link, char part, int rank, double end) {
  ++link.round;
  uint32_t bytes = 0;
  RailProof proof;
  std::string text;
  bool ok = receive_all(wire_, link.fd, &bytes, sizeof bytes, end) &&
            bytes <= (kMostText + kMostDigits) * static_cast<uint32_t>(options_.members);
  if (ok) text.resize(bytes);
  ok = ok && receive_all(wire_, link.fd, text.data(), bytes, end) &&
       receive_all(wire_, link.fd, proof.data(), proof.size(), end);
  if (!ok) throw_left(rank);
  if (!same_proof(proof, prove_text(options_.secret, link, part, text)))
    throw_error(Code::kCorrupt, "rendezvous: what rank {} says does not carry its proof", rank);
  return text;
}

// Rank 0 hands out all texts, each behind its length.
std::vector<std::string> Rendezvous::exchange(const std::string& mine) {
  MR_CHECK(mine.size() <= kMostText, "%ld bytes", long(mine.size()));
  MR_CHECK(!group_.members.empty(), "an exchange without a group");
  const double end = wire_.now() + options_.seconds;
  std::string all;
  const auto add = [&all](const std::string& text) {
    all += fmt::format("{} ", text.size());
    all += text;
  };
  if (options_.member == 0) {
    add(mine);
    for (auto& [rank, link] : links_) add(receive_text(link, 'J', rank, end));
    for (auto& [rank, link] : links_) {
      if (!send_text(link, 'H', all)) throw_left(rank);
    }
  } else {
    if (!send_text(links_.at(0), 'J', mine)) throw_left(0);
    all = receive_text(links_.at(0), 'H', 0, end);
  }
  return split_texts(all, group_.members.size());
}

}  // namespace moraine
