// Describe: reads the headers of what a path holds and lays them out as a table.
#include "checkpoint/describe.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/ranges.h>  // fmt::join, in newer versions

#include "base/error.h"
#include "base/json_quote.h"
#include "base/printable.h"
#include "base/saturate.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/history.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors/file.h"
#include "checkpoint/safetensors/set.h"
#include "checkpoint/verify_files.h"

namespace moraine {
namespace {

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

Hash128 hash_of_set(const SafetensorsSet& set) {
  ContentHash hash;
  for (const SafetensorsEntry* e : set.entries()) {
    DType dtype;
    const bool ours = dtype_of_safetensors(e->type, &dtype);
    hash.add_tensor(e->name, ours ? dtype_name(dtype) : e->type, e->shape,
                    hash_bytes(e->data, e->bytes));
  }
  return hash.digest();
}

// Names come from files of strangers: one of a megabyte must not make every row that wide.
constexpr int64_t kNameBytes = 200;
std::string name_text(std::string_view name) { return printable(name, kNameBytes); }
size_t widest(size_t least, const auto& rows, const auto& name_of) {
  constexpr size_t kColumn = 64;
  for (const auto& row : rows) least = std::max(least, name_of(row).size());
  return std::min(least, kColumn);
}

// Problems begin with the name of their file, or with its path as the disk knows it.
bool is_named_by(const std::string& problem, const std::string& folder,
                 const std::set<std::string_view>& names, std::string_view* name) {
  std::string_view text(problem);
  const std::string path = "read " + join_path(folder, "");
  if (text.starts_with(path)) text.remove_prefix(path.size());
  for (size_t at = text.find_first_of(": "); at != std::string_view::npos && at < 512;
       at = text.find_first_of(": ", at + 1)) {
    const auto found = names.find(text.substr(0, at));
    if (found == names.end()) continue;
    *name = *found;
    return true;
  }
  return false;
}

// data-<writer>-<index>.safetensors
std::string_view writer_of(std::string_view data_file) {
  data_file.remove_prefix(std::string_view(kDataPrefix).size());
  return data_file.substr(0, data_file.find('-'));
}

void add_files(FileSystem& fs, const Manifest& manifest, Description* d) {
  std::set<std::string_view> writers;
  for (const ManifestData& data : manifest.data) writers.insert(writer_of(data.name));
  d->num_writers = static_cast<int64_t>(writers.size());
  std::set<std::string_view> names, damaged_names;
  for (const ManifestData& data : manifest.data) names.insert(data.name);
  for (const ManifestFile& file : manifest.files) names.insert(file.name);
  for (const std::string& problem : d->problems) {
    std::string_view name;
    if (is_named_by(problem, d->path, names, &name)) damaged_names.insert(name);
  }
  for (const FileState& file : verify_files(fs, d->path, manifest, /*verify_bytes=*/false)) {
    const bool known = damaged_names.contains(file.name);
    const bool damaged = known || !file.problem.empty();
    if (!known && damaged) d->problems.push_back(file.problem);
    const char* whole = d->verified ? "ok" : "present";
    d->file_rows.push_back({file.name, file.bytes, file.num_parts, damaged ? "DAMAGED" : whole});
  }
  for (const ManifestFile& file : manifest.files) d->files.push_back(file.name);
}

void add_content(const Manifest& manifest, Description* d) {
  d->step = manifest.info.step;
  d->tokens_seen = manifest.info.tokens_seen;
  d->seed = manifest.info.seed;
  d->config = manifest.info.config;
  std::set<std::string_view> names;
  for (const ManifestTensor& t : manifest.tensors) names.insert(t.name);
  for (const auto& [key, value] : manifest.info.values) {
    if (!names.contains(key)) d->values.push_back(fmt::format("{} = {}", key, value));
  }
  for (const ManifestTensor& t : manifest.tensors) {
    d->tensors.push_back({.name = t.name,
                          .type = dtype_name(t.dtype),
                          .shape = t.shape,
                          .count = t.count(),
                          .bytes = t.count() * dtype_bytes(t.dtype),
                          .num_parts = static_cast<int64_t>(t.parts.size())});
    const auto note = manifest.info.values.find(t.name);
    if (note != manifest.info.values.end()) d->tensors.back().note = printable(note->second);
  }
}

// A manifest that cannot be read is an Error; anything else that is wrong is a problem.
Description describe_checkpoint(FileSystem& fs, const std::string& path,
                                const DescribeOptions& options) {
  Description d;
  d.kind = "checkpoint";
  d.path = path;
  d.verified = options.verify || options.hash;
  std::optional<Checkpoint> checkpoint;
  std::optional<Manifest> manifest;
  try {
    checkpoint = Checkpoint::open(fs, path, false);
    manifest = parse_manifest(fs.read(join_path(path, kManifestName)));
    if (d.verified) d.problems = checkpoint->problems();
  } catch (const Error& error) {
    if (error.code() == Code::kInvalidArgument) throw;
    try {
      manifest = parse_manifest(fs.read(join_path(path, kManifestName)));
    } catch (const Error&) {
      throw Error(error);
    }
    for (const FileState& file : verify_files(fs, path, *manifest, d.verified)) {
      if (!file.problem.empty()) d.problems.push_back(file.problem);
    }
    if (d.problems.empty()) d.problems.push_back(error.what());
  }
  add_content(*manifest, &d);
  add_files(fs, *manifest, &d);
  d.num_files = static_cast<int64_t>(fs.list(path).size());
  if (options.hash && d.problems.empty()) d.hash = hash_hex(checkpoint->hash());
  return d;
}

// What a run removed meanwhile is not damaged.
Description describe_standing(FileSystem& fs, const std::string& path,
                              const DescribeOptions& options) {
  Description d;
  try {
    d = describe_checkpoint(fs, path, options);
  } catch (const Error&) {
    if (fs.exists(path)) throw;
  }
  if (!fs.exists(path)) {
    throw_error(Code::kNotFound, "inspect {}: it was removed while it was looked at", path);
  }
  return d;
}

Description describe_set(FileSystem& fs, const std::string& path) {
  const SafetensorsSet set = SafetensorsSet::open(fs, path);
  Description d;
  d.kind = "safetensors";
  d.path = path;
  d.num_files = static_cast<int64_t>(set.files().size());
  for (const SafetensorsEntry* e : set.entries()) {
    d.tensors.push_back({.name = e->name,
                         .type = e->type,
                         .shape = e->shape,
                         .count = e->count,
                         .bytes = e->bytes,
                         .num_parts = 1});
  }
  return d;
}

// A run that goes on removes its old checkpoints while they are looked at, or puts another in the place of
// one: nullopt if there is none of that step any more.
std::optional<CheckpointRow> row_of_run(FileSystem& fs, const std::string& root, int64_t step,
                                        bool verify) {
  CheckpointRow row{.step = step, .state = verify ? "ok" : "not verified"};
  while (true) {
    const std::string directory = checkpoint_path(fs, root, step);
    if (!fs.is_directory(directory)) return std::nullopt;
    try {
      row.bytes = Checkpoint::open(fs, directory, verify).bytes();
      return row;
    } catch (const Error& error) {
      if (!fs.is_directory(directory)) continue;
      row.state = error.what();
      row.damaged = true;
      return row;
    }
  }
}

Description describe_run(FileSystem& fs, const std::string& path, const DescribeOptions& options) {
  Description d;
  d.kind = "run";
  d.path = path;
  for (const int64_t step : list_checkpoints(fs, path)) {
    const std::optional<CheckpointRow> row = row_of_run(fs, path, step, options.verify);
    if (!row.has_value()) continue;
    if (row->damaged) d.problems.push_back(row->state);
    d.checkpoints.push_back(*row);
  }
  d.verified = options.verify;
  d.last_good = last_good(fs, path).value_or(-1);
  return d;
}

enum class Kind { kCheckpoint, kRun, kSafetensors };

Kind kind_of(FileSystem& fs, const std::string& path) {
  if (!fs.exists(path)) throw_error(Code::kNotFound, "inspect {}: there is no such path", path);
  if (!fs.is_directory(path)) return Kind::kSafetensors;
  if (fs.exists(join_path(path, kManifestName))) return Kind::kCheckpoint;
  if (!list_checkpoints(fs, path).empty()) return Kind::kRun;
  if (fs.exists(join_path(path, "model.safetensors")) ||
      fs.exists(join_path(path, "model.safetensors.index.json"))) {
    return Kind::kSafetensors;
  }
  throw_error(
      Code::kNotFound,
      "inspect {}: found no {}, no dataset.json, no step-<n> folder and no model.safetensors", path,
      kManifestName);
}

// The parts of a name: "adam.m.embed" -> adam, m, embed.
std::vector<std::string_view> name_parts(std::string_view name) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = name.find_first_of("./");
    parts.push_back(name.substr(0, end));
    if (end == std::string_view::npos) return parts;
    name.remove_prefix(end + 1);
  }
}

