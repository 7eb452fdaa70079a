// Rendezvous: a star of short messages around rank 0.
#include "comm/rails/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <list>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/rails/rail_address.h"

namespace moraine {
namespace {

constexpr uint32_t kMostText = 64 << 10, kMostDigits = 16;  // of a text, of its length
constexpr size_t kMostGuests = 1024;
constexpr double kGuestSeconds = 5, kNewsSeconds = 10;

struct Join {
  static constexpr uint64_t kMagic = 0x6e696f6a6e65724d;  // "Mrenjoin"
  uint64_t magic = kMagic;
  int32_t rank = 0, ranks = 0;
  RailNonce nonce = {};
};

enum class Answer : uint64_t { kWelcome = 1, kTaken, kOtherNumber };

struct Welcome {
  Answer answer = Answer::kWelcome;
  RailNonce nonce = {};
  RailProof proof = {};
};

struct Verdict {  // on the guest's proof: another one may have become that rank since the welcome
  Answer answer = Answer::kWelcome;
  RailProof proof = {};
};

std::string answer_text(int rank, Answer answer) {
  return fmt::format("{} {}", rank, static_cast<int>(answer));
}

// Waits until fd is ready for `events`. False: not in time.
bool wait_for(int fd, short events, double end) {
  pollfd p = {fd, events, 0};
  const double left = end - now_seconds();
  return left > 0 && poll(&p, 1, static_cast<int>(left * 1e3) + 1) > 0;
}

bool send_all(int fd, const void* data, size_t bytes, double end) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n =
        send(fd, static_cast<const char*>(data) + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) done += static_cast<size_t>(n);
    const bool is_full = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (n <= 0 && (!is_full || !wait_for(fd, POLLOUT, end))) return false;
  }
  return true;
}

bool receive_all(int fd, void* data, size_t bytes, double end) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = recv(fd, static_cast<char*>(data) + done, bytes - done, MSG_DONTWAIT);
    if (n > 0) done += static_cast<size_t>(n);
    const bool is_empty = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (n <= 0 && (!is_empty || !wait_for(fd, POLLIN, end))) return false;
  }
  return true;
}

// Connected, or -1 if nobody answers until then.
int reach(const sockaddr_in& address, double end) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_error(Code::kIo, "rendezvous: make a socket: {}", std::strerror(errno));
  const bool has_begun =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EINPROGRESS;
  int error = 0;
  socklen_t bytes = sizeof error;
  if (has_begun && wait_for(fd, POLLOUT, end) &&
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0)
    return fd;
  close(fd);
  return -1;
}

// Each behind its length and a space.
std::vector<std::string> split_texts(const std::string& all, int ranks) {
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
  if (static_cast<int>(texts.size()) != ranks)
    throw_error(Code::kCorrupt, "rendezvous: rank 0 hands out {} texts; wanted those of {} ranks",
                texts.size(), ranks);
  return texts;
}

}  // namespace

// Somebody who came, and has not yet proved to belong here.
struct Rendezvous::Guest {
  int fd = -1;
  double ends = 0;
  Join join;
  Link link;
  RailProof proof;
  size_t done = 0;
  bool has_joined = false;

  // Reads on to a part of `bytes`. 1: whole, 0: not yet, -1: ended.
  int read(void* to, size_t bytes) {
    const ssize_t n = recv(fd, static_cast<char*>(to) + done, bytes - done, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0) return -1;
    done += static_cast<size_t>(n);
    if (done < bytes) return 0;
    done = 0;
    return 1;
  }
};

Rendezvous::Rendezvous(Options options) : options_(std::move(options)), own_(options_.address) {
  try {
    options_.rank == 0 ? gather_guests() : join();
  } catch (...) {
    leave();
    throw;
  }
}

Rendezvous::~Rendezvous() { leave(); }

void Rendezvous::leave() {
  for (const auto& [rank, link] : links_) {
    if (link.fd >= 0) close(link.fd);
  }
}

RailProof Rendezvous::proof_of(const Link& link, char part, const std::string& text) const {
  std::string said(1, part);
  said.append(reinterpret_cast<const char*>(link.nonce_host.data()), link.nonce_host.size());
  said.append(reinterpret_cast<const char*>(link.nonce_guest.data()), link.nonce_guest.size());
  said.append(reinterpret_cast<const char*>(&round_), sizeof round_);
  said += text;
  return prove(options_.secret, std::as_bytes(std::span<const char>(said)));
}

