// Rendezvous: where the ranks of a job without a launcher find each other: rank 0 listens, the others come.
//
// It only tells every rank what every rank says (exchange), until they can talk over rails; then it closes. Who comes
// must know the number of ranks, a rank that nobody has yet, and the secret: both sides prove it, over numbers that
// the other one chose. Strangers are dropped without an answer.
//
// Errors:  kInvalidArgument for a rank that is taken, or another number of ranks; kIo if the address cannot be
//          listened on; kPeerLost if not all have come within the time (the message names the missing), or one leaves.
// Threads: one.
#pragma once

#include <netinet/in.h>

#include <map>
#include <string>
#include <vector>

#include "comm/rails/secret.h"

namespace moraine {

class Rendezvous {
 public:
  struct Options {
    int rank = 0, ranks = 1;
    sockaddr_in address = {};  // of rank 0
    std::string secret;
    double seconds = 120;  // for all to come, and for each exchange
  };
  explicit Rendezvous(Options options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Every rank's text, in their order. Called by all, at the same places. Texts up to 64 KiB.
  std::vector<std::string> exchange(const std::string& mine);
  // This rank's address as rank 0 is reached from it; for rank 0: the rendezvous' own.
  sockaddr_in own_address() const { return own_; }

 private:
  struct Link {  // to rank 0, or from a rank
    int fd = -1;
    RailNonce nonce_host = {}, nonce_guest = {};
  };
  struct Guest;
  void leave();
  void gather_guests();
  bool greet(Guest& guest);
  void join();
  bool introduce(Link& link, double end);
  bool try_to_join(double end);
  void send_text(const Link& link, char part, const std::string& text);
  std::string receive_text(const Link& link, char part, int rank);
  RailProof proof_of(const Link& link, char part, const std::string& text) const;
  std::string missing() const;

  const Options options_;
  sockaddr_in own_;
  std::map<int, Link> links_;  // by rank
  uint64_t round_ = 0;
};

}  // namespace moraine
