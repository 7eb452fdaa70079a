// MemoryCopy: the rounds of one copy, and of finding the newest one again.
#include "checkpoint/memory/copy.h"

#include "base/check.h"
#include "base/error.h"
#include "base/fault_point.h"
#include "checkpoint/agree.h"
#include "checkpoint/history.h"
#include "checkpoint/memory/folder.h"
#include "checkpoint/memory/host_files.h"
#include "checkpoint/memory/search.h"
#include "checkpoint/message_text.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/write_rows.h"

namespace moraine {
namespace {

constexpr int64_t kHeaderBytes = int64_t{1} << 20;  // more than headers and manifest of most copies

ManifestFile carried(const CheckpointFile& file) {
  const int64_t bytes = static_cast<int64_t>(file.content.size());
  return {file.name, bytes, hash_bytes(file.content.data(), bytes)};
}

int64_t bytes_of(const SavePlan& plan) {
  int64_t bytes = 0;
  for (const PlannedRows& p : plan.pieces) {
    const ManifestTensor t{p.name, p.dtype, p.shape, {}};
    bytes += (p.row_end - p.row_begin) * t.row_bytes();
  }
  return bytes;
}

// One copy. The rounds are called in order on every rank.
class CopyWrite {
 public:
  CopyWrite(Communicator& comm, FileSystem& fs, const std::string& folder,
            const CheckpointInfo& info, std::span<const CheckpointFile> files)
      : comm_(comm),
        fs_(fs),
        folder_(folder),
        info_(info),
        files_(files),
        hosts_(hosts_of(comm)),
        partial_(partial_path(folder, info.step)) {}

  // Returns why there is no room; empty: go on.
  std::string plan_round(const std::string& run_root, const MemoryCopyOptions& options,
                         std::span<const TensorRows> tensors) {
    fault_point("memory.plan");
    const std::string id = agree(
        comm_, [&] { return comm_.rank() == 0 ? make_memory_id(fs_, run_root) : std::string(); },
        [](const std::vector<std::string>& said) { return said[0]; });
    return agree(
        comm_,
        [&] {
          MessageWriter out;
          out.put(first() ? make_room(id, options) : 0);
          check_checkpoint_request(info_, files_);
          rows_ = rows_to_write(info_, files_, tensors);
          out.put(plan_text(rows_.plan));
          return out.take();
        },
        [&](const std::vector<std::string>& said) { return refusal(said, options); });
  }

  void write_round(const CheckpointOptions& options) {
    fault_point("memory.write");
    const std::string answer = agree(
        comm_,
        [&] {
          const DataFilesWritten written = write_rows(fs_, partial_, comm_.rank(), rows_, options);
          fault_point("memory.written");
          return written_text(written);
        },
        [&](const std::vector<std::string>& said) { return assembled(said); });
    MessageReader in(answer);
    manifest_ = parse_manifest(in.string());
    for (const ManifestData& d : manifest_.data) {
      host_files_.push_back({d.name, d.bytes, static_cast<int>(in.number())});
    }
    in.end();
  }

  void pass_on_round() {
    fault_point("memory.pass_on");
    std::optional<Error> failed;
    if (hosts_.count() > 1) failed = pass_on(comm_, hosts_, fs_, partial_, host_files_);
    const std::string bytes = agree(
        comm_,
        [&] {
          if (failed.has_value()) throw Error(*failed);
          if (!first()) return std::string();
          write_carried_files(fs_, partial_, files_);
          return fmt::format("{}", write_manifest(fs_, partial_, manifest_));
        },
        [](const std::vector<std::string>& said) { return said[0]; });
    bytes_ = std::stoll(bytes);
  }

  CheckpointWritten commit_round() {
    fault_point("memory.commit");
    agree(
        comm_,
        [&] {
          if (first()) commit_checkpoint(fs_, folder_, info_.step);
          return std::string();
        },
        no_decision);
    fault_point("memory.committed");
    drop_old();
    return {.directory = checkpoint_path(fs_, folder_, info_.step), .bytes = bytes_, .hash = {}};
  }

  void give_up() {
    if (first()) drop_partial(fs_, partial_);
  }

 private:
  bool first() const { return hosts_.first_of_host(comm_.rank()); }

  // On the first rank of a host: what is free when only the newest copy is left.
  int64_t make_room(const std::string& id, const MemoryCopyOptions& options) {
    prepare_memory_folder(fs_, folder_, id);
    clear_rubble(fs_, folder_);
    remove_checkpoints_after(fs_, folder_, info_.step);  // the run went back
    apply_retention(fs_, folder_, {.keep = 1, .permanent_every = 0});
    // Made here alone: a rank of a lost job that comes too late finds no folder, and makes none.
    fs_.make_directories(partial_);
    return options.free_bytes ? options.free_bytes(options.base) : free_memory_bytes(options.base);
  }

