// Dataset: a folder of shards with a manifest, as one list of documents.
//
// `dataset.json` (docs/formats/shard.md) names the shards with their counts and hashes; it is
// written last, so a folder with a manifest is complete. Tokens are numbered through all shards;
// documents too.
//
// Errors:  kNotFound: no such folder or no manifest in it. kCorrupt: manifest or shard damaged, or
//          the two disagree (file and place are named). kIo.
// Threads: const calls from any thread.
// Cost:    opening reads 16 bytes per document; memory is 8 bytes per document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "data/shard.h"

namespace moraine {

struct ShardEntry {
  std::string file;  // name in the dataset's folder
  ShardSummary summary;
};

struct DatasetManifest {
  TokenMeaning meaning;
  std::vector<ShardEntry> shards;
  int64_t documents = 0, tokens = 0, source_bytes = 0;  // sums over the shards
  int64_t targets = 0;                                  // tokens that are not only read; a sum too
  std::string source;                                   // where the text came from, for people
  // File of the template that wrote the conversations, in the dataset's folder; "": none. Nothing, in what earlier
  // versions built: chat_template.jinja, if there is one.
  std::optional<std::string> chat_template;
};

constexpr const char* kDatasetManifestName = "dataset.json";
constexpr const char* kDatasetTemplateName = "chat_template.jinja";  // or with a number
constexpr const char* kDatasetUnfinishedName = "unfinished";         // there while a build writes

// The text of a dataset.json; the totals are summed here.
std::string manifest_text(DatasetManifest manifest);
// Writes `folder`/dataset.json atomically. Errors: kIo.
void write_manifest(FileSystem& files, const std::string& folder, const DatasetManifest& manifest);
DatasetManifest read_manifest(FileSystem& files, const std::string& folder);
// The template of a dataset's conversations; "": it has none. Errors: as read_manifest; kNotFound: its file is gone.
std::string read_chat_template(FileSystem& files, const std::string& folder);

class Dataset {
 public:
  Dataset(FileSystem& files, const std::string& folder);

  const DatasetManifest& manifest() const { return manifest_; }
  const std::string& folder() const { return folder_; }
  int64_t num_documents() const { return manifest_.documents; }
  int64_t num_tokens() const { return manifest_.tokens; }

  // The dataset's content in one hash: equal for equal shards, wherever the folder lies.
  Hash128 hash() const { return hash_; }

  // First token of each document, then the total: [num_documents + 1], not descending.
  std::span<const int64_t> document_begins() const { return document_begins_; }
  int64_t document_tokens(int64_t document) const;
  int64_t document_source_bytes(int64_t document) const;

  // Copies tokens [begin, begin + count), which lie in one document (or at least in one shard), to
  // `out`.
  void read(int64_t begin, int64_t count, int32_t* out) const;
  void read_document(int64_t document, std::vector<int32_t>* tokens) const;  // its end id included
  void prefetch(int64_t begin, int64_t count) const;                         // read-ahead hint

  // Which of these tokens are targets (1) and which are only read (0).
  void read_targets(int64_t begin, int64_t count, uint8_t* out) const;
  bool marked() const { return marked_; }                    // false: all are
  int64_t num_targets() const { return manifest_.targets; }  // of all tokens

  int64_t num_shards() const { return static_cast<int64_t>(shards_.size()); }
  const TokenShard& shard(int64_t i) const { return *shards_[static_cast<size_t>(i)]; }

 private:
  int64_t shard_of(const std::vector<int64_t>& begins, int64_t index) const;

  std::string folder_;
  DatasetManifest manifest_;
  std::vector<std::unique_ptr<TokenShard>> shards_;
  std::vector<int64_t> token_begins_, shard_documents_;  // of each shard, then the total
  std::vector<int64_t> document_begins_;
  Hash128 hash_;
  bool marked_ = false;
};

}  // namespace moraine
