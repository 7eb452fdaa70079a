// MemorySearch: rank 0 collects what each host holds, and decides what all restore.
#include "checkpoint/memory/search.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/agree.h"
#include "checkpoint/manifest.h"
#include "checkpoint/memory/folder.h"
#include "checkpoint/memory/host_files.h"
#include "checkpoint/message_text.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/verify_files.h"

namespace moraine {
namespace {

// A copy, or a part of one, in one host's folder.
struct Held {
  int64_t step = 0;
  std::string manifest;         // text
  std::set<std::string> whole;  // names of files
};

std::vector<Held> look(FileSystem& fs, const std::string& folder, const OnBadCheckpoint& on_bad,
                       bool several_hosts) {
  std::vector<Held> all;
  for (const int64_t step : list_checkpoints(fs, folder)) {
    const std::string directory = checkpoint_path(fs, folder, step);
    Held held{step, "", {}};
    try {
      held.manifest = fs.read(join_path(directory, kManifestName));
      const Manifest manifest = parse_manifest(held.manifest);
      if (manifest.info.step != step) {
        throw_error(Code::kCorrupt, "is step {} by its manifest", manifest.info.step);
      }
      for (const FileState& file : verify_files(fs, directory, manifest, true)) {
        if (file.problem.empty()) held.whole.insert(file.name);
        // With several hosts, a file that is on another one is not damage.
        const bool here = fs.exists(join_path(directory, file.name));
        if (!file.problem.empty() && (here || !several_hosts)) on_bad(directory, file.problem);
      }
      all.push_back(std::move(held));
    } catch (const Error& error) {
      on_bad(directory, fmt::format("{}: {}", kManifestName, error.what()));
    }
  }
  return all;
}

std::string held_text(const std::vector<Held>& all) {
  MessageWriter out;
  out.put(static_cast<int64_t>(all.size()));
  for (const Held& held : all) {
    out.put(held.step);
    out.put(held.manifest);
    out.put(static_cast<int64_t>(held.whole.size()));
    for (const std::string& name : held.whole) out.put(name);
  }
  return out.take();
}

std::vector<Held> parse_held(const std::string& text) {
  if (text.empty()) return {};
  MessageReader in(text);
  std::vector<Held> all(static_cast<size_t>(in.count()));
  for (Held& held : all) {
    held.step = in.number();
    held.manifest = in.string();
    for (int64_t left = in.count(); left > 0; --left) held.whole.insert(in.string());
  }
  in.end();
  return all;
}

// What is fetched from whom.
struct Choice {
  int64_t step = 0;
  std::string manifest;
  std::vector<HostFile> files;
  std::vector<std::vector<bool>> lacks;  // [file][host]
};

// `holders`: for each host, what it has of one copy, or null.
bool complete(const Hosts& hosts, const std::vector<const Held*>& holders, Choice* choice) {
  const Manifest manifest = parse_manifest(choice->manifest);
  for (const ManifestData& d : manifest.data) choice->files.push_back({d.name, d.bytes, -1});
  for (const ManifestFile& f : manifest.files) choice->files.push_back({f.name, f.bytes, -1});
  for (HostFile& file : choice->files) {
    std::vector<bool> lacks;
    for (size_t host = 0; host < holders.size(); ++host) {
      const bool has = holders[host] != nullptr && holders[host]->whole.contains(file.name);
      lacks.push_back(!has);
      if (has && file.member < 0) file.member = hosts.members[host].front();
    }
    if (file.member < 0) return false;
    choice->lacks.push_back(std::move(lacks));
  }
  return true;
}

std::string choice_text(const Choice& choice) {
  MessageWriter out;
  out.put(choice.step);
  out.put(choice.manifest);
  out.put(static_cast<int64_t>(choice.files.size()));
  for (size_t i = 0; i < choice.files.size(); ++i) {
    out.put(choice.files[i].name);
    out.put(choice.files[i].bytes);
    out.put(static_cast<int64_t>(choice.files[i].member));
    for (const bool lacks : choice.lacks[i]) out.put(static_cast<int64_t>(lacks));
  }
  return out.take();
}

Choice parse_choice(const std::string& text, const Hosts& hosts) {
  MessageReader in(text);
  Choice choice{in.number(), in.string(), {}, {}};
  for (int64_t left = in.count(); left > 0; --left) {
    HostFile file{in.string(), in.number(), static_cast<int>(in.number())};
    std::vector<bool> lacks;
    for (int host = 0; host < hosts.count(); ++host) lacks.push_back(in.number() != 0);
    choice.files.push_back(std::move(file));
    choice.lacks.push_back(std::move(lacks));
  }
  in.end();
  return choice;
}

// The newest complete copy; empty: none.
std::string choose(const Hosts& hosts, const std::vector<std::string>& said) {
  std::vector<std::vector<Held>> of_host;
  for (const std::vector<int>& members : hosts.members) {
    of_host.push_back(parse_held(said[static_cast<size_t>(members.front())]));
  }
  // By step, then by manifest, what each host has.
  std::map<std::pair<int64_t, std::string>, std::vector<const Held*>> copies;
  for (size_t host = 0; host < of_host.size(); ++host) {
    for (const Held& held : of_host[host]) {
      std::vector<const Held*>& holders = copies[{held.step, held.manifest}];
      holders.resize(of_host.size(), nullptr);
      holders[host] = &held;
    }
  }
  for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy) {
    Choice choice{copy->first.first, copy->first.second, {}, {}};
    if (complete(hosts, copy->second, &choice)) return choice_text(choice);
  }
  return "";
}

}  // namespace