  std::string refusal(const std::vector<std::string>& said, const MemoryCopyOptions& options) {
    std::vector<int64_t> free, bytes;
    for (const std::string& text : said) {
      MessageReader in(text);
      free.push_back(in.number());
      plans_.push_back(parse_plan(in.string()));
      in.end();
    }
    check_plans(plans_);
    for (const SavePlan& plan : plans_) bytes.push_back(bytes_of(plan));
    for (int host = 0; host < hosts_.count(); ++host) {
      int64_t need = kHeaderBytes;
      for (int m = 0; m < comm_.size(); ++m) {
        const int at = hosts_.of[static_cast<size_t>(m)];
        const bool kept = at == host || (at + 1) % hosts_.count() == host;
        if (kept) need += bytes[static_cast<size_t>(m)];
      }
      const int leader = hosts_.members[static_cast<size_t>(host)].front();
      const int64_t room = free[static_cast<size_t>(leader)];
      if (room >= need && room - need >= options.reserve_bytes) continue;
      return fmt::format(
          "memory copy of step {} in {}: {} bytes are free on the host of rank {}, wanted {} and a "
          "reserve of {}; training goes on without the copy",
          info_.step, options.base, room, leader, need, options.reserve_bytes);
    }
    return "";
  }

  // The manifest, then which member wrote each data file.
  std::string assembled(const std::vector<std::string>& said) {
    std::vector<DataFilesWritten> written;
    for (const std::string& text : said) written.push_back(parse_written(text));
    Manifest manifest = assemble_manifest(info_, plans_, written);
    for (const CheckpointFile& file : files_) manifest.files.push_back(carried(file));
    MessageWriter out;
    out.put(manifest_text(manifest));
    for (size_t rank = 0; rank < written.size(); ++rank) {
      for (size_t i = 0; i < written[rank].data.size(); ++i) out.put(static_cast<int64_t>(rank));
    }
    return out.take();
  }

  // All hosts have the new copy. If this fails the next copy does it, before it asks for room.
  void drop_old() {
    if (!first()) return;
    try {
      apply_retention(fs_, folder_, {.keep = 1, .permanent_every = 0});
    } catch (const Error&) {
    }
  }

  Communicator& comm_;
  FileSystem& fs_;
  const std::string& folder_;
  const CheckpointInfo& info_;
  const std::span<const CheckpointFile> files_;
  const Hosts hosts_;
  const std::string partial_;
  RowsToWrite rows_;
  Manifest manifest_;
  std::vector<HostFile> host_files_;
  int64_t bytes_ = 0;
  std::vector<SavePlan> plans_;  // of rank 0
};

}  // namespace

MemoryCopy::MemoryCopy(Communicator comm, FileSystem& fs, const std::string& run_root,
                       const MemoryCopyOptions& options)
    : comm_(std::move(comm)),
      fs_(fs),
      run_root_(run_root),
      options_(options),
      folder_(memory_folder_path(options.base, run_root)) {}

SaveResult MemoryCopy::save_now(const CheckpointInfo& info, std::span<const TensorRows> tensors,
                                std::span<const CheckpointFile> files) {
  SaveResult result;
  result.step = info.step;
  CopyWrite copy(comm_, fs_, folder_, info, files);
  try {
    const std::string refusal = copy.plan_round(run_root_, options_, tensors);
    if (!refusal.empty()) {
      if (!refused_) result.warning = refusal;
      refused_ = true;
      copy.give_up();
      return result;
    }
    copy.write_round(options_.checkpoint);
    copy.pass_on_round();
    result.written = copy.commit_round();
    refused_ = false;
  } catch (const Error& error) {
    const std::string text =
        fmt::format("memory copy of step {} in {}: {}", info.step, folder_, error.what());
    if (error.code() == Code::kPeerLost) throw Error(error.code(), text);
    copy.give_up();
    if (!refused_) result.warning = text + "; training goes on without the copy";
    refused_ = true;
  }
  return result;
}

void MemoryCopy::start(CheckpointInfo info, std::vector<TensorRows> tensors,
                       std::vector<CheckpointFile> files) {
  const std::string name = fmt::format("memory copy of step {}", info.step);
  thread_.start(name, [this, info = std::move(info), tensors = std::move(tensors),
                       files = std::move(files)] { return save_now(info, tensors, files); });
}

std::optional<std::string> MemoryCopy::newest(const OnBadCheckpoint& on_bad) {
  MR_CHECK(thread_.idle(), "a copy is being written");
  return newest_in_memory(comm_, fs_, run_root_, folder_, on_bad);
}

std::string MemoryCopy::tidy(const std::function<void()>& act) {
  MR_CHECK(thread_.idle(), "a copy is being written");
  try {
    agree(
        comm_,
        [&] {
          const bool first = hosts_of(comm_).first_of_host(comm_.rank());
          if (first && is_own_memory_folder(folder_)) act();
          return std::string();
        },
        no_decision);
  } catch (const Error& error) {
    if (error.code() == Code::kPeerLost) throw;
    return fmt::format("remove memory copies in {}: {}; it stays as it is, training goes on",
                       folder_, error.what());
  }
  return "";
}

std::string MemoryCopy::remove() {
  return tidy([&] { fs_.remove_all(folder_); });
}

std::string MemoryCopy::remove_after(int64_t step) {
  return tidy([&] { remove_checkpoints_after(fs_, folder_, step); });
}

}  // namespace moraine