std::string json_list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + json_quote(item);
  return "[" + text + "]";
}

std::string files_json(const Description& d) {
  std::vector<std::string> rows;
  for (const FileRow& f : d.file_rows) {
    rows.push_back(
        fmt::format("{{\"name\": {}, \"bytes\": {}, \"tensors\": {}, \"state\": \"{}\"}}",
                    json_quote(f.name), f.bytes, f.num_parts, f.state));
  }
  return fmt::format("{}", fmt::join(rows, ", "));
}

std::string checkpoint_text(const Description& d) {
  std::string text =
      fmt::format("checkpoint {}\n  step         {}\n  tokens seen  {}\n  seed         {}\n",
                  d.path, d.step, d.tokens_seen, d.seed);
  for (const std::string& value : d.values) {
    text += fmt::format("  value        {}\n", printable(value));
  }
  text += fmt::format("  files        {}{}{}\n", d.num_files,
                      d.files.empty() ? "" : ", carried along: ", fmt::join(d.files, ", "));
  text += fmt::format("  written by   {} rank{}\n\n", d.num_writers, d.num_writers == 1 ? "" : "s");
  const size_t width = widest(4, d.file_rows, [](const FileRow& f) { return name_text(f.name); });
  text += fmt::format("{:<{}}  {:>12} {:>7}  state\n", "file", width, "bytes", "tensors");
  for (const FileRow& f : d.file_rows) {
    text += fmt::format("{:<{}}  {:>12} {:>7}  {}\n", name_text(f.name), width, bytes_text(f.bytes),
                        f.num_parts, f.state);
  }
  return text;
}

