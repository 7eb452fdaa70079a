// Opens every shard the manifest names, then finds things by binary search.
#include "data/dataset.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace moraine {
namespace {

void check_agreement(const std::string& path, const DatasetManifest& manifest,
                     const ShardEntry& entry, const TokenShard& shard) {
  const ShardSummary &want = entry.summary, &got = shard.summary();
  const char* what = nullptr;
  if (got.file_bytes != want.file_bytes) what = "size";
  if (got.documents != want.documents) what = "document count";
  if (got.tokens != want.tokens) what = "token count";
  if (got.source_bytes != want.source_bytes) what = "count of source bytes";
  if (got.targets != want.targets || got.marked != want.marked) what = "count of targets";
  if (!(shard.meaning() == manifest.meaning)) what = "tokenizer";
  if (got.hash != want.hash) what = "hash";
  if (what != nullptr) {
    throw_error(Code::kCorrupt,
                "open shard {}: its {} is not the one in {}; a file of another build, build the "
                "dataset again",
                path, what, kDatasetManifestName);
  }
}

}  // namespace

Dataset::Dataset(FileSystem& files, const std::string& folder)
    : folder_(folder),
      manifest_(read_manifest(files, folder)),
      token_begins_(1, 0),
      shard_documents_(1, 0) {
  Hasher hasher;
  for (const ShardEntry& entry : manifest_.shards) {
    const std::string path = join_path(folder, entry.file);
    if (!files.exists(path)) {
      throw_error(Code::kCorrupt, "open dataset {}: {} names {}, which is not there", folder,
                  kDatasetManifestName, entry.file);
    }
    shards_.push_back(std::make_unique<TokenShard>(files, path));
    const TokenShard& shard = *shards_.back();
    check_agreement(path, manifest_, entry, shard);
    for (int64_t i = 0; i < shard.summary().documents; ++i) {
      document_begins_.push_back(token_begins_.back() + shard.token_begin(i));
    }
    token_begins_.push_back(token_begins_.back() + shard.summary().tokens);
    shard_documents_.push_back(shard_documents_.back() + shard.summary().documents);
    hasher.add_text(hash_hex(shard.summary().hash));
    marked_ = marked_ || shard.summary().marked;
  }
  document_begins_.push_back(token_begins_.back());
  hash_ = hasher.digest();
}

int64_t Dataset::shard_of(const std::vector<int64_t>& begins, int64_t index) const {
  const auto above = std::upper_bound(begins.begin(), begins.end(), index);
  MR_CHECK(above != begins.begin() && above != begins.end(), "index=%ld", long(index));
  return above - begins.begin() - 1;
}

int64_t Dataset::document_tokens(int64_t document) const {
  MR_CHECK(document >= 0 && document < num_documents());
  const size_t i = static_cast<size_t>(document);
  return document_begins_[i + 1] - document_begins_[i];
}

int64_t Dataset::document_source_bytes(int64_t document) const {
  const int64_t s = shard_of(shard_documents_, document);
  const int64_t local = document - shard_documents_[static_cast<size_t>(s)];
  return shard(s).source_begin(local + 1) - shard(s).source_begin(local);
}

void Dataset::read(int64_t begin, int64_t count, int32_t* out) const {
  if (count == 0) return;
  const int64_t s = shard_of(token_begins_, begin);
  shard(s).read(begin - token_begins_[static_cast<size_t>(s)], count, out);
}

void Dataset::read_targets(int64_t begin, int64_t count, uint8_t* out) const {
  if (count == 0) return;
  const int64_t s = shard_of(token_begins_, begin);
  shard(s).read_targets(begin - token_begins_[static_cast<size_t>(s)], count, out);
}

void Dataset::read_document(int64_t document, std::vector<int32_t>* tokens) const {
  const int64_t count = document_tokens(document);
  tokens->resize(static_cast<size_t>(count));
  read(document_begins_[static_cast<size_t>(document)], count, tokens->data());
}

void Dataset::prefetch(int64_t begin, int64_t count) const {
  if (count == 0) return;
  const int64_t s = shard_of(token_begins_, begin);
  shard(s).prefetch(begin - token_begins_[static_cast<size_t>(s)], count);
}

}  // namespace moraine
