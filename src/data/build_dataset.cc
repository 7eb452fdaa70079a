// BuildDataset: reads a batch, encodes it in parallel, appends it in order; manifests come last.
#include "data/build_dataset.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <memory>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/random.h"

namespace moraine {
namespace {

constexpr int64_t kBatchTextBytes = int64_t{16} << 20;  // large enough to keep many threads busy
constexpr int64_t kBatchDocuments = 8192;
constexpr const char* kPartial = ".partial";  // of a file that is being written

struct Item {
  std::string text;
  int64_t document = 0;      // number among all documents
  std::string where;         // file and line, for messages
  EncodedLine encoded;       // out; without marks for plain text
  std::exception_ptr error;  // out: what the encoder threw
};

// One dataset being written: shards of about the wanted size.
class DatasetWriter {
 public:
  DatasetWriter(FileSystem& files, std::string folder, const BuildOptions& options)
      : files_(files), folder_(std::move(folder)), options_(options) {
    manifest_.meaning = options.meaning;
    for (const std::string& input : options.inputs) {
      manifest_.source += (manifest_.source.empty() ? "" : " ") + input;
    }
  }

  ~DatasetWriter() {
    if (marked_) abandon();
  }
  DatasetWriter(const DatasetWriter&) = delete;
  DatasetWriter& operator=(const DatasetWriter&) = delete;

  // Makes the folder, takes its lock, and refuses what is there and may not be removed: a dataset,
  // or shards of which nothing says that a build that did not end left them.
  void enter() {
    files_.make_durable_directories(folder_);
    lock_ = FileLock::take(folder_, "build dataset in " + folder_);
    replaces_ = files_.exists(manifest_path());
    if (options_.overwrite) return;
    if (replaces_) {
      throw_error(
          Code::kInvalidArgument,
          "build dataset: {} holds a dataset already; choose another folder, or replace it with "
          "--overwrite",
          folder_);
    }
    if (files_.exists(mark_path())) return;
    for (const std::string& name : files_.list(folder_)) {
      if (!is_shard(name)) continue;
      throw_error(
          Code::kInvalidArgument,
          "build dataset: {} holds {}, and no build that did not end left it; choose another "
          "folder, or replace it with --overwrite",
          folder_, name);
    }
  }

  // Removes the files that a build left which did not end. Those of a dataset that is to be
  // replaced stay, and so do their names, until the new one is whole.
  void clear() {
    if (files_.exists(mark_path())) remove_built_but(files_there());
    for (const std::string& name : files_.list(folder_)) taken_.insert(name);
    files_.create(mark_path())->close();
    marked_ = true;
    files_.sync_directory(folder_);
  }

  void add(const Item& item) {
    if (!shard_) {
      do name_ = shard_name(next_shard_++);
      while (taken_.contains(name_));
      shard_ = std::make_unique<ShardWriter>(files_, join_path(folder_, name_), options_.meaning,
                                             options_.encode_line != nullptr);
    }
    const EncodedLine& encoded = item.encoded;
    shard_->add_document(encoded.tokens, encoded.source_bytes, encoded.is_target);
    manifest_.documents += 1;
    manifest_.tokens += static_cast<int64_t>(encoded.tokens.size());
    manifest_.source_bytes += encoded.source_bytes;
    if (shard_->file_bytes() >= options_.shard_bytes) close_shard();
  }

  void close_shard() {
    if (!shard_) return;
    manifest_.shards.push_back({name_, shard_->finish()});
    manifest_.targets += manifest_.shards.back().summary.targets;
    shard_.reset();
  }

  // All that needs room.
  void prepare_commit() {
    write_template();
    const std::string text = manifest_text(manifest_);
    const std::unique_ptr<WritableFile> file = files_.create(manifest_path() + kPartial);
    file->append(text.data(), static_cast<int64_t>(text.size()));
    file->sync();
    file->close();
  }

  // The rename by which the folder holds this dataset.
  void commit() {
    marked_ = false;  // from here on an error may come after it
    files_.rename(manifest_path() + kPartial, manifest_path());
    files_.sync_directory(folder_);
  }

  // Removes the files of what was replaced. The mark goes last: what is cut is gone on with.
  void remove_replaced() {
    std::set<std::string> own;
    for (const ShardEntry& shard : manifest_.shards) own.insert(shard.file);
    own.insert(*manifest_.chat_template);
    remove_built_but(own);
    files_.remove_all(mark_path());
  }

  const DatasetManifest& manifest() const { return manifest_; }
  const std::string& folder() const { return folder_; }

 private:
  // The names of the files of the dataset that is there; all that may be some, if it can not say.
  std::set<std::string> files_there() const {
    std::set<std::string> names;
    if (!replaces_) return names;
    try {
      const DatasetManifest there = read_manifest(files_, folder_);
      for (const ShardEntry& shard : there.shards) names.insert(shard.file);
      names.insert(there.chat_template.value_or(kDatasetTemplateName));
    } catch (const Error& error) {
      if (error.code() != Code::kCorrupt) throw;
      for (const std::string& name : files_.list(folder_)) names.insert(name);
    }
    return names;
  }