std::string run_text(const Description& d) {
  std::string text = fmt::format("run {}\n", d.path);
  for (const CheckpointRow& row : d.checkpoints) {
    text += fmt::format("  step {:>10}  {:>12}  {}{}\n", row.step, bytes_text(row.bytes), row.state,
                        row.step == d.last_good ? " (last good)" : "");
  }
  return text;
}

std::string tables_text(const Description& d) {
  const size_t width = widest(6, d.tensors, [](const TensorRow& t) { return name_text(t.name); });
  std::string text = fmt::format("\n{:<{}}  {:<5} {:>14} {:>12} {:>5}  shape\n", "tensor", width,
                                 "type", "elements", "bytes", "parts");
  for (const TensorRow& t : d.tensors) {
    text += fmt::format("{:<{}}  {:<5} {:>14} {:>12} {:>5}  {}\n", name_text(t.name), width, t.type,
                        t.count, bytes_text(t.bytes), t.num_parts,
                        shape_text(t.shape) + (t.note.empty() ? "" : "  " + t.note));
  }
  text += fmt::format("\n{:<{}}  {:>7} {:>14} {:>12}\n", "total", width, "tensors", "elements",
                      "bytes");
  for (const TotalRow& t : d.totals) {
    text += fmt::format("{:<{}}  {:>7} {:>14} {:>12}\n", name_text(t.prefix), width, t.num_tensors,
                        t.count, bytes_text(t.bytes));
  }
  return text;
}

}  // namespace

std::vector<TotalRow> totals_by_prefix(const std::vector<TensorRow>& tensors) {
  // How many leading parts all names share; the next one tells them apart.
  std::vector<std::vector<std::string_view>> parts;
  for (const TensorRow& t : tensors) parts.push_back(name_parts(t.name));
  size_t depth = 0;
  const auto all_share = [&](size_t i) {
    return !parts.empty() && std::all_of(parts.begin(), parts.end(), [&](const auto& p) {
      return p.size() > i + 1 && p[i] == parts[0][i];
    });
  };
  while (all_share(depth)) ++depth;

  std::map<std::string, TotalRow> groups;
  TotalRow all{.prefix = "all"};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto end = parts[i].begin() + static_cast<std::ptrdiff_t>(depth) + 1;
    const std::string prefix = fmt::format("{}{}", fmt::join(parts[i].begin(), end, "."),
                                           end == parts[i].end() ? "" : ".*");
    for (TotalRow* row : {&groups[prefix], &all}) {
      row->num_tensors += 1;
      row->count = add_saturated(row->count, tensors[i].count);
      row->bytes = add_saturated(row->bytes, tensors[i].bytes);
    }
  }
  std::vector<TotalRow> result;
  for (auto& [prefix, row] : groups) {
    row.prefix = prefix;
    result.push_back(row);
  }
  result.push_back(all);
  return result;
}

