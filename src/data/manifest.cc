// DatasetManifest: to the text of dataset.json and back.
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "base/json_document.h"
#include "base/saturate.h"
#include "data/dataset.h"

namespace moraine {
namespace {

constexpr const char* kFormat = "moraine-dataset";
constexpr int64_t kVersion = 1;
constexpr int64_t kManifestBytesMax = int64_t{64}
                                      << 20;  // 300,000 shards; anything larger is something else

// Typed look-ups in one JSON object, each failing with the file and the key.
struct Object {
  JsonValue json;
  const std::string& path;

  template <class Read>
  auto get(const char* key, const char* wanted, const Read& read) const {
    try {
      return read();
    } catch (const Error&) {
      bad(key, wanted);
    }
  }
  [[noreturn]] void bad(const char* key, const char* wanted) const {
    throw_error(Code::kCorrupt, "read {}: '{}' is missing or not {}; build the dataset again", path,
                key, wanted);
  }
  int64_t integer(const char* key, int64_t min = 0, int64_t max = int64_t{1} << 62) const {
    constexpr const char* kWanted = "an integer in range";
    const int64_t value = get(key, kWanted, [&] { return json.integer(key); });
    if (value < min || value > max) bad(key, kWanted);
    return value;
  }
  std::string text(const char* key) const {
    return get(key, "a string", [&] { return std::string(json.text(key)); });
  }
  Hash128 hash(const char* key) const {
    Hash128 value;
    if (!parse_hash(text(key), &value)) bad(key, "32 hexadecimal digits");
    return value;
  }
};

// A plain name of a file in the same folder.
std::string file_name(const Object& object, const char* key) {
  std::string name = object.text(key);
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    object.bad(key, "the plain name of a file in the same folder");
  }
  return name;
}

ShardEntry read_entry(const Object& shard) {
  ShardEntry entry;
  entry.file = file_name(shard, "file");
  entry.summary = {.documents = shard.integer("documents"),
                   .tokens = shard.integer("tokens"),
                   .source_bytes = shard.integer("bytes"),
                   .file_bytes = shard.integer("file_bytes"),
                   .targets = shard.integer("tokens"),
                   .marked = false,
                   .hash = shard.hash("hash")};
  JsonValue targets;
  if (shard.json.find("targets", &targets)) {
    entry.summary.marked = true;
    entry.summary.targets = shard.integer("targets", 0, entry.summary.tokens);
  }
  return entry;
}

void add_totals(DatasetManifest* manifest) {
  manifest->documents = manifest->tokens = manifest->source_bytes = manifest->targets = 0;
  for (const ShardEntry& shard : manifest->shards) {
    // Three hostile entries must not wrap around to a plausible sum.
    const auto add = [](int64_t* sum, int64_t value) { *sum = add_saturated(*sum, value); };
    add(&manifest->documents, shard.summary.documents);
    add(&manifest->tokens, shard.summary.tokens);
    add(&manifest->source_bytes, shard.summary.source_bytes);
    add(&manifest->targets, shard.summary.targets);
  }
}

}  // namespace

std::string manifest_text(DatasetManifest manifest) {
  add_totals(&manifest);
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["vocabulary_size"] = manifest.meaning.vocabulary_size;
  json["eos_id"] = manifest.meaning.eos_id;
  json["tokenizer_hash"] = hash_hex(manifest.meaning.tokenizer_hash);
  json["documents"] = manifest.documents;
  json["tokens"] = manifest.tokens;
  json["bytes"] = manifest.source_bytes;
  json["source"] = manifest.source;
  if (manifest.chat_template) json["chat_template"] = *manifest.chat_template;
  json["shards"] = Json::array();
  for (const ShardEntry& shard : manifest.shards) {
    json["shards"].push_back({{"file", shard.file},
                              {"documents", shard.summary.documents},
                              {"tokens", shard.summary.tokens},
                              {"bytes", shard.summary.source_bytes},
                              {"file_bytes", shard.summary.file_bytes},
                              {"hash", hash_hex(shard.summary.hash)}});
    if (shard.summary.marked) json["shards"].back()["targets"] = shard.summary.targets;
  }
  // `source` may hold a file name in any encoding: replace what is not UTF-8 instead of throwing.
  return json_text(json, 2) + "\n";
}

void write_manifest(FileSystem& files, const std::string& folder, const DatasetManifest& manifest) {
  files.write_atomic(join_path(folder, kDatasetManifestName), manifest_text(manifest));
}

DatasetManifest read_manifest(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kDatasetManifestName);
  if (!files.exists(path)) {
    throw_error(Code::kNotFound, "open dataset {}: no {} in it; make it with `moraine data build`",
                folder, kDatasetManifestName);
  }
  const int64_t bytes = files.file_bytes(path);
  if (bytes > kManifestBytesMax) {
    throw_error(Code::kCorrupt, "read {}: {} bytes, a manifest has at most {}", path, bytes,
                kManifestBytesMax);
  }
  const JsonDocument document(files.read(path), path);
  const Object top{document.root(), path};
  if (top.text("format") != kFormat) top.bad("format", "'moraine-dataset'");
  const int64_t version = top.integer("version");
  if (version != kVersion) {
    throw_error(Code::kCorrupt, "read {}: version {}, this program reads version {}", path, version,
                kVersion);
  }
  DatasetManifest manifest;
  manifest.meaning.vocabulary_size =
      top.integer("vocabulary_size", 1, std::numeric_limits<int32_t>::max());
  manifest.meaning.eos_id =
      static_cast<int32_t>(top.integer("eos_id", -1, manifest.meaning.vocabulary_size - 1));
  manifest.meaning.tokenizer_hash = top.hash("tokenizer_hash");
  manifest.source = top.text("source");
  JsonValue chat_template;
  if (top.json.find("chat_template", &chat_template))
    manifest.chat_template =
        top.text("chat_template").empty() ? "" : file_name(top, "chat_template");
  document.root().at("shards").elements([&](int64_t, const JsonValue& shard) {
    manifest.shards.push_back(read_entry({shard, path}));
  });
  add_totals(&manifest);
  if (manifest.documents != top.integer("documents") || manifest.tokens != top.integer("tokens") ||
      manifest.source_bytes != top.integer("bytes")) {
    throw_error(Code::kCorrupt,
                "read {}: the totals are not the sums over the shards; build the dataset again",
                path);
  }
  return manifest;
}

std::string read_chat_template(FileSystem& files, const std::string& folder) {
  const std::optional<std::string> name = read_manifest(files, folder).chat_template;
  if (name && name->empty()) return "";
  const std::string path = join_path(folder, name.value_or(kDatasetTemplateName));
  if (files.exists(path)) return files.read(path);
  if (!name) return "";
  throw_error(Code::kNotFound,
              "open dataset {}: {} names the chat template {}, which is not there; build the "
              "dataset again",
              folder, kDatasetManifestName, *name);
}

}  // namespace moraine
