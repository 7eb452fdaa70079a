// `moraine inspect`: what is in a checkpoint, a run, a dataset, a shard or a weight file, and
// whether it is whole.
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/describe.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "data/inspect_dataset.h"

namespace moraine {
namespace {

// What there is, and, if it is asked for, whether it is whole: as JSON one object, else as it is known.
void show(const std::string& path, const Inspection& description, bool json,
          const std::function<Verification()>& verify) {
  if (!json) fmt::print("{}\n", description.text);
  if (!verify) {
    if (json) fmt::print("{}\n", description.json);
    return;
  }
  const Verification verification = verify();
  const Inspection report = verification.report();
  if (json) {
    Json line = parse_json(description.json, path);
    line["verified"] = parse_json(report.json, path);
    fmt::print("{}\n", json_text(line));
  } else {
    fmt::print("{}\n", report.text);
  }
  if (!verification.problems.empty())
    throw_error(Code::kCorrupt, "inspect {}: {}", path, verification.problems.front());
}

void inspect_data(const std::string& path, bool json, bool verify) {
  FileSystem& fs = posix_file_system();
  const auto verified = [&] {
    Pool pool(usable_cores());
    return verify_dataset(fs, pool, path);
  };
  show(path, describe_dataset(Dataset(fs, path)), json,
       verify ? std::function<Verification()>(verified) : nullptr);
}

void inspect_shard(const std::string& path, bool json, bool verify) {
  const TokenShard shard(posix_file_system(), path);
  const auto verified = [&] { return verify_shard(shard); };
  show(path, describe_shard(shard, path), json,
       verify ? std::function<Verification()>(verified) : nullptr);
}

// A weight file by its name, or by the text that follows its first number.
bool may_be_weights(FileSystem& fs, const std::string& path) {
  if (path.ends_with(".safetensors")) return true;
  const std::unique_ptr<MappedFile> file = fs.map(path);
  char first = 0;
  if (file->bytes() > 8) file->read_at(8, 1, &first);
  return first == '{';
}

// What is none of what this command knows is told so, not that it is damaged.
void check_known(FileSystem& fs, const std::string& path) {
  if (!fs.is_directory(path)) {
    if (may_be_weights(fs, path)) return;
    throw_error(
        Code::kInvalidArgument,
        "inspect {}: neither a shard of a dataset nor a safetensors file; wanted one of these, "
        "or the folder of a checkpoint, run, dataset or public model",
        path);
  }
  if (!fs.exists(join_path(path, kDatasetUnfinishedName))) return;
  throw_error(
      Code::kNotFound,
      "inspect {}: an unfinished dataset: it has the mark `{}` and no {}; a build writes it, or "
      "was stopped, then run `moraine data build` again",
      path, kDatasetUnfinishedName, kDatasetManifestName);
}

}  // namespace

void cmd_inspect(const CommandLine& line) {
  std::string path;
  bool hash = false, json = false, quick = false;
  Flags flags(
      "inspect",
      "Show and verify a checkpoint, run, dataset, shard, public model or safetensors file.");
  flags.positional("path", &path, "Directory or file.")
      .flag("hash", &hash, "Print one hash over every tensor and the step, and nothing else.")
      .flag("quick", &quick, "Read headers only; verify no bytes.")
      .flag("json", &json, "Print JSON.");
  if (!flags.parse(line)) return;
  FileSystem& fs = posix_file_system();
  if (!fs.exists(path)) throw_error(Code::kNotFound, "inspect {}: no such file or directory", path);
  if (fs.exists(join_path(path, kDatasetManifestName))) {
    if (hash) {
      fmt::print("{}\n", hash_hex(Dataset(fs, path).hash()));
    } else {
      inspect_data(path, json, !quick);
    }
    return;
  }
  if (!fs.is_directory(path) && is_shard_file(fs, path)) {
    if (hash) {
      fmt::print("{}\n", hash_hex(TokenShard(fs, path).summary().hash));
    } else {
      inspect_shard(path, json, !quick);
    }
    return;
  }
  check_known(fs, path);
  if (hash) {
    fmt::print("{}\n", content_hash_hex(fs, path));
    return;
  }
  const Description description = describe(fs, path, {.verify = !quick, .hash = !quick});
  fmt::print("{}\n", json ? description_json(description) : description_text(description));
  if (!description.problems.empty())
    throw_error(Code::kCorrupt, "inspect {}: {}", path, description.problems.front());
}

}  // namespace moraine