// Rank 0 ------------------------------------------------------------------------------------------

std::string Rendezvous::missing() const {
  std::string text;
  int count = 0;
  for (int r = 1; r < options_.ranks; ++r) {
    if (links_.contains(r)) continue;
    if (++count <= 16) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  }
  return count > 16 ? fmt::format("{}, ... ({} ranks)", text, count) : text;
}

// False: it is no guest any more.
bool Rendezvous::greet(Guest& g) {
  const double end = now_seconds() + 1;
  if (!g.has_joined) {
    const int got = g.read(&g.join, sizeof g.join);
    if (got <= 0) return got == 0;
    if (g.join.magic != Join::kMagic) return false;
    const bool is_number_right =
        g.join.ranks == options_.ranks && g.join.rank > 0 && g.join.rank < options_.ranks;
    Welcome welcome;
    if (!is_number_right) welcome.answer = Answer::kOtherNumber;
    if (is_number_right && links_.contains(g.join.rank)) welcome.answer = Answer::kTaken;
    g.link = {g.fd, make_nonce(), g.join.nonce};
    welcome.nonce = g.link.nonce_host;
    welcome.proof = proof_of(g.link, 'H', answer_text(g.join.rank, welcome.answer));
    g.has_joined = true;
    return send_all(g.fd, &welcome, sizeof welcome, end) && welcome.answer == Answer::kWelcome;
  }
  const int got = g.read(&g.proof, sizeof g.proof);
  if (got <= 0) return got == 0;
  const bool is_known = same_proof(g.proof, proof_of(g.link, 'J', fmt::format("{}", g.join.rank)));
  if (!is_known) return false;
  Verdict verdict;
  if (links_.contains(g.join.rank)) verdict.answer = Answer::kTaken;
  verdict.proof = proof_of(g.link, 'V', answer_text(g.join.rank, verdict.answer));
  if (!send_all(g.fd, &verdict, sizeof verdict, end) || verdict.answer != Answer::kWelcome)
    return false;
  links_[g.join.rank] = g.link;
  g.fd = -1;
  return false;
}

void Rendezvous::gather_guests() {
  RailAddress place;
  place.address = options_.address;
  place.interface_name = "rendezvous";
  const int listener = listen_on(&place);
  const double begin = now_seconds(), end = begin + options_.seconds;
  double news = begin + kNewsSeconds;
  std::list<Guest> guests;
  while (static_cast<int>(links_.size()) < options_.ranks - 1 && now_seconds() < end) {
    std::vector<pollfd> fds = {{listener, POLLIN, 0}};
    for (const Guest& g : guests) fds.push_back({g.fd, POLLIN, 0});
    poll(fds.data(), fds.size(), 50);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) guests.emplace_back().fd = fd;
    if (fd >= 0) guests.back().ends = now_seconds() + kGuestSeconds;
    for (auto g = guests.begin(); g != guests.end();) {
      const bool stays = now_seconds() < g->ends && guests.size() <= kMostGuests && greet(*g);
      if (!stays && g->fd >= 0) close(g->fd);
      g = stays ? std::next(g) : guests.erase(g);
    }
    if (now_seconds() > news) {
      log_event(Level::kInfo, "rails.waiting", "address={} missing=\"{}\" seconds={:.0f}",
                address_text(options_.address), missing(), now_seconds() - begin);
      news += kNewsSeconds;
    }
  }
  for (const Guest& g : guests) close(g.fd);
  close(listener);
  if (static_cast<int>(links_.size()) < options_.ranks - 1)
    throw_error(Code::kPeerLost,
                "rendezvous at {}: after {:.0f} seconds {} of {} ranks are here; missing: {}; "
                "wanted each started with "
                "its own --rank, the same --ranks, --rendezvous and secret",
                address_text(options_.address), options_.seconds, links_.size() + 1, options_.ranks,
                missing());
}

// The others --------------------------------------------------------------------------------------

