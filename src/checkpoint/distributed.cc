// Distributed checkpoints: three or four rounds of agree(), so that no rank goes on alone.
#include "checkpoint/distributed.h"

#include <map>
#include <set>

#include "base/error.h"
#include "base/fault_point.h"
#include "checkpoint/agree.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/history.h"
#include "checkpoint/message_text.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/write_rows.h"

namespace moraine {
namespace {

using KnownHashes = std::map<std::string, Hash128, std::less<>>;

// Tensors that are still to be read for a hash.
struct Unhashed {
  std::vector<std::string> names;
  std::vector<int64_t> bytes;
};

std::string hash_own_share(const Communicator& comm, const Checkpoint& checkpoint,
                           const Unhashed& tensors) {
  const std::vector<int> owner = divide_by_bytes(tensors.bytes, comm.size());
  MessageWriter out;
  out.put(checkpoint.info().step);
  for (size_t i = 0; i < tensors.names.size(); ++i) {
    if (owner[i] != comm.rank()) continue;
    out.put(tensors.names[i]);
    out.put(checkpoint.tensor_hash(tensors.names[i]));
  }
  return out.take();
}

// On rank 0: the hash of all from what is `known` and what the ranks said.
std::string combine_hashes(const Checkpoint& checkpoint, KnownHashes known, const Unhashed& tensors,
                           const std::vector<std::string>& said) {
  const std::vector<int> owner = divide_by_bytes(tensors.bytes, static_cast<int>(said.size()));
  std::vector<MessageReader> from(said.begin(), said.end());
  for (size_t rank = 0; rank < from.size(); ++rank) {
    const int64_t step = from[rank].number();
    if (step == checkpoint.info().step) continue;
    throw_error(Code::kPeerLost, "rank {} reads step {}, rank 0 step {}", rank, step,
                checkpoint.info().step);
  }
  for (size_t i = 0; i < tensors.names.size(); ++i) {
    MessageReader& in = from[static_cast<size_t>(owner[i])];
    const std::string name = in.string();
    if (name != tensors.names[i]) {
      throw_error(Code::kPeerLost, "rank {} has read '{}', it should have read '{}'", owner[i],
                  name, tensors.names[i]);
    }
    known[name] = in.hash();
  }
  for (const MessageReader& in : from) in.end();
  ContentHash hash;
  hash.add_step(checkpoint.info().step);
  for (const CheckpointEntry& e : checkpoint.entries()) {
    hash.add_tensor(e.name, dtype_name(e.dtype), e.shape, known.at(e.name));
  }
  return hash_hex(hash.digest());
}

Hash128 parsed_hash(const std::string& hex) {
  Hash128 hash;
  if (!parse_hash(hex, &hash)) throw_error(Code::kPeerLost, "rank 0 sent no hash");
  return hash;
}

// One save. The rounds are called in order on every rank.
class DistributedWrite {
 public:
  DistributedWrite(Communicator& comm, FileSystem& fs, const std::string& root,
                   const CheckpointInfo& info, std::span<const CheckpointFile> files)
      : comm_(comm),
        fs_(fs),
        root_(root),
        info_(info),
        files_(files),
        partial_(partial_path(root, info.step)) {}

  void plan_round(std::span<const TensorRows> tensors) {
    fault_point("save.plan");
    agree(
        comm_,
        [&] {
          check_checkpoint_request(info_, files_);
          rows_ = rows_to_write(info_, files_, tensors);
          return plan_text(rows_.plan);
        },
        [&](const std::vector<std::string>& said) {
          for (const std::string& text : said) plans_.push_back(parse_plan(text));
          check_plans(plans_);
          fs_.make_durable_directories(root_);
          clear_rubble(fs_, root_);
          fs_.make_directories(partial_);
          return std::string();
        });
  }

  void write_round(const CheckpointOptions& options) {
    fault_point("save.write");
    const std::string answer = agree(
        comm_,
        [&] {
          fs_.make_directories(partial_);  // is there, but not all shared disks say so at once
          const DataFilesWritten written = write_rows(fs_, partial_, comm_.rank(), rows_, options);
          fault_point("save.written");
          if (comm_.rank() == 0) carried_ = write_carried_files(fs_, partial_, files_);
          return written_text(written);
        },
        [&](const std::vector<std::string>& said) { return finish_partial(said); });
    MessageReader in(answer);
    result_.bytes = in.number();
    unhashed_.names.resize(static_cast<size_t>(in.count()));
    unhashed_.bytes.resize(unhashed_.names.size());
    for (size_t i = 0; i < unhashed_.names.size(); ++i) {
      unhashed_.names[i] = in.string();
      unhashed_.bytes[i] = in.number();
    }
    in.end();
  }

  void hash_round() {
    fault_point("save.hash");
    std::optional<Checkpoint> written;
    const std::string answer = agree(
        comm_,
        [&] {
          written = Checkpoint::open(fs_, partial_, false);
          return hash_own_share(comm_, *written, unhashed_);
        },
        [&](const std::vector<std::string>& said) {
          return combine_hashes(*written, known_, unhashed_, said);
        });
    result_.hash = parsed_hash(answer);
  }

  CheckpointWritten commit_round() {
    fault_point("save.commit");
    result_.directory = agree(
        comm_, [] { return std::string(); },
        [&](const std::vector<std::string>&) {
          commit_checkpoint(fs_, root_, info_.step);
          return checkpoint_path(fs_, root_, info_.step);
        });
    fault_point("save.committed");
    return result_;
  }