  void remove_built_but(const std::set<std::string>& kept) {
    for (const std::string& name : files_.list(folder_)) {
      if ((is_shard(name) || is_template(name)) && !kept.contains(name))
        files_.remove_all(join_path(folder_, name));
    }
  }

  // After an error: gives back the room of what was written. What can not be removed, the next build does.
  void abandon() noexcept {
    try {
      shard_.reset();
      remove_built_but(taken_);
      files_.remove_all(manifest_path() + kPartial);
      files_.remove_all(mark_path());
    } catch (...) {  // the error that is on its way says more
    }
  }

  std::string manifest_path() const { return join_path(folder_, kDatasetManifestName); }
  std::string mark_path() const { return join_path(folder_, kDatasetUnfinishedName); }
  // Under the first name that is free: that of a dataset that is there is its own until the end.
  void write_template() {
    manifest_.chat_template = "";
    if (options_.chat_template.empty()) return;
    size_t index = 0;
    while (taken_.contains(template_name(index))) ++index;
    manifest_.chat_template = template_name(index);
    files_.write_atomic(join_path(folder_, template_name(index)), options_.chat_template);
  }

  static std::string template_name(size_t index) {
    return index == 0 ? kDatasetTemplateName : fmt::format("chat_template-{}.jinja", index);
  }
  static std::string shard_name(size_t index) { return fmt::format("shard-{:05}.bin", index); }
  // What a build writes, whole or not: nothing else is removed.
  static bool is_shard(std::string_view name) { return is_numbered(name, shard_name); }
  static bool is_template(std::string_view name) { return is_numbered(name, template_name); }
  static bool is_numbered(std::string_view name, std::string (*name_of)(size_t index)) {
    if (name.ends_with(kPartial)) name.remove_suffix(std::string_view(kPartial).size());
    if (name == name_of(0)) return true;
    const size_t begin = name.find_first_of("0123456789");
    size_t index = 0;
    return begin != name.npos &&
           std::from_chars(name.data() + begin, name.data() + name.size(), index).ec ==
               std::errc() &&
           name == name_of(index);
  }

  FileSystem& files_;
  std::string folder_, name_;
  std::unique_ptr<FileLock> lock_;
  const BuildOptions& options_;
  DatasetManifest manifest_;
  std::unique_ptr<ShardWriter> shard_;
  bool replaces_ = false;        // a dataset was there
  bool marked_ = false;          // from the mark to the commit: an error removes what was written
  std::set<std::string> taken_;  // names in the folder before the first shard
  size_t next_shard_ = 0;
};

class Builder {
 public:
  Builder(FileSystem& files, Pool& pool, const BuildOptions& options)
      : files_(files), pool_(pool), options_(options) {
    const bool split = options.valid_fraction > 0;
    train_ = std::make_unique<DatasetWriter>(
        files, split ? join_path(options.out, "train") : options.out, options);
    if (split) {
      valid_ = std::make_unique<DatasetWriter>(files, join_path(options.out, "valid"), options);
    }
  }

  BuildResult run() {
    const std::vector<std::string> inputs = expand_inputs(files_, options_.inputs);
    check_inputs_differ(inputs);
    for (const std::string& path : inputs) progress_.bytes_total += files_.file_bytes(path);
    train_->enter();
    if (valid_) valid_->enter();
    train_->clear();
    if (valid_) valid_->clear();
    for (const std::string& path : inputs) read_file(path);
    flush();
    train_->close_shard();
    if (valid_) valid_->close_shard();
    check_not_empty();
    if (valid_) valid_->prepare_commit();
    train_->prepare_commit();
    if (valid_) valid_->commit();
    train_->commit();
    if (valid_) valid_->remove_replaced();
    train_->remove_replaced();
    result_.train = train_->manifest();
    if (valid_) result_.valid = valid_->manifest();
    return result_;
  }

 private:
  void read_file(const std::string& path) {
    TextInputOptions text_options = options_.text;
    text_options.whole_lines = options_.encode_line != nullptr;
    TextInput input(files_, path, text_options);
    std::string text;
    while (input.next(&text)) {
      if (text.empty()) {
        ++result_.empty_documents;
        continue;
      }
      batch_bytes_ += static_cast<int64_t>(text.size());
      batch_.push_back({.text = std::move(text),
                        .document = next_document_++,
                        .where = input.where(),
                        .encoded = {},
                        .error = {}});
      text = std::string();
      if (batch_bytes_ >= kBatchTextBytes ||
          static_cast<int64_t>(batch_.size()) >= kBatchDocuments) {
        progress_.bytes_done = files_done_bytes_ + input.file_offset();
        flush();
      }
    }
    files_done_bytes_ += files_.file_bytes(path);
    result_.invalid_utf8_bytes += input.invalid_utf8_bytes();
    progress_.bytes_done = files_done_bytes_;
  }

