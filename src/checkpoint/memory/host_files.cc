// HostFiles: every rank takes part in every round, whether its disk still works or not.
#include "checkpoint/memory/host_files.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/check.h"
#include "comm/collectives.h"

namespace moraine {
namespace {

// Runs disk work; after an Error all later work is left out.
class DiskWork {
 public:
  template <class Action>
  void run(const Action& action) {
    if (error_.has_value()) return;
    try {
      action();
    } catch (const Error& error) {
      error_ = error;
    }
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::optional<Error> error_;
};

// What a member sends in one round.
struct FilePiece {
  int64_t file = -1;  // position in the list; -1: it has sent all
  int64_t bytes = 0;
  bool last = false;
};

// Cuts a member's files into pieces, in the order of the list.
class Leaving {
 public:
  Leaving(FileSystem& fs, const std::string& folder, std::span<const HostFile> files, int member)
      : fs_(fs), folder_(folder), files_(files), member_(member) {
    skip_others();
  }

  FilePiece next(std::vector<std::byte>* out) {
    if (at_ == files_.size()) return {};
    const HostFile& file = files_[at_];
    const FilePiece piece{static_cast<int64_t>(at_), std::min(kHostPiece, file.bytes - done_),
                          done_ + kHostPiece >= file.bytes};
    out->assign(static_cast<size_t>(piece.bytes), std::byte{0});
    disk_.run([&] {
      const std::string path = join_path(folder_, file.name);
      if (done_ == 0) mapped_ = fs_.map(path);
      if (mapped_->bytes() != file.bytes) {
        throw_error(Code::kIo, "read {}: {} bytes, wanted {}", path, mapped_->bytes(), file.bytes);
      }
      mapped_->read_at(done_, piece.bytes, out->data());
    });
    done_ += piece.bytes;
    if (!piece.last) return piece;
    mapped_.reset();
    done_ = 0;
    ++at_;
    skip_others();
    return piece;
  }
  const std::optional<Error>& error() const { return disk_.error(); }

 private:
  void skip_others() {
    while (at_ < files_.size() && files_[at_].member != member_) ++at_;
  }

  FileSystem& fs_;
  const std::string& folder_;
  const std::span<const HostFile> files_;
  const int member_;
  size_t at_ = 0;
  int64_t done_ = 0;
  std::unique_ptr<MappedFile> mapped_;
  DiskWork disk_;
};

// Appends pieces to files; each file is synced with its last piece.
class Arriving {
 public:
  Arriving(FileSystem& fs, const std::string& folder) : fs_(fs), folder_(folder) {}

  void add(const std::string& name, bool last, std::span<const std::byte> bytes) {
    disk_.run([&] {
      std::unique_ptr<WritableFile>& file = open_[name];
      if (file == nullptr) file = fs_.create(join_path(folder_, name));
      if (!bytes.empty()) file->append(bytes.data(), static_cast<int64_t>(bytes.size()));
      if (!last) return;
      file->sync();
      file->close();
      open_.erase(name);
    });
  }
  void rename(const std::string& from, const std::string& to) {
    disk_.run([&] { fs_.rename(join_path(folder_, from), join_path(folder_, to)); });
  }
  const std::optional<Error>& error() const { return disk_.error(); }

 private:
  FileSystem& fs_;
  const std::string& folder_;
  std::map<std::string, std::unique_ptr<WritableFile>> open_;
  DiskWork disk_;
};

}  // namespace

bool Hosts::first_of_host(int member) const {
  return members[static_cast<size_t>(of[static_cast<size_t>(member)])].front() == member;
}

int Hosts::partner(int member) const {
  const int host = of[static_cast<size_t>(member)];
  const std::vector<int>& own = members[static_cast<size_t>(host)];
  const std::vector<int>& next = members[static_cast<size_t>((host + 1) % count())];
  const size_t place = static_cast<size_t>(std::find(own.begin(), own.end(), member) - own.begin());
  return next[std::min(place, next.size() - 1)];
}

Hosts hosts_of(const Communicator& comm) {
  Hosts hosts;
  std::map<int, int> number;  // of the transport's hosts that are in this group
  for (int m = 0; m < comm.size(); ++m) {
    const int host = comm.transport().host_of(comm.global_rank(m));
    const auto [at, added] = number.emplace(host, hosts.count());
    if (added) hosts.members.emplace_back();
    hosts.of.push_back(at->second);
    hosts.members[static_cast<size_t>(at->second)].push_back(m);
  }
  return hosts;
}

std::optional<Error> pass_on(Communicator& comm, const Hosts& hosts, FileSystem& fs,
                             const std::string& folder, std::span<const HostFile> files) {
  const size_t size = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
  Leaving leaving(fs, folder, files, comm.rank());
  Arriving arriving(fs, folder);
  std::vector<std::byte> mine;
  std::vector<std::vector<std::byte>> theirs(size);
  while (true) {
    mine.clear();
    const FilePiece piece = leaving.next(&mine);
    std::vector<FilePiece> all(size);
    all_gather_equal(comm, std::as_bytes(std::span(&piece, 1)),
                     std::as_writable_bytes(std::span(all)));
    if (std::all_of(all.begin(), all.end(), [](const FilePiece& p) { return p.file < 0; })) break;
    std::vector<ConstBytes> send(size);
    std::vector<Bytes> receive(size);
    const auto partner_of = [&](size_t m) {
      return static_cast<size_t>(hosts.partner(static_cast<int>(m)));
    };
    if (piece.file >= 0) send[partner_of(me)] = mine;
    for (size_t m = 0; m < size; ++m) {
      if (all[m].file < 0 || partner_of(m) != me) continue;
      theirs[m].resize(static_cast<size_t>(all[m].bytes));
      receive[m] = theirs[m];
    }
    all_to_all(comm, send, receive);
    for (size_t m = 0; m < size; ++m) {
      if (all[m].file < 0 || partner_of(m) != me) continue;
      arriving.add(files[static_cast<size_t>(all[m].file)].name, all[m].last, receive[m]);
    }
  }
  return leaving.error().has_value() ? leaving.error() : arriving.error();
}

std::optional<Error> fetch(Communicator& comm, const Hosts& hosts, FileSystem& fs,
                           const std::string& folder, const LackedFiles& lacked) {
  const auto& [files, lacks] = lacked;
  const size_t host = static_cast<size_t>(hosts.of[static_cast<size_t>(comm.rank())]);
  Arriving arriving(fs, folder);
  std::optional<Error> failed;
  for (size_t i = 0; i < files.size(); ++i) {
    if (std::none_of(lacks[i].begin(), lacks[i].end(), [](bool b) { return b; })) continue;
    const bool writes = lacks[i][host] && hosts.first_of_host(comm.rank());
    const std::string partial = files[i].name + ".partial";
    Leaving leaving(fs, folder, files.subspan(i, 1), comm.rank());
    int64_t left = files[i].bytes;
    do {
      std::vector<std::byte> bytes(static_cast<size_t>(std::min(left, kHostPiece)));
      if (files[i].member == comm.rank()) leaving.next(&bytes);
      if (!bytes.empty()) broadcast(comm, files[i].member, bytes);
      left -= static_cast<int64_t>(bytes.size());
      if (writes) arriving.add(partial, left == 0, bytes);
    } while (left > 0);
    if (writes) arriving.rename(partial, files[i].name);
    if (!failed.has_value()) failed = leaving.error();
  }
  return failed.has_value() ? failed : arriving.error();
}

}  // namespace moraine
