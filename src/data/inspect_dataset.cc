// InspectDataset: numbers of a dataset as a table and as JSON; reads every shard once more.
#include "data/inspect_dataset.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/json.h"

namespace moraine {
namespace {

// What is wrong with one shard; "" if nothing.
std::string check_shard(FileSystem& files, const std::string& folder,
                        const DatasetManifest& manifest, const ShardEntry& entry) {
  const std::string path = join_path(folder, entry.file);
  try {
    const TokenShard shard(files, path);
    if (shard.summary().hash != entry.summary.hash || !(shard.meaning() == manifest.meaning)) {
      return fmt::format("{}: is not the shard that {} names", path, kDatasetManifestName);
    }
    shard.verify();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

Inspection describe_dataset(const Dataset& dataset) {
  const DatasetManifest& m = dataset.manifest();
  std::vector<int64_t> lengths;
  for (int64_t d = 0; d < dataset.num_documents(); ++d)
    lengths.push_back(dataset.document_tokens(d));
  std::sort(lengths.begin(), lengths.end());
  const auto quantile = [&](double q) -> int64_t {
    if (lengths.empty()) return 0;
    return lengths[static_cast<size_t>(q * static_cast<double>(lengths.size() - 1))];
  };
  const double bytes_per_token =
      m.tokens > 0 ? static_cast<double>(m.source_bytes) / static_cast<double>(m.tokens) : 0;
  const double target_share =
      m.tokens > 0 ? static_cast<double>(m.targets) / static_cast<double>(m.tokens) : 0;
  int64_t file_bytes = 0;
  for (const ShardEntry& shard : m.shards) file_bytes += shard.summary.file_bytes;

  Json json;
  json["kind"] = "dataset";
  json["path"] = dataset.folder();
  json["hash"] = hash_hex(dataset.hash());
  json["documents"] = m.documents;
  json["tokens"] = m.tokens;
  json["targets"] = m.targets;
  json["source_bytes"] = m.source_bytes;
  json["bytes_per_token"] = bytes_per_token;
  json["vocabulary_size"] = m.meaning.vocabulary_size;
  json["token_bytes"] = m.meaning.token_bytes();
  json["eos_id"] = m.meaning.eos_id;
  json["tokenizer_hash"] = hash_hex(m.meaning.tokenizer_hash);
  json["shards"] = dataset.num_shards();
  json["file_bytes"] = file_bytes;
  json["document_tokens"] = {{"min", quantile(0)},
                             {"median", quantile(0.5)},
                             {"p90", quantile(0.9)},
                             {"max", quantile(1)}};
  json["source"] = m.source;
  const std::string text = fmt::format(
      "dataset {}\n"
      "  hash        {}\n"
      "  documents   {}\n"
      "  tokens      {} ({} bits each, {:.3f} bytes of text per token)\n"
      "  targets     {}\n"
      "  text        {} bytes\n"
      "  lengths     min {}, median {}, p90 {}, max {} tokens\n"
      "  tokenizer   {} ({} tokens, end of document {})\n"
      "  shards      {} ({} bytes)\n"
      "  source      {}\n",
      dataset.folder(), hash_hex(dataset.hash()), m.documents, m.tokens,
      8 * m.meaning.token_bytes(), bytes_per_token,
      dataset.marked() ? fmt::format("{} ({:.1f} % of the tokens)", m.targets, 100 * target_share)
                       : "all tokens",
      m.source_bytes, quantile(0), quantile(0.5), quantile(0.9), quantile(1),
      hash_hex(m.meaning.tokenizer_hash), m.meaning.vocabulary_size,
      m.meaning.eos_id < 0 ? "not marked" : fmt::format("{}", m.meaning.eos_id),
      dataset.num_shards(), file_bytes, m.source);
  return {text, json_text(json)};
}

Inspection Verification::report() const {
  Json json;
  json["ok"] = problems.empty();
  json["shards"] = shards;
  json["bytes"] = bytes;
  json["problems"] = problems;
  std::string text;
  for (const std::string& problem : problems) text += "BAD  " + problem + "\n";
  text += fmt::format("{}: {} shards, {} bytes read, {} problems\n",
                      problems.empty() ? "ok" : "DAMAGED", shards, bytes, problems.size());
  return {text, json_text(json)};
}

Verification verify_dataset(FileSystem& files, Pool& pool, const std::string& folder) {
  Verification result;
  DatasetManifest manifest;
  try {
    manifest = read_manifest(files, folder);
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound) throw;
    result.problems.push_back(error.what());
    return result;
  }
  std::vector<std::string> found(manifest.shards.size());
  pool.parallel_for(static_cast<int64_t>(found.size()), [&](int64_t i, int) {
    const size_t s = static_cast<size_t>(i);
    found[s] = check_shard(files, folder, manifest, manifest.shards[s]);
  });
  for (size_t s = 0; s < found.size(); ++s) {
    if (!found[s].empty()) result.problems.push_back(found[s]);
    result.shards += 1;
    result.bytes += manifest.shards[s].summary.file_bytes;
  }
  if (result.problems.empty()) {
    try {
      const Dataset whole(files, folder);  // manifest against shards: counts and order
    } catch (const Error& error) {
      result.problems.push_back(error.what());
    }
  }
  return result;
}

bool is_shard_file(FileSystem& files, const std::string& path) {
  const std::unique_ptr<MappedFile> file = files.map(path);
  char magic[sizeof kShardMagic];
  if (file->bytes() < int64_t{sizeof magic}) return false;
  file->read_at(0, sizeof magic, magic);
  return std::memcmp(magic, kShardMagic, sizeof magic) == 0;
}

Inspection describe_shard(const TokenShard& shard, const std::string& path) {
  const ShardSummary& s = shard.summary();
  const TokenMeaning& meaning = shard.meaning();
  Json json;
  json["kind"] = "shard";
  json["path"] = path;
  json["hash"] = hash_hex(s.hash);
  json["documents"] = s.documents;
  json["tokens"] = s.tokens;
  json["targets"] = s.targets;
  json["source_bytes"] = s.source_bytes;
  json["vocabulary_size"] = meaning.vocabulary_size;
  json["token_bytes"] = meaning.token_bytes();
  json["eos_id"] = meaning.eos_id;
  json["tokenizer_hash"] = hash_hex(meaning.tokenizer_hash);
  json["file_bytes"] = s.file_bytes;
  const std::string text = fmt::format(
      "shard {}\n"
      "  hash        {}\n"
      "  documents   {}\n"
      "  tokens      {} ({} bits each)\n"
      "  targets     {}\n"
      "  text        {} bytes\n"
      "  tokenizer   {} ({} tokens, end of document {})",
      path, hash_hex(s.hash), s.documents, s.tokens, 8 * meaning.token_bytes(),
      s.marked ? fmt::format("{}", s.targets) : "all tokens", s.source_bytes,
      hash_hex(meaning.tokenizer_hash), meaning.vocabulary_size,
      meaning.eos_id < 0 ? "not marked" : fmt::format("{}", meaning.eos_id));
  return {text, json_text(json)};
}

Verification verify_shard(const TokenShard& shard) {
  Verification result{.problems = {}, .shards = 1, .bytes = shard.summary().file_bytes};
  try {
    shard.verify();
  } catch (const Error& error) {
    result.problems.push_back(error.what());
  }
  return result;
}

}  // namespace moraine