  void flush() {
    pool_.parallel_for(static_cast<int64_t>(batch_.size()), [&](int64_t task, int) {
      Item& item = batch_[static_cast<size_t>(task)];
      try {
        encode(item);
      } catch (...) {
        // A task must not throw; the first in order is thrown below.
        item.error = std::current_exception();
      }
    });
    for (Item& item : batch_) append(item);
    batch_.clear();
    batch_bytes_ = 0;
    if (options_.progress) options_.progress(progress_);
  }

  void encode(Item& item) const {
    if (options_.encode) {
      options_.encode(item.text, &item.encoded.tokens);
      item.encoded.source_bytes = static_cast<int64_t>(item.text.size());
      return;
    }
    try {
      options_.encode_line(item.text, &item.encoded);
    } catch (const Error& e) {
      throw_error(e.code(), "{}: {}", item.where, e.what());
    }
  }

  // The end of the document; true if anything in it is to be learnt.
  bool finish_document(EncodedLine* encoded) const {
    const int32_t eos = options_.meaning.eos_id;
    if (options_.encode) {
      if (eos >= 0) encoded->tokens.push_back(eos);
      return true;
    }
    MR_CHECK(encoded->is_target.size() == encoded->tokens.size());
    if (eos >= 0 && (encoded->tokens.empty() || encoded->tokens.back() != eos)) {
      encoded->tokens.push_back(eos);
      encoded->is_target.push_back(0);
    }
    return std::any_of(encoded->is_target.begin(), encoded->is_target.end(),
                       [](uint8_t mark) { return mark != 0; });
  }

  void append(Item& item) {
    if (item.error) std::rethrow_exception(item.error);
    const TokenMeaning& meaning = options_.meaning;
    for (const int32_t token : item.encoded.tokens) {
      if (token >= 0 && token < meaning.vocabulary_size) continue;
      throw_error(Code::kInvalidArgument,
                  "build dataset: document {} has token id {}, the tokenizer's vocabulary has {}",
                  item.document, token, meaning.vocabulary_size);
    }
    if (!finish_document(&item.encoded)) {
      ++result_.documents_without_target;
      return;
    }
    const bool held_out =
        valid_ && random_uniform(options_.seed, Stream::kDataSplit, 0,
                                 static_cast<uint64_t>(item.document)) < options_.valid_fraction;
    (held_out ? valid_ : train_)->add(item);
    progress_.documents += 1;
    progress_.tokens += static_cast<int64_t>(item.encoded.tokens.size());
  }

  void check_not_empty() const {
    if (progress_.documents == 0 && result_.documents_without_target > 0) {
      throw_error(
          Code::kInvalidArgument,
          "build dataset {}: none of {} documents has a token to learn; wanted at least one "
          "turn of the assistant",
          options_.out, result_.documents_without_target);
    }
    if (progress_.documents == 0) {
      throw_error(Code::kInvalidArgument, "build dataset {}: the inputs hold no document with text",
                  options_.out);
    }
    for (const DatasetWriter* writer : {train_.get(), valid_.get()}) {
      if (writer == nullptr || writer->manifest().documents > 0) continue;
      throw_error(
          Code::kInvalidArgument,
          "build dataset: none of {} documents fell into {}; change --valid-fraction ({}) or "
          "--seed, or build a dataset of held-out files by itself",
          progress_.documents, writer->folder(), options_.valid_fraction);
    }
  }

  FileSystem& files_;
  Pool& pool_;
  const BuildOptions& options_;
  std::unique_ptr<DatasetWriter> train_, valid_;
  std::vector<Item> batch_;
  int64_t batch_bytes_ = 0, next_document_ = 0, files_done_bytes_ = 0;
  BuildProgress progress_;
  BuildResult result_;
};

}  // namespace

BuildResult build_dataset(FileSystem& files, Pool& pool, const BuildOptions& options) {
  MR_CHECK((options.encode != nullptr) != (options.encode_line != nullptr));
  MR_CHECK(options.meaning.vocabulary_size > 0);
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1)) {
    throw_error(Code::kInvalidArgument,
                "build dataset: valid_fraction is {}, want 0 <= fraction < 1",
                options.valid_fraction);
  }
  if (options.shard_bytes < 1) {
    throw_error(Code::kInvalidArgument, "build dataset: shard size is {} bytes, want at least 1",
                options.shard_bytes);
  }
  if (options.inputs.empty())
    throw_error(Code::kInvalidArgument, "build dataset: no input was given");
  return Builder(files, pool, options).run();
}

}  // namespace moraine