std::optional<std::string> newest_in_memory(Communicator& comm, FileSystem& fs,
                                            const std::string& run_root, const std::string& folder,
                                            const OnBadCheckpoint& on_bad) {
  const Hosts hosts = hosts_of(comm);
  const bool first = hosts.first_of_host(comm.rank());
  const size_t host = static_cast<size_t>(hosts.of[static_cast<size_t>(comm.rank())]);
  try {
    const std::string id = agree(
        comm, [&] { return comm.rank() == 0 ? read_memory_id(fs, run_root) : std::string(); },
        [](const std::vector<std::string>& said) { return said[0]; });
    const std::string answer = agree(
        comm,
        [&] {
          if (!first || !is_memory_folder_of(fs, folder, id)) {
            // A host that joins now, or another run's copies: nothing to tell, but room to fetch.
            if (first && !id.empty() && hosts.count() > 1) prepare_memory_folder(fs, folder, id);
            return std::string();
          }
          return held_text(look(fs, folder, on_bad, hosts.count() > 1));
        },
        [&](const std::vector<std::string>& said) { return choose(hosts, said); });
    if (answer.empty()) return std::nullopt;
    const Choice choice = parse_choice(answer, hosts);
    const std::string directory = checkpoint_path(fs, folder, choice.step);
    const bool lacks = std::any_of(choice.lacks.begin(), choice.lacks.end(),
                                   [&](const std::vector<bool>& of) { return of[host]; });
    agree(
        comm,
        [&] {
          if (first && lacks) fs.make_directories(directory);
          return std::string();
        },
        no_decision);
    const std::optional<Error> failed =
        fetch(comm, hosts, fs, directory, {.files = choice.files, .lacks = choice.lacks});
    agree(
        comm,
        [&] {
          if (failed.has_value()) throw Error(*failed);
          if (first && lacks) write_manifest(fs, directory, parse_manifest(choice.manifest));
          return std::string();
        },
        no_decision);
    return directory;
  } catch (const Error& error) {
    if (error.code() == Code::kPeerLost) throw;
    if (first) on_bad(folder, error.what());
    return std::nullopt;
  }
}

}  // namespace moraine