  const std::string& partial() const { return partial_; }

 private:
  // On rank 0: all files are there; the manifest makes them one.
  std::string finish_partial(const std::vector<std::string>& said) {
    std::vector<DataFilesWritten> written;
    for (const std::string& text : said) written.push_back(parse_written(text));
    Manifest manifest = assemble_manifest(info_, plans_, written);
    check_visible(written);
    manifest.files = carried_;
    MessageWriter out;
    out.put(write_manifest(fs_, partial_, manifest));
    for (size_t rank = 0; rank < plans_.size(); ++rank) {
      for (size_t i = 0; i < plans_[rank].pieces.size(); ++i) {
        const PlannedRows& p = plans_[rank].pieces[i];
        const int64_t rows = p.shape.empty() ? 1 : p.shape[0];
        if (p.row_begin == 0 && p.row_end == rows) known_[p.name] = written[rank].hashes[i];
      }
    }
    Unhashed unhashed;
    for (const ManifestTensor& t : manifest.tensors) {
      if (known_.contains(t.name)) continue;
      unhashed.names.push_back(t.name);
      unhashed.bytes.push_back(t.rows() * t.row_bytes());
    }
    out.put(static_cast<int64_t>(unhashed.names.size()));
    for (size_t i = 0; i < unhashed.names.size(); ++i) {
      out.put(unhashed.names[i]);
      out.put(unhashed.bytes[i]);
    }
    return out.take();
  }

  void check_visible(std::span<const DataFilesWritten> written) const {
    for (size_t rank = 1; rank < written.size(); ++rank) {
      for (const ManifestData& d : written[rank].data) {
        const std::string path = join_path(partial_, d.name);
        const int64_t found = fs_.exists(path) ? fs_.file_bytes(path) : -1;
        if (found == d.bytes) continue;
        throw_error(Code::kIo,
                    "{}: rank {} wrote {} bytes, rank 0 sees {}; all ranks must save to one shared "
                    "folder",
                    path, rank, d.bytes, found < 0 ? "no such file" : fmt::format("{}", found));
      }
    }
  }

  Communicator& comm_;
  FileSystem& fs_;
  const std::string& root_;
  const CheckpointInfo& info_;
  const std::span<const CheckpointFile> files_;
  const std::string partial_;
  RowsToWrite rows_;
  CheckpointWritten result_;
  Unhashed unhashed_;
  // Of rank 0.
  std::vector<SavePlan> plans_;
  std::vector<ManifestFile> carried_;
  KnownHashes known_;
};

}  // namespace

CheckpointWritten write_checkpoint_distributed(Communicator& comm, FileSystem& fs,
                                               const std::string& root,
                                               const DistributedContent& content) {
  DistributedWrite write(comm, fs, root, content.info, content.files);
  try {
    write.plan_round(content.tensors);
    write.write_round(content.options);
    if (content.with_hash) write.hash_round();
    return write.commit_round();
  } catch (const Error& error) {
    // A peer that was lost may still be writing there: then the next save clears it.
    if (comm.rank() == 0 && error.code() != Code::kPeerLost) drop_partial(fs, write.partial());
    if (content.options.alone) throw;
    throw_error(error.code(), "save checkpoint step-{} in {}: {}; the checkpoints before it stay",
                content.info.step, root, error.what());
  }
}

Hash128 checkpoint_hash_distributed(Communicator& comm, const Checkpoint& checkpoint) {
  Unhashed all;
  for (const CheckpointEntry& e : checkpoint.entries()) {
    all.names.push_back(e.name);
    all.bytes.push_back(e.bytes);
  }
  const std::string answer = agree(
      comm, [&] { return hash_own_share(comm, checkpoint, all); },
      [&](const std::vector<std::string>& said) {
        return combine_hashes(checkpoint, {}, all, said);
      });
  return parsed_hash(answer);
}

DistributedSaver::DistributedSaver(Communicator comm, FileSystem& fs, const std::string& root,
                                   const SaverOptions& options, bool with_hash)
    : comm_(std::move(comm)), fs_(fs), root_(root), options_(options), with_hash_(with_hash) {}

SaveResult DistributedSaver::save(const CheckpointInfo& info, std::span<const TensorRows> tensors,
                                  std::span<const CheckpointFile> files) {
  SaveResult saved;
  saved.step = info.step;
  saved.written = write_checkpoint_distributed(comm_, fs_, root_,
                                               {.info = info,
                                                .tensors = tensors,
                                                .files = files,
                                                .with_hash = with_hash_,
                                                .options = options_.checkpoint});
  MessageWriter out;
  if (comm_.rank() == 0) {
    fault_point("save.retention");
    try {
      saved.removed = apply_retention(fs_, root_, options_.retention, info.step);
    } catch (const Error& error) {
      saved.warning = error.what();
    }
    out.put(saved.warning);
    for (const int64_t step : saved.removed) out.put(step);
  }
  const std::string text = broadcast_text(comm_, out.take());
  if (comm_.rank() == 0) return saved;
  MessageReader in(text);
  saved.warning = in.string();
  while (!in.empty()) saved.removed.push_back(in.number());
  return saved;
}

void DistributedSaver::start(CheckpointInfo info, std::vector<TensorRows> tensors,
                             std::vector<CheckpointFile> files) {
  const std::string name = fmt::format("save checkpoint step-{}", info.step);
  thread_.start(name, [this, info = std::move(info), tensors = std::move(tensors),
                       files = std::move(files)] { return save(info, tensors, files); });
}

}  // namespace moraine