Description describe(FileSystem& fs, const std::string& path, const DescribeOptions& options) {
  Description d;
  switch (kind_of(fs, path)) {
    case Kind::kCheckpoint:
      d = describe_standing(fs, path, options);
      break;
    case Kind::kRun:
      return describe_run(fs, path, options);
    case Kind::kSafetensors:
      d = describe_set(fs, path);
      break;
  }
  if (options.hash && d.kind == "safetensors") d.hash = content_hash_hex(fs, path);
  d.totals = totals_by_prefix(d.tensors);
  return d;
}

std::string content_hash_hex(FileSystem& fs, const std::string& path) {
  switch (kind_of(fs, path)) {
    case Kind::kCheckpoint:
      return hash_hex(Checkpoint::open(fs, path, false).hash());
    case Kind::kSafetensors:
      return hash_hex(hash_of_set(SafetensorsSet::open(fs, path)));
    case Kind::kRun:
      break;
  }
  const std::vector<int64_t> steps = list_checkpoints(fs, path);
  throw_error(Code::kInvalidArgument, "hash {}: it holds {} checkpoints, name one of them ({})",
              path, steps.size(), checkpoint_path(fs, path, steps.back()));
}

std::string description_text(const Description& d) {
  std::string text;
  if (d.kind == "checkpoint") text += checkpoint_text(d);
  if (d.kind == "run") text += run_text(d);
  if (d.kind == "safetensors") {
    text += fmt::format("safetensors {}\n  files        {}\n", d.path, d.num_files);
  }
  if (d.kind != "run") text += tables_text(d);
  if (!d.problems.empty()) text += "\nDAMAGED:\n";
  if (d.verified && d.problems.empty()) text += "\nverified: every byte\n";
  for (const std::string& problem : d.problems) text += fmt::format("  {}\n", printable(problem));
  if (!d.hash.empty()) text += fmt::format("hash: {}\n", d.hash);
  return text;
}

std::string description_json(const Description& d) {
  std::string text = fmt::format("{{\"kind\": \"{}\", \"path\": {}", d.kind, json_quote(d.path));
  if (d.kind == "checkpoint") {
    text += fmt::format(
        ", \"step\": {}, \"tokens_seen\": {}, \"seed\": {}, \"files\": {}, "
        "\"values\": {}, \"config\": {}",
        d.step, d.tokens_seen, d.seed, json_list(d.files), json_list(d.values),
        json_quote(d.config));
    text += fmt::format(", \"writers\": {}, \"data\": [{}]", d.num_writers, files_json(d));
  }
  std::vector<std::string> rows;
  for (const CheckpointRow& row : d.checkpoints) {
    rows.push_back(fmt::format("{{\"step\": {}, \"bytes\": {}, \"state\": {}}}", row.step,
                               row.bytes, json_quote(row.state)));
  }
  if (d.kind == "run") {
    text += fmt::format(", \"checkpoints\": [{}], \"last_good\": {}", fmt::join(rows, ", "),
                        d.last_good < 0 ? "null" : fmt::format("{}", d.last_good));
  } else {
    for (const TensorRow& t : d.tensors) {
      rows.push_back(fmt::format(
          "{{\"name\": {}, \"type\": {}, \"shape\": {}, \"bytes\": {}, \"parts\": {}{}}}",
          json_quote(t.name), json_quote(t.type), shape_text(t.shape), t.bytes, t.num_parts,
          t.note.empty() ? "" : ", \"note\": " + json_quote(t.note)));
    }
    text += fmt::format(", \"tensors\": [{}]", fmt::join(rows, ", "));
    rows.clear();
    for (const TotalRow& t : d.totals) {
      rows.push_back(
          fmt::format("{{\"prefix\": {}, \"tensors\": {}, \"elements\": {}, \"bytes\": {}}}",
                      json_quote(t.prefix), t.num_tensors, t.count, t.bytes));
    }
    text += fmt::format(", \"totals\": [{}]", fmt::join(rows, ", "));
  }
  if (d.verified || !d.problems.empty()) {
    text += fmt::format(", \"problems\": {}", json_list(d.problems));
  }
  if (!d.hash.empty()) text += fmt::format(", \"hash\": \"{}\"", d.hash);
  return text + "}";
}

}  // namespace moraine
