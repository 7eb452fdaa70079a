// Door: a listener, and guests who have a few seconds each to show who they are.
#include "comm/rails/door.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"

namespace moraine {
namespace {

constexpr size_t kMostAtDoor = 1024;
constexpr double kSendSeconds = 1;

}  // namespace

RailProof prove_text(const std::string& secret, const MemberLink& link, char part,
                     const std::string& text) {
  std::string said(1, part);
  said.append(reinterpret_cast<const char*>(link.nonce_host.data()), link.nonce_host.size());
  said.append(reinterpret_cast<const char*>(link.nonce_guest.data()), link.nonce_guest.size());
  said.append(reinterpret_cast<const char*>(&link.round), sizeof link.round);
  said += text;
  return prove(secret, std::as_bytes(std::span<const char>(said)));
}

std::string answer_text(int member, JoinAnswer answer) {
  return fmt::format("{} {}", member, static_cast<int>(answer));
}

std::string join_text(const Join& join) {
  return fmt::format("{} of {} since {}", join.member, join.members, join.generation);
}

// Somebody who came, and has not yet proved to belong here.
struct Door::Guest {
  int fd = -1;
  double ends = 0;
  Join join;
  MemberLink link;
  RailProof proof;
  size_t done = 0;
  bool has_joined = false, is_taken = false;

  // Reads on to a part of `bytes`. 1: whole, 0: not yet, -1: ended.
  int read(Wire& wire, void* to, size_t bytes) {
    const int64_t n = wire.read(fd, static_cast<char*>(to) + done, bytes - done);
    if (n <= 0) return static_cast<int>(n);
    done += static_cast<size_t>(n);
    if (done < bytes) return 0;
    done = 0;
    return 1;
  }
};

Door::Door(Options options)
    : options_(std::move(options)),
      wire_(*options_.wire),
      listener_(wire_.listen(options_.address)) {}

Door::~Door() {
  for (const Guest& g : guests_) wire_.close(g.fd);
  for (const auto& [member, link] : links_) {
    if (link.fd >= 0) wire_.close(link.fd);
  }
  wire_.close(listener_);
}

// Somebody who speaks the protocol, and so has likely been started wrong. Not each: they try again and again.
void Door::tell_refused(const Join& join, const char* reason) {
  constexpr double kSeconds = 10;
  const double now = wire_.now();
  if (told_at_ >= 0 && now - told_at_ < kSeconds) return;
  told_at_ = now;
  log_event(Level::kWarning, "rails.refused", "rank={} ranks={} reason=\"{}\"", join.member,
            join.members, reason);
}

void Door::know_group(uint64_t generation, std::vector<int> members) {
  generation_ = generation;
  members_ = std::move(members);
}

// Who replaces a member is new (generation 0); who was in the group has its generation.
bool Door::is_taken(const Join& join) const {
  const bool is_older = join.generation > 0 && join.generation < generation_;
  return links_.contains(join.member) ||
         (is_older && std::binary_search(members_.begin(), members_.end(), join.member));
}

// False: it is no guest any more.
bool Door::welcome(Guest& g, double end) {
  if (g.join.magic != Join::kMagic) return false;
  const bool fits =
      g.join.members == options_.members && g.join.member > 0 && g.join.member < options_.members;
  Welcome welcome;
  if (!fits) welcome.answer = JoinAnswer::kOtherNumber;
  g.link = {g.fd, make_nonce(), g.join.nonce, g.join.generation, 0};
  welcome.nonce = g.link.nonce_host;
  welcome.proof =
      prove_text(options_.secret, g.link, 'H', answer_text(g.join.member, welcome.answer));
  g.has_joined = true;
  if (welcome.answer == JoinAnswer::kOtherNumber) tell_refused(g.join, "another number of ranks");
  return send_all(wire_, g.fd, &welcome, sizeof welcome, end) &&
         welcome.answer == JoinAnswer::kWelcome;
}

// False: it is no guest any more.
bool Door::greet(Guest& g) {
  const double end = wire_.now() + kSendSeconds;
  if (!g.has_joined) {
    const int got = g.read(wire_, &g.join, sizeof g.join);
    return got <= 0 ? got == 0 : welcome(g, end);
  }
  const int got = g.read(wire_, &g.proof, sizeof g.proof);
  if (got < 0) tell_refused(g.join, "it left when it was greeted: it may have another secret");
  if (got <= 0) return got == 0;
  if (!same_proof(g.proof, prove_text(options_.secret, g.link, 'J', join_text(g.join)))) {
    tell_refused(g.join, "it does not know the secret");
    return false;
  }
  Verdict verdict;
  g.is_taken = is_taken(g.join);
  if (g.is_taken) verdict.answer = JoinAnswer::kTaken;
  verdict.proof =
      prove_text(options_.secret, g.link, 'V', answer_text(g.join.member, verdict.answer));
  if (!send_all(wire_, g.fd, &verdict, sizeof verdict, end) ||
      verdict.answer != JoinAnswer::kWelcome)
    return false;
  wire_.keep_alive(g.fd);
  links_[g.join.member] = g.link;
  g.fd = -1;
  return false;
}

// Who waits says nothing: what can be read there is its end.
void Door::drop_who_left() {
  for (auto at = links_.begin(); at != links_.end();) {
    const int links[] = {at->second.fd};
    const bool has_left = wire_.wait_to_read(links, 0);
    if (has_left) wire_.close(at->second.fd);
    at = has_left ? links_.erase(at) : std::next(at);
  }
}

void Door::count_end(const Guest& g, bool in_time) {
  if (g.is_taken) return;  // it has proved to be of this job
  if (guests_.size() > kMostAtDoor) {
    ++too_many_;
  } else if (!in_time) {
    ++silent_;
  } else {
    ++(g.has_joined ? refused_ : garbage_);
  }
}

void Door::tell_of_strangers() {
  const int64_t dropped = strangers_.note(strangers(), wire_.now());
  if (dropped == 0) return;
  log_event(Level::kWarning, "rails.strangers",
            "at=rendezvous dropped={} refused={} garbage={} too_many={} silent={}", dropped,
            refused_, garbage_, too_many_, silent_);
}

void Door::work(double seconds) {
  std::vector<int> fds = {listener_};
  for (const Guest& g : guests_) fds.push_back(g.fd);
  wire_.wait_to_read(fds, seconds);
  const int fd = wire_.accept(listener_);
  if (fd >= 0) guests_.emplace_back().fd = fd;
  if (fd >= 0) guests_.back().ends = wire_.now() + kGuestSeconds;
  for (auto g = guests_.begin(); g != guests_.end();) {
    const bool in_time = wire_.now() < g->ends;
    const bool stays = in_time && guests_.size() <= kMostAtDoor && greet(*g);
    if (!stays && g->fd >= 0) {
      count_end(*g, in_time);
      wire_.close(g->fd);
    }
    g = stays ? std::next(g) : guests_.erase(g);
  }
  drop_who_left();
  tell_of_strangers();
}

}  // namespace moraine
