// HostFiles: files of one folder per host, moved between hosts by the ranks.
//
// Both are collective over all ranks of the run, and move pieces of kHostPiece bytes, so that no
// rank needs memory for a file. A disk error does not stop the others: it is returned, to be told
// in the next round of agree().
//
// Cost: every file crosses the network once (pass_on), or reaches every rank (fetch).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_system.h"
#include "comm/communicator.h"

namespace moraine {

constexpr int64_t kHostPiece = int64_t{4} << 20;

// The hosts of a communicator's members.
struct Hosts {
  std::vector<int> of;                    // host of each member, numbered from 0
  std::vector<std::vector<int>> members;  // of each host, ascending

  int count() const { return static_cast<int>(members.size()); }
  bool first_of_host(int member) const;
  // The member that keeps `member`'s files: the same place, or the last, on the next host.
  int partner(int member) const;
};
Hosts hosts_of(const Communicator& comm);

// A file, and the member that reads it.
struct HostFile {
  std::string name;
  int64_t bytes = 0;
  int member = 0;
};

// Every member sends the files that name it, from its own host's `folder`, to its partner, which
// writes them, synced, to its host's `folder`. The same list on every rank.
std::optional<Error> pass_on(Communicator& comm, const Hosts& hosts, FileSystem& fs,
                             const std::string& folder, std::span<const HostFile> files);

struct LackedFiles {
  std::span<const HostFile> files;
  const std::vector<std::vector<bool>>& lacks;  // [file][host]
};
// Brings each file to every host that lacks it, under a name with .partial until it is whole. The same
// lists on every rank.
std::optional<Error> fetch(Communicator& comm, const Hosts& hosts, FileSystem& fs,
                           const std::string& folder, const LackedFiles& lacked);

}  // namespace moraine