// False: rank 0 is gone again.
bool Rendezvous::introduce(Link& link, double end) {
  const Join mine = {.rank = options_.rank, .ranks = options_.ranks, .nonce = link.nonce_guest};
  Welcome welcome;
  if (!send_all(link.fd, &mine, sizeof mine, end) ||
      !receive_all(link.fd, &welcome, sizeof welcome, end))
    return false;
  link.nonce_host = welcome.nonce;
  Answer answer = welcome.answer;
  bool is_known =
      same_proof(welcome.proof, proof_of(link, 'H', answer_text(options_.rank, answer)));
  if (is_known && answer == Answer::kWelcome) {
    const RailProof proof = proof_of(link, 'J', fmt::format("{}", options_.rank));
    Verdict verdict;
    if (!send_all(link.fd, &proof, sizeof proof, end) ||
        !receive_all(link.fd, &verdict, sizeof verdict, end))
      return false;
    answer = verdict.answer;
    is_known = same_proof(verdict.proof, proof_of(link, 'V', answer_text(options_.rank, answer)));
  }
  if (!is_known)
    throw_error(Code::kInvalidArgument,
                "rendezvous at {}: who answers does not know the secret of this job",
                address_text(options_.address));
  if (answer == Answer::kTaken)
    throw_error(Code::kInvalidArgument,
                "rendezvous at {}: another process is rank {} already; wanted each rank once",
                address_text(options_.address), options_.rank);
  if (answer == Answer::kOtherNumber)
    throw_error(Code::kInvalidArgument,
                "rendezvous at {}: the job has another number of ranks than {}",
                address_text(options_.address), options_.ranks);
  return true;
}

bool Rendezvous::try_to_join(double end) {
  const double soon = std::min(end, now_seconds() + kGuestSeconds);
  Link& link = links_[0];  // closed with this
  if (link.fd >= 0) close(link.fd);
  link = {reach(options_.address, soon), {}, make_nonce()};
  if (link.fd < 0 || !introduce(link, soon)) return false;
  socklen_t bytes = sizeof own_;
  getsockname(link.fd, reinterpret_cast<sockaddr*>(&own_), &bytes);
  own_.sin_port = 0;
  return true;
}

void Rendezvous::join() {
  const double end = now_seconds() + options_.seconds;
  while (!try_to_join(end)) {
    if (now_seconds() > end)
      throw_error(Code::kPeerLost,
                  "rendezvous at {}: nobody answers since {:.0f} seconds; wanted rank 0 there",
                  address_text(options_.address), options_.seconds);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Exchange ----------------------------------------------------------------------------------------

void Rendezvous::send_text(const Link& link, char part, const std::string& text) {
  const uint32_t bytes = static_cast<uint32_t>(text.size());
  const RailProof proof = proof_of(link, part, text);
  std::string all(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  all += text;
  all.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  if (!send_all(link.fd, all.data(), all.size(), now_seconds() + options_.seconds))
    throw_error(Code::kPeerLost, "rendezvous: a rank left while the ranks were joining");
}

std::string Rendezvous::receive_text(const Link& link, char part, int rank) {
  const double end = now_seconds() + options_.seconds;
  uint32_t bytes = 0;
  RailProof proof;
  std::string text;
  bool ok = receive_all(link.fd, &bytes, sizeof bytes, end) &&
            bytes <= (kMostText + kMostDigits) * static_cast<uint32_t>(options_.ranks);
  if (ok) text.resize(bytes);
  ok = ok && receive_all(link.fd, text.data(), bytes, end) &&
       receive_all(link.fd, proof.data(), proof.size(), end);
  if (!ok)
    throw_error(Code::kPeerLost, "rendezvous: rank {} left while the ranks were joining", rank);
  if (!same_proof(proof, proof_of(link, part, text)))
    throw_error(Code::kCorrupt, "rendezvous: what rank {} says does not carry its proof", rank);
  return text;
}

// Rank 0 hands out all texts, each behind its length.
std::vector<std::string> Rendezvous::exchange(const std::string& mine) {
  MR_CHECK(mine.size() <= kMostText, "%ld bytes", long(mine.size()));
  ++round_;
  std::string all;
  const auto add = [&all](const std::string& text) {
    all += fmt::format("{} ", text.size()) + text;
  };
  if (options_.rank == 0) {
    add(mine);
    for (const auto& [rank, link] : links_) add(receive_text(link, 'J', rank));
    for (const auto& [rank, link] : links_) send_text(link, 'H', all);
  } else {
    send_text(links_.at(0), 'J', mine);
    all = receive_text(links_.at(0), 'H', 0);
  }
  return split_texts(all, options_.ranks);
}

}  // namespace moraine
