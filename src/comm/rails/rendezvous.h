// Rendezvous: where the processes of a job without a launcher find each other, and form a group.
//
// A process is a member: a number that it keeps for life, and hands on to who replaces it. Member 0 listens (door.h),
// the others come. A meeting ends in a group: ranks from 0 on, in the order of their members, and a generation that no
// earlier group of these members had. Then every rank is told what every rank says (exchange), until they can talk
// over rails (part).
//
// The first meeting waits for all. With `replace_seconds` there are later ones, when a group has lost a rank: the
// survivors come again, a fresh process takes the place of who was lost, and whoever is not needed waits behind the
// door. If not all have come by then, the group is the largest that `most_ranks` allows, and grows when somebody comes
// (has_newcomers, another meeting).
//
// Errors:  kInvalidArgument for a member that is taken (with `replace_seconds` only after `seconds`: its predecessor
//          may be gone, and not yet known to be), or another number of members; kIo if the address cannot be
//          listened on; kInterrupted by the signal; kPeerLost if too few have come within the time (the message names
//          the missing), or one leaves.
// Threads: one; member 0 keeps the door by a thread of its own between meetings.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/rails/door.h"
#include "comm/rails/socket_address.h"
#include "comm/rails/wire.h"

namespace moraine {

class Rendezvous {
 public:
  struct Options {
    int member = 0, members = 1;
    SocketAddress address;  // of member 0
    // The same by its name, looked up each time that somebody goes there: a successor may be elsewhere. May be empty.
    std::function<SocketAddress()> find_address = {};
    std::string secret;
    double seconds = 120;        // for all to come, and for each exchange
    double replace_seconds = 0;  // for a lost one to be replaced; 0: there is one meeting
    const std::atomic<int>* stop_signal =
        nullptr;  // not 0: whoever waits to be in a group gives up
    // The largest group of at most `present` members that the job can go on with; 0: none. Empty: any number.
    std::function<int(int present)> most_ranks = {};
    Wire* wire = &socket_wire();
  };
  struct Group {
    uint64_t generation = 0;
    std::vector<int> members;  // of each rank
    int rank = 0;              // this process
  };

  explicit Rendezvous(Options options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Until this process is in a group; or in none (no members), if the job has ended.
  const Group& meet();
  const Group& group() const { return group_; }
  // Every rank's text, in their order. Called by all, at the same places. Texts up to 64 KiB.
  std::vector<std::string> exchange(const std::string& mine);
  // The ranks need the rendezvous no more.
  void part();
  // On member 0, behind part(): somebody waits with whom the group would be larger.
  bool has_newcomers() const { return newcomers_; }
  // On member 0: the job has ended well; whoever waits behind the door may go.
  void end_job();
  // This process' address as member 0 is reached from it; for member 0: the rendezvous' own.
  SocketAddress own_address() const { return own_; }

 private:
  void check_stop() const;
  bool may_meet_again() const { return options_.replace_seconds > 0; }
  int most_ranks(int present) const;
  void receive_guests();
  int form_group();
  std::string missing() const;
  void keep_door();
  void stop_porter();
  void join();
  bool introduce(MemberLink& link, double end, double waits_until);
  bool waits_for_predecessor(double until);
  SocketAddress address_of_host() const;
  bool try_to_join(double end);
  bool hear_of_group();
  void hang_up();
  [[noreturn]] void throw_left(int rank) const;
  bool send_text(MemberLink& link, char part, const std::string& text);
  std::string receive_text(MemberLink& link, char part, int rank, double end);

  const Options options_;
  Wire& wire_;
  SocketAddress own_;
  Group group_;
  std::unique_ptr<Door> door_;       // of member 0
  std::map<int, MemberLink> links_;  // by rank; of others than member 0: to that one
  std::unique_ptr<WireThread> porter_;
  std::atomic<bool> stop_{false}, newcomers_{false};
  bool has_told_ = false;  // that another process is this member
};

}  // namespace moraine
