// Door: where member 0 of a job listens for the others, and learns who they are.
//
// Whoever comes says which member it is, of how many, and of which generation it was last; both sides prove that they
// know the secret, over numbers that the other one chose. Strangers are dropped without an answer; a guest of another
// number is told so, and one that is here already, once it has proved that it belongs here. Who has been let in waits
// behind the door until a meeting takes it.
//
// Errors:  kIo if the address cannot be listened on.
// Threads: one at a time.
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "comm/rails/secret.h"
#include "comm/rails/socket_address.h"
#include "comm/rails/strangers.h"
#include "comm/rails/wire.h"

namespace moraine {

constexpr double kGuestSeconds = 5;  // that a guest has to say who it is

// A connection between member 0 and another one.
struct MemberLink {
  int fd = -1;
  RailNonce nonce_host = {}, nonce_guest = {};
  uint64_t generation = 0;  // the guest's last one; 0: it is new
  uint64_t round = 0;       // texts that both have proved so far
};

// What `part` ('H': the host, 'J': the guest) says in this round of this link, as it must be signed.
RailProof prove_text(const std::string& secret, const MemberLink& link, char part,
                     const std::string& text);

struct Join {
  static constexpr uint64_t kMagic = 0x326e696f6a6e724d;  // "Mrnjoin2"
  uint64_t magic = kMagic;
  int32_t member = 0, members = 0;
  uint64_t generation = 0;
  RailNonce nonce = {};
};

enum class JoinAnswer : uint64_t { kWelcome = 1, kTaken, kOtherNumber };

struct Welcome {
  JoinAnswer answer = JoinAnswer::kWelcome;
  RailNonce nonce = {};
  RailProof proof = {};
};

struct
    Verdict {  // on the guest's proof: another one may be that member, which is no stranger's business
  JoinAnswer answer = JoinAnswer::kWelcome;
  RailProof proof = {};
};

std::string answer_text(int member, JoinAnswer answer);
// The guest proves its number together with its generation.
std::string join_text(const Join& join);

class Door {
 public:
  struct Options {
    int members = 1;
    SocketAddress address;
    std::string secret;
    Wire* wire = &socket_wire();
  };
  explicit Door(Options options);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Lets in who comes within `seconds`; returns earlier if somebody did something.
  void work(double seconds);
  // A group that is, or was, at work: its members know its generation. A process of an older one whose number is among
  // them was cut off and replaced: it is told that it is taken.
  void know_group(uint64_t generation, std::vector<int> members);
  // Who is behind the door, by member. The meeting closes what it takes.
  std::map<int, MemberLink>& links() { return links_; }
  const Options& options() const { return options_; }
  // Who was sent away, but for members that came too early or too late.
  int64_t strangers() const { return garbage_ + silent_ + too_many_ + refused_; }

 private:
  struct Guest;
  bool greet(Guest& guest);
  bool welcome(Guest& guest, double end);
  void tell_refused(const Join& join, const char* reason);
  void drop_who_left();
  void count_end(const Guest& guest, bool in_time);
  void tell_of_strangers();
  bool is_taken(const Join& join) const;

  const Options options_;
  Wire& wire_;
  uint64_t generation_ = 0;
  std::vector<int> members_;  // of that generation, in order
  int listener_ = -1;
  double told_at_ = -1;  // of a guest that was refused; -1: never
  // Who said nothing that is of this protocol, was silent, one too many, or spoke it and does not belong here.
  int64_t garbage_ = 0, silent_ = 0, too_many_ = 0, refused_ = 0;
  Strangers strangers_;
  std::list<Guest> guests_;
  std::map<int, MemberLink> links_;
};

}  // namespace moraine
